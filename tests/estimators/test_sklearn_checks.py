"""scikit-learn's own estimator checks, all of them."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_classifiers_train, parametrize_with_checks

from mmb.estimators import MultiTaskAUCClassifier

SMALL = {"hidden": (8,), "lr": 5e-2, "networks": 2}
STOCHASTIC = "rows are held out and drawn into batches at random: weights equal repetition on average only"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": STOCHASTIC,
    # scikit-learn expects the same of its own FixedThresholdClassifier
    "check_classifiers_train": "a false positive rate is reached elsewhere than at probability 1/2",
}


@parametrize_with_checks(
    [MultiTaskAUCClassifier(**SMALL, steps=8)], expected_failed_checks=lambda _: EXPECTED
)
@pytest.mark.filterwarnings("ignore:y. . of . tasks have no positive")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("options", [{}, {"readonly_memmap": True, "X_dtype": np.float32}])
def test_classification_at_probability_one_half(options):
    estimator = MultiTaskAUCClassifier(threshold=0.5, **SMALL, steps=25)
    check_classifiers_train("MultiTaskAUCClassifier", estimator, **options)
