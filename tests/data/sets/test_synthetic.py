import pytest
import torch

import mmb.data


def test_positive_rates_are_exact_without_gaps():
    rates = [0.01, 0.1, 0.5]
    data = mmb.data.load("synthetic", rows=1000, tasks=3, features=5, positive_rate=rates)
    assert (data.labels == 1).sum(0).tolist() == [10, 100, 500]
    assert data.inputs.shape == (1000, 5)


def test_missing_rate_is_met_on_average():
    data = mmb.data.load("synthetic", rows=5000, tasks=4, missing_rate=0.3)
    assert (data.labels == -1).float().mean().item() == pytest.approx(0.3, abs=0.02)


def test_labels_can_be_learned_and_tasks_are_related():
    data = mmb.data.load("synthetic", rows=4000, tasks=2, features=4, noise=0.0, positive_rate=0.5)
    # Without noise neighbouring rows share labels: one nearest neighbour is right far more often than chance.
    train, test = data.split["train"], data.split["test"]
    nearest = torch.cdist(data.inputs[test], data.inputs[train]).argmin(1)
    agreement = (data.labels[test] == data.labels[train][nearest]).float().mean(0)
    assert (agreement > 0.8).all()


@pytest.mark.parametrize(
    "wrong",
    [{"rows": 0}, {"tasks": 0}, {"positive_rate": 0.0}, {"positive_rate": [0.1, 0.2]}, {"missing_rate": 1.0}],
)
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        mmb.data.load("synthetic", **wrong)
