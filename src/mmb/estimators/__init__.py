"""scikit-learn estimators: the objectives of this package behind `fit` and `predict`."""

from mmb.estimators.classifier import MultiTaskAUCClassifier

__all__ = ["MultiTaskAUCClassifier"]
