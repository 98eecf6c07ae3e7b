"""Networks under compositional training: all tasks at once equal to one task after the other."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

from mmb.auc import CompositionalAUC, TaskBatch
from mmb.models import gin, image_networks, resnet18
from mmb.models.task_graphs import stack_tasks
from random_graphs import random_graphs

TASKS, ROWS, INNER = 2, 6, 0.1
LABELS = torch.tensor([[0, 1] * (ROWS // 2)] * TASKS)


def graph_case(generator):
    return gin(num_tasks=TASKS, layers=2, width=8, dropout=0.0, virtual_node=True), random_graphs(
        40, generator
    )


def image_case(generator):
    images = torch.randn(40, 3, 8, 8, generator=generator, dtype=torch.float64)
    return resnet18(num_tasks=TASKS, stem="cifar"), images


def task_inputs(store, rows):
    if isinstance(store, torch.Tensor):
        return store[rows]
    return stack_tasks(store[rows.flatten()], len(rows))


def one_by_one(model, store, upper, lower):
    """The estimate of the paper, means at 0.5 and dual at 1: plain autograd, task by task, no padding."""
    names = [name for name, _ in model.named_parameters()]
    weights = [p.detach().requires_grad_() for p in model.parameters()]
    total = [torch.zeros_like(w) for w in weights]
    softplus = torch.nn.functional.softplus
    for task in range(TASKS):

        def logits(rows, task=task):
            return functional_call(model, dict(zip(names, weights, strict=True)), (store[rows],))[:, task]

        positive = LABELS[task] == 1
        h = torch.sigmoid(logits(upper[task]))
        spread = (h[positive] - 0.5).square().mean() + (h[~positive] - 0.5).square().mean()
        auc_loss = spread + 2 * (1 + h[~positive].mean() - h[positive].mean())
        through = torch.autograd.grad(auc_loss, weights)
        s = logits(lower[task])
        entropy = 0.5 * softplus(-s[positive]).mean() + 0.5 * softplus(s[~positive]).mean()
        inner = torch.autograd.grad(entropy, weights, create_graph=True)
        bend = torch.autograd.grad(inner, weights, through)
        for part, direct, curved in zip(total, through, bend, strict=True):
            part += (direct - INNER * curved) / TASKS
    return total


@pytest.mark.parametrize("case", [graph_case, image_case])
def test_exact_estimate_for_all_tasks_at_once(case, monkeypatch):
    monkeypatch.setattr(image_networks, "_WIDTHS", (4, 6, 8, 10))  # to be quick
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model, store = case(generator)
    model = model.double()
    upper, lower = torch.arange(2 * TASKS * ROWS).reshape(2, TASKS, ROWS)
    expected = one_by_one(model, store, upper, lower)
    objective = CompositionalAUC(LABELS.T.contiguous(), model, inner_lr=INNER).double()
    tasks = torch.arange(TASKS)
    below = TaskBatch(task_inputs(store, lower), LABELS, tasks)
    objective.backward(model, TaskBatch(task_inputs(store, upper), LABELS, tasks, lower=below))
    for parameter, want in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, want, rtol=1e-6, atol=1e-9)
