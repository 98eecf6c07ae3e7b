"""Networks trained without a fold each: which stage is kept, and what calibrates."""

import math

import numpy as np
import pytest
import torch

from estimators.tables import TINY, binary
from mmb.estimators import MultiTaskAUCClassifier, ensemble
from mmb.estimators.ensemble import CrossFit, _has_gained, assign_folds
from mmb.estimators.network import Network


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ([0.1, 0.1, 0.1], True),
        ([0.3, -0.1, 0.1], False),  # mean 0.1, standard error 0.115
        ([0.4, 0.0, 0.1], True),  # mean 0.167, standard error 0.12
        ([0.2, -0.2, 0.1], False),
        ([-0.1, -0.1, -0.1], False),
        ([math.nan, 0.1, math.nan], True),
        ([math.nan, -0.1, math.nan], False),
        ([math.nan, math.nan], True),
    ],
)
def test_a_gain_has_to_be_more_than_noise(gains, kept):
    assert _has_gained(torch.tensor(gains)) == kept


def test_one_network_is_calibrated_by_the_rows_held_out_where_they_have_both_classes():
    labels = torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]], dtype=torch.int8)
    fold = torch.tensor([0, 0, -1, -1])
    found = CrossFit(0, torch.zeros(1), torch.zeros(1, 2), torch.zeros(1, 4, 2), torch.zeros(4, 2), fold)
    assert found.calibration_labels(labels).tolist() == [[0, 1], [1, 1], [-1, 0], [-1, 0]]
    assert found._replace(logits=torch.zeros(2, 4, 2)).calibration_labels(labels) is labels


@pytest.mark.parametrize("gained", [True, False])
def test_tuning_is_kept_where_held_out_rows_gain(gained, monkeypatch):
    """Cross-entropy comes first, and is gone back to bit for bit where the objective did not help."""
    monkeypatch.setattr(ensemble, "_has_gained", lambda gains: gained)
    x, y = binary(100)
    first, tuned = (MultiTaskAUCClassifier(name, **TINY).fit(x, y) for name in ("ce", "pauc"))
    assert (first.objective_, tuned.objective_) == ("ce", "pauc" if gained else "ce")
    assert np.array_equal(tuned.decision_function(x), first.decision_function(x)) != gained
    assert (tuned.validation_score_ == first.validation_score_) != gained


def test_an_undone_stage_leaves_no_trace(monkeypatch):
    """Thresholds, means and duals belong to the weights that were kept."""
    monkeypatch.setattr(ensemble, "_has_gained", lambda gains: False)
    place, calls = Network.place_objective, []
    monkeypatch.setattr(Network, "place_objective", lambda *found: calls.append(found) or place(*found))
    x, y = binary(100)
    model = MultiTaskAUCClassifier("pauc", **TINY | {"steps": 100}).fit(x, y)
    network, part = calls[-1]
    left = {name: value.clone() for name, value in network.objective.state_dict().items()}
    place(network, part)
    assert all(torch.equal(value, left[name]) for name, value in network.objective.state_dict().items())
    assert model.objective_ == "ce"
    assert model.partial_fit(x, y).objective_ == "pauc"


def test_every_fold_has_its_share_of_every_task():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([0.3, 0.1, 0.02])
    labels = (torch.rand(2000, 3, generator=generator) < rates).to(torch.int8)
    fold = assign_folds(labels, 4, generator)
    assert fold.bincount().tolist() == [500] * 4
    for number in range(4):
        shares = (labels[fold == number] == 1).sum(0) / (labels == 1).sum(0)
        torch.testing.assert_close(shares, torch.full((3,), 0.25), atol=0.05, rtol=0)


def test_no_network_goes_without_a_class():
    labels = torch.zeros(50, 3, dtype=torch.int8)
    labels[7, 0] = 1  # one positive
    labels[:, 1], labels[9, 1] = 1, 0  # one negative
    labels[:5, 2] = 1
    for seed in range(20):
        fold = assign_folds(labels, 3, torch.Generator().manual_seed(seed))
        assert fold[7] == fold[9] == -1
        assert (fold >= 0).sum() == 48


def test_one_network_goes_without_a_quarter_of_the_rows():
    labels = (torch.arange(24) % 2).to(torch.int8).unsqueeze(1)
    out = assign_folds(labels, 1, torch.Generator()) == 0
    assert labels[out].sum() == (labels[out] == 0).sum() == 3
    labels[1:] = 0  # the only positive, and so nothing to calibrate by
    labels[0] = 1
    fold = assign_folds(labels, 1, torch.Generator())
    assert fold[0] == -1
