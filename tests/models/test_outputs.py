"""Networks that return more than a tensor."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from mmb import auc
from mmb.models.outputs import logits_of

LABELS = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1]])
INPUTS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


@dataclass
class Output:
    logits: torch.Tensor


class Wrapped(nn.Module):
    def __init__(self, inner, wrap):
        super().__init__()
        self.inner, self.wrap = inner, wrap

    def forward(self, inputs):
        return self.wrap(self.inner(inputs))


@pytest.mark.parametrize(
    "wrap", [lambda z: (z, z.sum()), lambda z: [z], lambda z: {"loss": z.sum(), "logits": z}, Output]
)
@pytest.mark.parametrize("sampled", [False, True])
def test_the_gradient_is_that_of_the_plain_network(wrap, sampled):
    batch = auc.DenseBatch(INPUTS, LABELS)
    if sampled:
        tasks = torch.tensor([1, 0])
        batch = auc.TaskBatch(INPUTS.expand(2, -1, -1), LABELS.T[tasks], tasks, torch.arange(4).expand(2, -1))
    inner = nn.Linear(3, 2)
    found = []
    for model in (inner, Wrapped(inner, wrap)):
        inner.zero_grad()
        auc.MinMaxAUC(LABELS).backward(model, batch)
        found.append(inner.weight.grad.clone())
    assert torch.equal(*found)
    assert found[0].abs().sum() > 0


@pytest.mark.parametrize("output", [None, {"scores": INPUTS}, (), ("a", INPUTS), 3.0])
def test_outputs_without_logits_are_named(output):
    with pytest.raises(TypeError, match=rf"{type(output).__name__}.*logits"):
        logits_of(output)


@pytest.mark.parametrize("wrap", [lambda z: (z.sum(), z), lambda z: [z.sum(), z]])
def test_a_loss_before_the_logits_is_refused(wrap):
    model = Wrapped(nn.Linear(3, 2), wrap)
    with pytest.raises(TypeError, match=r"(tuple|list).*first.*\(logits, loss\)"):
        auc.CrossEntropy(LABELS).backward(model, auc.DenseBatch(INPUTS, LABELS))
