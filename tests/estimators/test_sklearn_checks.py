"""scikit-learn's own estimator checks, all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mmb.estimators import MultiTaskAUCClassifier

SMALL = {"hidden": (16,), "lr": 3e-2, "steps": 50, "networks": 2}
STOCHASTIC = "rows are held out and drawn into batches at random: weights equal repetition on average only"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": STOCHASTIC,
}
# scikit-learn expects the same of its own FixedThresholdClassifier
OPERATING = {"check_classifiers_train": "a false positive rate is reached elsewhere than at probability 1/2"}


def expected(estimator):
    return EXPECTED | (OPERATING if estimator.threshold is None else {})


@parametrize_with_checks(
    [MultiTaskAUCClassifier(**SMALL), MultiTaskAUCClassifier(threshold=0.5, **SMALL)],
    expected_failed_checks=expected,
)
@pytest.mark.filterwarnings("ignore:y. . of . tasks have no positive")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
