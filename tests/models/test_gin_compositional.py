"""GIN under compositional training: all tasks at once equal to one task after the other."""

from __future__ import annotations

import torch
from torch.func import functional_call

from mmb.auc import CompositionalAUC, TaskBatch
from mmb.models.gin import gin
from mmb.models.task_graphs import stack_tasks
from random_graphs import random_graphs

TASKS, ROWS, INNER = 3, 6, 0.1


def case():
    generator = torch.Generator().manual_seed(0)
    model = gin(num_tasks=TASKS, layers=2, width=8, dropout=0.0, virtual_node=True).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    labels = torch.tensor([[0, 1] * (ROWS // 2)] * TASKS)
    store = random_graphs(2 * TASKS * ROWS, generator)
    upper, lower = torch.arange(2 * TASKS * ROWS).reshape(2, TASKS, ROWS)
    return model, labels, store, upper, lower


def one_by_one(model, labels, store, upper, lower):
    """The estimate of the paper, means at 0.5 and dual at 1: plain autograd, task by task, no padding."""
    names = [name for name, _ in model.named_parameters()]
    weights = [p.detach().requires_grad_() for p in model.parameters()]
    total = [torch.zeros_like(w) for w in weights]

    def logits(weights, rows, task):
        return functional_call(model, dict(zip(names, weights, strict=True)), (store[rows],))[:, task]

    for task in range(TASKS):
        positive = labels[task] == 1
        h = torch.sigmoid(logits(weights, upper[task], task))
        spread = (h[positive] - 0.5).square().mean() + (h[~positive] - 0.5).square().mean()
        auc_loss = spread + 2 * (1 + h[~positive].mean() - h[positive].mean())
        through = torch.autograd.grad(auc_loss, weights)
        s = logits(weights, lower[task], task)
        softplus = torch.nn.functional.softplus
        entropy = 0.5 * softplus(-s[positive]).mean() + 0.5 * softplus(s[~positive]).mean()
        inner = torch.autograd.grad(entropy, weights, create_graph=True)
        bend = torch.autograd.grad(inner, weights, through)
        for part, direct, curved in zip(total, through, bend, strict=True):
            part += (direct - INNER * curved) / TASKS
    return total


def test_exact_estimate_for_all_tasks_at_once():
    model, labels, store, upper, lower = case()
    expected = one_by_one(model, labels, store, upper, lower)
    objective = CompositionalAUC(labels.T.contiguous(), model, inner_lr=INNER).double()
    tasks = torch.arange(TASKS)
    batch, below = (
        TaskBatch(stack_tasks(store[rows.flatten()], TASKS), labels, tasks) for rows in (upper, lower)
    )
    objective.backward(model, TaskBatch(batch.inputs, labels, tasks, lower=below))
    for parameter, want in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, want, rtol=1e-6, atol=1e-9)
