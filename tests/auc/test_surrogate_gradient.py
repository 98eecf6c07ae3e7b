"""With all rows in a batch and settled variables, estimates are gradients of the formulas in the docstrings.

The formulas are written here once more, over index lists, and differentiated by finite differences.
"""

from __future__ import annotations

import math

import pytest
import torch

from exact_blocks import differences, quantile
from mmb import auc

pytestmark = pytest.mark.filterwarnings("ignore:.*left out")
MARGIN = 1.03  # no pair at the kink of its hinge


def ranking(seed=0):
    """Scores `[24, 4]` and labels with gaps: ten negatives in each task, and no positive in the last."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.full((24, 4), -1, dtype=torch.int8)
    for task, positives in enumerate((4, 6, 8, 0)):
        order = torch.randperm(24, generator=generator)
        labels[order[:positives], task] = 1
        labels[order[positives : positives + 10], task] = 0
    return 1.3 * torch.randn(24, 4, generator=generator, dtype=torch.float64), labels


def mean_over_tasks(part, scores, labels):
    """The mean of `part(k, positives, negatives)` over the tasks with both classes."""
    both = [(scores[labels[:, k] == 1, k], scores[labels[:, k] == 0, k]) for k in range(3)]
    return float(torch.stack([part(k, *classes) for k, classes in enumerate(both)]).mean())


def probabilities(transform, scores):
    """`h` of a task; all have the log odds of their classes."""
    return {"logit": lambda z: z, "sigmoid": torch.sigmoid}[transform](scores)


def squares(transform, up, down):
    short = MARGIN - probabilities(transform, up)[:, None] + probabilities(transform, down)
    return short.clamp(min=0) ** 2


def check(objective, scores, labels, part, value=True):
    objective.shift_pull = 0.0
    leaf = scores.clone().requires_grad_()
    loss = objective(leaf, labels, rows=torch.arange(24))
    loss.backward()
    if value:
        assert float(loss.detach()) == pytest.approx(mean_over_tasks(part, scores, labels), abs=1e-9)
    expected = differences(lambda moved: mean_over_tasks(part, moved, labels), scores)
    torch.testing.assert_close(leaf.grad, expected, atol=1e-7, rtol=1e-6)
    assert float(expected.abs().max()) > 1e-2
    assert not leaf.grad[:, 3].any()


def between(values, above):
    """The middle between the values, in falling order, with the numbers `above - 1` and `above`."""
    ordered = values.sort(-1, descending=True).values
    return (ordered[..., above - 1] + ordered[..., above]) / 2


@pytest.mark.parametrize("transform", ["sigmoid", "logit"])
def test_sopa_is_the_mean_over_the_worst_negatives(transform):
    scores, labels = ranking()
    objective = auc.SOPA(labels, max_fpr=0.3, margin=MARGIN, transform=transform).double()
    level = torch.zeros(24, 4, dtype=torch.float64)
    for k in range(3):
        losses = squares(transform, scores[labels[:, k] == 1, k], scores[labels[:, k] == 0, k])
        level[labels[:, k] == 1, k] = between(losses, 3)
    objective.level.value.copy_(level[labels == 1])
    check(
        objective,
        scores,
        labels,
        lambda _, up, down: squares(transform, up, down).topk(3, 1).values.mean(),
    )


@pytest.mark.parametrize("transform", ["sigmoid", "logit"])
def test_staco_is_the_mean_over_the_worst_positives_of_that_over_their_worst_negatives(transform):
    scores, labels = ranking(1)
    objective = auc.STACO(
        labels, max_fpr=0.3, min_tpr=0.5, margin=MARGIN, transform=transform, lr_dual=1e-9
    ).double()
    own = torch.zeros(24, 4, 2, dtype=torch.float64)
    for k in range(3):
        positive = labels[:, k] == 1
        losses = squares(transform, scores[positive, k], scores[labels[:, k] == 0, k])
        inner = losses.topk(3, 1).values.mean(1)
        objective.level[k] = between(inner, len(inner) // 2)
        own[positive, k, 0] = between(losses, 3)
        own[positive, k, 1] = (inner > objective.level[k]).double()
    objective.own.value.copy_(own[labels == 1])

    def worst(_, up, down):
        return squares(transform, up, down).topk(3, 1).values.mean(1).topk(len(up) // 2).values.mean()

    check(objective, scores, labels, worst)


@pytest.mark.parametrize("transform", ["sigmoid", "logit"])
def test_first_visit_of_sopas_is_the_mean_of_log_means(transform):
    scores, labels = ranking(2)
    objective = auc.SOPAs(labels, temperature=0.4, margin=MARGIN, transform=transform).double()

    def part(_, up, down):
        return (0.4 * (squares(transform, up, down) / 0.4).exp().mean(1).log()).mean()

    check(objective, scores, labels, part)


@pytest.mark.parametrize("transform", ["sigmoid", "logit"])
def test_pauci_at_any_means_level_and_dual(transform):
    scores, labels = ranking(3)
    objective = auc.PAUCI(labels, max_fpr=0.3, temperature=0.2, margin=0.9, transform=transform).double()
    generator = torch.Generator().manual_seed(3)
    names = ("mean_positive", "mean_negative", "level", "dual")
    at = {name: torch.rand(4, dtype=torch.float64, generator=generator) for name in names}
    objective.load_state_dict(at)

    def part(k, up, down):
        a, b, level, dual = (at[name][k] for name in names)
        up, down = (probabilities(transform, z) for z in (up, down))
        excess = (down - b) ** 2 + 2 * dual * down - level
        hinge = 0.2 * torch.log1p((excess / 0.2).exp())
        of_positives = ((up - a) ** 2 - 2 * dual * up).mean()
        return of_positives + level + hinge.mean() / 0.3 + 2 * dual * 0.9 - dual**2

    check(objective, scores, labels, part)


def test_lagrangian_of_constrained_recall_and_the_step_of_its_multipliers():
    scores, labels = ranking(4)
    objective = auc.ConstrainedRecall(labels, fpr=0.13, temperature=0.6, lr_dual=0.5).double()
    dual = torch.tensor([0.2, 3.0, 1.0, 0.7], dtype=torch.float64)
    objective.dual.copy_(dual)

    def excess(down):
        return torch.sigmoid(down / 0.6).mean() / 0.13 - 1

    check(
        objective,
        scores,
        labels,
        lambda k, up, down: torch.log1p((-up).exp()).mean() + dual[k] * excess(down),
    )
    moved = [dual[k] + 0.5 * excess(scores[labels[:, k] == 0, k]) for k in range(3)]
    torch.testing.assert_close(objective.dual, torch.stack([*moved, dual[3]]).clamp(min=0))


@pytest.mark.parametrize("surrogate", ["logistic", "squared_hinge"])
def test_fpr_at_recall_through_the_threshold_of_the_positives(surrogate):
    scores, labels = ranking(5)
    objective = auc.FPRAtRecall(labels, recall=0.6, surrogate=surrogate, margin=MARGIN, tau1=0.7).double()
    positives = objective.tracked_positive

    def cut(up):  # the negated threshold
        return quantile(-up, 1 - 0.6, 0.7, positives.tau2)

    def part(_, up, down):
        short = MARGIN + down + cut(up)
        return (torch.log1p(short.exp()) if surrogate == "logistic" else short.clamp(min=0) ** 2).mean()

    for k in range(3):
        up = scores[labels[:, k] == 1, k]
        soft = torch.sigmoid((-up - cut(up)) / 0.7)
        positives.value[k, 0] = cut(up)
        positives.hessian[k, 0] = (soft * (1 - soft)).mean() / 0.7 + positives.tau2
    assert not math.isclose(float(positives.value[0, 0]), 0.0, abs_tol=0.1)
    check(objective, scores, labels, part)
