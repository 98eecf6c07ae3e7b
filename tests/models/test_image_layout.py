"""Images whose channels lie side by side: every convolution computes so, and computes the same."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mmb.auc import CompositionalAUC, CrossEntropy, DenseBatch, TaskBatch
from mmb.models import densenet121, image_networks, resnet18

ROWS = 6
LABELS = torch.tensor([[0, 1] * (ROWS // 2)] * 2).T.contiguous()


class Layouts(TorchDispatchMode):
    """Notes whether the input of each convolution is channels last."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.convolution.default:
            self.found.append(args[0].is_contiguous(memory_format=torch.channels_last))
        return function(*args, **(kwargs or {}))


def images(count, side, layout):
    drawn = torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.contiguous(memory_format=layout)


def dense_step(make, side, layout):
    torch.manual_seed(0)
    model = make(2).double()
    with Layouts() as layouts:
        CrossEntropy(LABELS).double().backward(model, DenseBatch(images(ROWS, side, layout), LABELS))
    return [weight.grad for weight in model.parameters()], layouts.found


def task_step(layout):
    """Exact compositional training of one task."""
    torch.manual_seed(0)
    model = resnet18(2, stem="cifar").double()
    objective = CompositionalAUC(LABELS, model, copies_as="offsets").double()
    upper, lower = images(2 * ROWS, 16, layout).split(ROWS)
    labels, tasks = LABELS.T[1:], torch.tensor([1])
    below = TaskBatch(lower.unsqueeze(0), labels, tasks)
    with Layouts() as layouts:
        objective.backward(model, TaskBatch(upper.unsqueeze(0), labels, tasks, lower=below))
    return [weight.grad for weight in model.parameters()] + [objective.copies.stacked], layouts.found


@pytest.fixture(autouse=True)
def _narrow_resnet(monkeypatch):
    monkeypatch.setattr(image_networks, "_WIDTHS", (16, 20, 24, 28))  # to be quick


@pytest.mark.parametrize(("make", "side"), [(resnet18, 32), (densenet121, 32)])
def test_the_layout_of_the_images_reaches_all_layers(make, side):
    want, plain = dense_step(make, side, torch.contiguous_format)
    found, layouts = dense_step(make, side, torch.channels_last)
    assert len(layouts) == len(plain)
    assert all(layouts)
    assert not all(plain)
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_the_same_with_weights_per_task():
    want, plain = task_step(torch.contiguous_format)
    found, layouts = task_step(torch.channels_last)
    # In second derivatives, weights stand where images do, and rows where channels do.
    assert len(layouts) == len(plain)
    assert sum(layouts) > 0.6 * len(layouts)
    assert sum(plain) < 0.2 * len(plain)
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
