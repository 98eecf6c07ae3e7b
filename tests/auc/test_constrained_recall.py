"""ConstrainedRecall: multipliers rise until the bound holds, and fall to zero where it does not bind."""

from __future__ import annotations

import pytest
import torch

from mmb import auc


def test_the_rate_is_brought_to_the_bound_and_logged():
    """Scores are fixed but for a bias per task: the best recall has the bias at which the bound is met."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(2000, 3, generator=generator) < 0.3).long()
    scores = torch.randn(2000, 3, generator=generator) + 1.5 * labels + torch.tensor([2.0, 0.0, -9.0])
    bias = torch.zeros(3, requires_grad=True)
    objective = auc.ConstrainedRecall(labels, fpr=0.1, temperature=0.1, lr_dual=0.02)
    optimizer = torch.optim.SGD([bias], lr=0.05)
    numbers = []
    for _ in range(1500):
        optimizer.zero_grad()
        objective(scores + bias, labels).backward()
        optimizer.step()
        numbers.append(objective.diagnostics())
    above = ((scores + bias.detach() > 0) & (labels == 0)).sum(0) / (labels == 0).sum(0)
    assert bool((above < 0.12).all())
    assert bool((above[:2] > 0.08).all())  # where it binds
    torch.testing.assert_close(objective.rate, above, rtol=0, atol=0.03)
    assert float(numbers[-1]["fpr"]) == pytest.approx(float(objective.rate.mean()))
    assert float(numbers[50]["feasible"]) < 1  # the first task starts with nearly all negatives above


def test_the_first_visit_of_a_task_sets_its_logged_rate():
    """Or logs would call every task feasible at first, and a rate far above the bound for many batches."""
    labels = torch.tensor([[1, 1, 1]] + [[0, 0, 0]] * 4)
    objective = auc.ConstrainedRecall(labels, fpr=0.3, beta=0.02)
    assert float(objective.diagnostics()["feasible"]) == 0  # nothing is known
    scores = torch.tensor([[1.0, 1, 1], [1, 1, 1], [1, -1, 1], [1, -1, 1], [-1, -1, 1]])
    objective(scores[:, :2].T, labels[:, :2].T, torch.tensor([0, 1]))
    assert objective.rate.tolist() == [0.75, 0.25, -1]
    objective(scores[:1, 2:].T, labels[:1, 2:].T, torch.tensor([2]))  # no negative
    numbers = {name: float(value) for name, value in objective.diagnostics().items()}
    assert objective.rate[2] == -1
    assert numbers["fpr"] == pytest.approx(1 / 3)
    assert numbers["feasible"] == pytest.approx(1 / 3)
    objective(-scores, labels)
    torch.testing.assert_close(
        objective.rate, torch.tensor([0.75, 0.25, 0]) + 0.02 * torch.tensor([-0.5, 0.5, 0])
    )


def test_multipliers_are_not_negative():
    labels = torch.tensor([[1], [0]])
    objective = auc.ConstrainedRecall(labels, fpr=0.5, lr_dual=10.0)
    objective(torch.tensor([[3.0], [-9.0]]), labels)
    assert float(objective.dual) == 0
    objective(torch.tensor([[3.0], [9.0]]), labels)
    assert float(objective.dual) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("options", [{"fpr": 1.0}, {"temperature": 0.0}, {"lr_dual": 0.0}, {"beta": 2.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        auc.ConstrainedRecall(torch.tensor([[1], [0]]), **options)
