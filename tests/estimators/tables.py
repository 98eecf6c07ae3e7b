"""Small tables for the estimator, and options with which it is quick."""

from sklearn.datasets import make_classification

from mmb.data.sets import synthetic

SMALL = {"hidden": (8,), "lr": 3e-2, "steps": 70, "networks": 2, "trees": False, "random_state": 0}
TINY = SMALL | {"steps": 8}
"""For tests that compare models bit by bit, however good they are."""


def binary(rows=600, seed=0, rate=0.2):
    """One task and eight columns."""
    return make_classification(
        rows, 8, n_informative=4, weights=[1 - rate], class_sep=1.5, flip_y=0.02, random_state=seed
    )


def many(rows=800, tasks=4, missing_rate=0.2, seed=0):
    """Several tasks with gaps."""
    data = synthetic.load(rows=rows, tasks=tasks, positive_rate=0.1, missing_rate=missing_rate, seed=seed)
    return data.inputs.double().numpy(), data.labels.numpy()
