"""Networks trained without a fold each: which branches are kept, and what calibrates."""

import math

import numpy as np
import pytest
import torch

from estimators.tables import TINY, binary
from mmb import soup
from mmb.estimators import MultiTaskAUCClassifier
from mmb.estimators.ensemble import CrossFit, assign_folds
from mmb.estimators.network import Network


def test_one_network_is_calibrated_by_the_rows_held_out_where_they_have_both_classes():
    labels = torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]], dtype=torch.int8)
    fold = torch.tensor([0, 0, -1, -1])
    found = CrossFit({}, torch.zeros(1), torch.zeros(1, 4, 2), torch.zeros(4, 2), fold)
    assert found.calibration_labels(labels).tolist() == [[0, 1], [1, 1], [-1, 0], [-1, 0]]
    assert found._replace(logits=torch.zeros(2, 4, 2)).calibration_labels(labels) is labels


def greedy_that_picks(name):
    """A stand-in for `mmb.soup.greedy`."""

    def pick(models, evaluate, fallback, guard):
        assert fallback == "ce"
        assert torch.isfinite(evaluate(models[name])).all()
        return soup.uniform({name: models[name]})

    return pick


@pytest.mark.parametrize("gained", [True, False])
def test_branches_are_kept_where_held_out_rows_gain(gained, monkeypatch):
    """Cross-entropy comes first, and is gone back to bit for bit where the objective did not help."""
    monkeypatch.setattr(soup, "greedy", greedy_that_picks("pauc" if gained else "ce"))
    x, y = binary(100)
    first, tuned = (MultiTaskAUCClassifier(name, **TINY).fit(x, y) for name in ("ce", "pauc"))
    assert (first.objective_, tuned.objective_) == ("ce", "pauc" if gained else "ce")
    assert tuned.shares_ == {tuned.objective_: 1}
    assert np.array_equal(tuned.decision_function(x), first.decision_function(x)) != gained
    assert gained or tuned.validation_score_ == first.validation_score_


def test_a_soup_is_the_average_of_its_branches(monkeypatch):
    found = {}

    def both(models, evaluate, fallback, guard):
        found.update({name: [p.clone() for p in model.parameters()] for name, model in models.items()})
        return soup.uniform(models)

    monkeypatch.setattr(soup, "greedy", both)
    model = MultiTaskAUCClassifier("auc", **TINY).fit(*binary(100))
    assert model.shares_ == {"ce": 0.5, "auc": 0.5}
    assert model.objective_ == "auc"
    for own, ce, auc in zip(model._ensemble.models.parameters(), *found.values(), strict=True):
        torch.testing.assert_close(own, (ce + auc) / 2)
    assert any(not torch.equal(ce, auc) for ce, auc in zip(*found.values(), strict=True))


def test_a_branch_takes_a_sixth_as_many_steps(monkeypatch):
    steps, train = [], Network.train

    def counted(self, part, name, **options):
        steps.append((name, options["steps"]))
        train(self, part, name, **options)

    monkeypatch.setattr(Network, "train", counted)
    model = MultiTaskAUCClassifier(**TINY | {"steps": 90, "networks": 1}).fit(*binary(100))
    assert steps == [("ce", 90), ("fresh", 90), ("pauc", 15)]
    assert sum(model.shares_.values()) == pytest.approx(1)


@pytest.mark.parametrize("promising", [True, False])
def test_fresh_networks_are_trained_if_the_first_of_them_is_promising(promising, monkeypatch):
    """They start from the random weights of cross-entropy, and are taken if they are better beyond noise."""
    trained, train = [], Network.train

    def noted(self, part, name, **options):
        trained.append((name, next(self.model.parameters()).clone()))
        train(self, part, name, **options)

    def areas(self, scores, labels):  # of the pilot, then of cross-entropy
        values = [0.5, float(promising)] if [name for name, _ in trained].count("fresh") == 1 else [0.5]
        asked.append(None)
        return torch.full((1,), values[len(asked) % len(values)])

    asked = []
    monkeypatch.setattr(Network, "train", noted)
    monkeypatch.setattr(soup, "greedy", greedy_that_picks("ce"))
    monkeypatch.setattr(soup, "jackknife", lambda metric, scores, labels: torch.zeros(4))
    monkeypatch.setattr(MultiTaskAUCClassifier, "_areas", areas)
    monkeypatch.setattr(soup, "better", lambda one, other, evaluate, guard: other)
    model = MultiTaskAUCClassifier(**TINY | {"networks": 3}).fit(*binary(100))
    starts = {name: [start for one, start in trained if one == name] for name, _ in trained}
    assert len(starts["fresh"]) == (3 if promising else 1)
    assert all(torch.equal(*pair) for pair in zip(starts["fresh"], starts["ce"], strict=False))
    assert model.shares_ == {"fresh" if promising else "ce": 1.0}
    assert model.objective_ == ("soup" if promising else "ce")


def test_an_objective_follows_the_weights_it_goes_on_from(monkeypatch):
    """Thresholds, means and duals are placed once when training goes on, not left from some branch."""
    place, calls = Network.place_objective, []
    monkeypatch.setattr(Network, "place_objective", lambda *given: calls.append(given[1]) or place(*given))
    x, y = binary(100)
    model = MultiTaskAUCClassifier("pauc", **TINY | {"steps": 100, "networks": 1}).fit(x, y)
    assert calls == ["ce", "pauc"]
    model.partial_fit(x, y).partial_fit(x, y)
    assert calls == ["ce", "pauc", "pauc"]
    assert model.objective_ == "pauc"


def test_without_rows_to_tell_branches_are_averaged():
    x, y = binary(60)
    y = np.zeros(60, dtype=int)
    y[0] = 1  # no network goes without it
    model = MultiTaskAUCClassifier("auc", **TINY).fit(x, y)
    assert model.shares_ == {"ce": 0.5, "auc": 0.5}
    assert math.isnan(model.validation_score_)


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
