"""What a network is trained for: weights of rows, and the objectives themselves."""

import pytest
import torch

from estimators.tables import many
from mmb.auc import CrossEntropy, DenseBatch, PartialAUC
from mmb.estimators.model_mix import PiecewiseLinear
from mmb.estimators.network import Network


def make(x, objective, max_fpr):
    encoding = PiecewiseLinear(torch.as_tensor(x))
    options = {"hidden": (8,), "dropout": 0.0, "alpha": 0.0, "encoding": encoding}
    return Network(x.shape[1], 3, objectives=[objective], max_fpr=max_fpr, **options)


@pytest.mark.parametrize("objective", ["ce", "pauc"])
def test_a_weight_is_a_repetition(objective):
    """The loss of all rows at once, and so its gradient, is the same for weights and for repeated rows."""
    x, y = many(60, tasks=3)
    labels, times = torch.as_tensor(y), torch.randint(1, 4, (60,), generator=torch.Generator().manual_seed(0))
    repeated = torch.arange(60).repeat_interleave(times)
    losses = []
    for rows, weights in ((torch.arange(60), times.float()), (repeated, torch.ones(len(repeated)))):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = make(x, objective, max_fpr=0.3)
        network.see(labels[rows], weights / weights.mean())
        every = labels[rows].repeat(1, network.kinds)
        batch = DenseBatch(torch.as_tensor(x)[rows].float(), every, weights / weights.mean())
        losses.append(float(network.objectives[objective].backward(network.model, batch)["loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_without_weights_objectives_count_labels_as_usual():
    x, y = many(60, tasks=3)
    labels, inputs = torch.as_tensor(y), torch.as_tensor(x).float()
    for name, kind, options in (("ce", CrossEntropy, {}), ("pauc", PartialAUC, {"max_fpr": 0.2})):
        network = make(x, name, max_fpr=0.2)
        network.see(labels, torch.ones(60))
        every = labels.repeat(1, network.kinds)
        own, usual = (
            o.backward(network.model, DenseBatch(inputs, every))
            for o in (network.objectives[name], kind(every, **options))
        )
        assert float(own["loss"]) == pytest.approx(float(usual["loss"]), rel=1e-6)
