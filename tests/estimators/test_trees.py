"""Trees beside the networks: what they add, and that they never see the rows they are weighed by."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from estimators.tables import SMALL, binary, many
from mmb.estimators import MultiTaskAUCClassifier
from mmb.estimators.calibration import unseen_logits
from mmb.estimators.inputs import Rows, Standardizer
from mmb.estimators.network import Part
from mmb.estimators.trees import Trees

WITH_TREES = SMALL | {"trees": True, "steps": 8}


def part_of(x, y, weights=None):
    weights = np.ones(len(x)) if weights is None else weights
    standardize = Standardizer(sparse=False)
    standardize.learn(x, weights)
    labels = torch.as_tensor(y, dtype=torch.int8)
    return Part(Rows(x, standardize), labels, torch.as_tensor(weights, dtype=torch.float32))


def test_logits_are_those_of_scikit_learn_on_the_labeled_rows():
    x, y = many(300, tasks=3)
    y[:, 2] = np.where(y[:, 2] == 1, -1, y[:, 2])  # no positive
    part = part_of(x, y)
    found = Trees(part, seed=3).logits(part.rows)
    assert found.shape == (300, 2, 3)
    inputs = part.rows.take(torch.arange(300)).numpy()
    for task in range(2):
        known = y[:, task] >= 0
        alone = HistGradientBoostingClassifier(early_stopping=False, random_state=3)
        alone.fit(inputs[known], y[known, task])
        np.testing.assert_allclose(found[:, 0, task], alone.decision_function(inputs))
        assert found[:, 1, task].abs().max() <= np.log(64.5 / 0.5)
        assert (found[:, 1, task] > 0)[y[:, task] == 1].all()  # a forest knows its rows by heart
    assert not found[:, :, 2].any()


def test_weights_decide_between_contradictions():
    x = np.random.default_rng(0).standard_normal((600, 2))
    first = np.arange(600) < 300
    y = np.where(first, x[:, 0] > 0, x[:, 0] < 0)[:, None]
    for weights, sign in ((np.where(first, 1.0, 0.01), 1), (np.where(first, 0.01, 1.0), -1)):
        part = part_of(x, y, weights)
        boosted = Trees(part, seed=0).logits(part.rows)[:, 0, 0].numpy()
        assert sign * np.corrcoef(boosted, x[:, 0])[0, 1] > 0.5


def test_thresholds_in_single_columns_are_found():
    random = np.random.default_rng(0)
    x = random.random((1500, 6))
    inside = (abs(x[:, 0] - 0.4) < 0.1) | (abs(x[:, 1] - 0.7) < 0.1)
    y = (inside ^ (random.random(1500) < 0.03)).astype(int)
    scores = [
        MultiTaskAUCClassifier("ce", **SMALL | {"trees": trees})
        .fit(x[:1000], y[:1000])
        .score(x[1000:], y[1000:])
        for trees in (True, False)
    ]
    assert scores[0] > scores[1] + 0.1


def test_rows_are_weighed_and_calibrated_by_trees_that_have_not_seen_them():
    """Labels are noise: trees that know them by heart would be certain, and all would be called positive."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((800, 5)), random.random(800) < 0.3
    model = MultiTaskAUCClassifier("ce", **WITH_TREES).fit(x[:400], y[:400])
    assert 0.4 < model.validation_score_ < 0.6
    probability = model.predict_proba(x[400:])[:, 1]
    assert abs(probability.mean() - 0.3) < 0.06
    assert probability.std() < 0.1
    assert 0.02 < model.predict(x[400:])[~y[400:]].mean() < 0.25


def test_unseen_logits_come_from_the_trees_of_the_fold():
    x, y = binary(200)
    model = MultiTaskAUCClassifier("ce", **WITH_TREES).fit(x, y)
    trees, rows = model._ensemble.trees, Rows(x, model._standardizer)
    assert len(trees) == 2
    fold = torch.arange(200) % 3 - 1
    found = unseen_logits(torch.stack([one.logits(rows) for one in trees]), fold)
    assert torch.equal(found[fold == 1], trees[1].logits(rows)[fold == 1])


def test_a_model_with_trees_is_repeatable_pickled_and_goes_on():
    x, y = binary(200)
    model = MultiTaskAUCClassifier(**WITH_TREES).fit(x, y)
    again = MultiTaskAUCClassifier(**WITH_TREES).fit(x, y)
    scores = model.decision_function(x)
    np.testing.assert_array_equal(scores, again.decision_function(x))
    np.testing.assert_array_equal(scores, pickle.loads(pickle.dumps(model)).decision_function(x))
    before = model._ensemble.trees
    assert model.partial_fit(x, y)._ensemble.trees is before
    assert not np.array_equal(scores, model.decision_function(x))
    assert model._ensemble.blend.shape == (7, 1)


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (np.eye(60), {"hidden": ()}),
        (np.eye(60), {"trees": False}),
        (np.random.default_rng(0).random((60, 1025)), {}),
    ],
)
def test_there_are_none_where_they_do_not_suit(x, options):
    y = np.arange(60) % 2
    model = MultiTaskAUCClassifier("ce", **WITH_TREES | options).fit(x, y)
    assert not model._ensemble.trees
    assert np.isfinite(model.decision_function(x)).all()
