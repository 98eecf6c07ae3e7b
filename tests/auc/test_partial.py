"""PartialAUC and PairwisePartialAUC beyond what all objectives share: thresholds, warm start, ranges."""

from __future__ import annotations

import pytest
import torch

from exact_blocks import settle
from mmb import auc
from objective_bank import estimate, make_data, state


def printed_loss(objective, logits, labels):
    """G as the paper prints it, with its stop-gradients: its autograd gradient is the estimate."""
    threshold, parts = objective.tracked, []
    rate = float(threshold.rates[0])
    for k in range(labels.shape[1]):
        up = torch.sigmoid(logits[labels[:, k] == 1, k])
        down = torch.sigmoid(logits[labels[:, k] == 0, k])
        cut, hessian, alpha = threshold.value[k, 0], threshold.hessian[k, 0], objective.dual[k]
        a, b = objective.mean_positive[k], objective.mean_negative[k]
        phi = torch.sigmoid((down - cut) / threshold.temperature).detach()
        slope = phi * (1 - phi) / threshold.temperature
        quantile = torch.sigmoid((down - cut) / threshold.tau1).mean() / hessian
        through = slope * (down - quantile) if objective.gradient == "full" else torch.zeros_like(down)
        parts.append(
            ((up - a) ** 2).mean()
            + (phi * (down - b) ** 2).mean() / rate
            + (through * ((down - b) ** 2).detach()).mean() / rate
            + 2 * alpha * ((phi * down).mean() / rate + (through * down.detach()).mean() / rate - up.mean())
        )
    return torch.stack(parts).mean()


@pytest.mark.parametrize("gradient", ["full", "practical"])
def test_equals_the_printed_loss_at_exact_thresholds(gradient):
    data = make_data(rows=16, tasks=3)
    objective = auc.PartialAUC(data.labels, max_fpr=0.3, gradient=gradient, tau2=1e-9).double()
    torch.nn.init.uniform_(objective.mean_positive, generator=data.generator)
    torch.nn.init.uniform_(objective.mean_negative, generator=data.generator)
    settle(objective, data)
    ours = estimate(objective.eval(), data, data.dense())
    data.model.zero_grad()
    objective.zero_grad()
    printed_loss(objective, data.model(data.inputs), data.labels).backward()
    for key, parameter in [*data.model.named_parameters(), *objective.named_parameters()]:
        torch.testing.assert_close(ours[key], parameter.grad, atol=1e-7, rtol=0)


@pytest.mark.parametrize("make", [auc.PartialAUC, auc.PairwisePartialAUC])
@pytest.mark.parametrize(
    "bad",
    [
        {"max_fpr": 0.0},
        {"max_fpr": 1.1},
        {"max_fpr": -0.1},
        {"min_fpr": -0.1},
        {"max_fpr": 0.2, "min_fpr": 0.2},
        {"tau1": 0.0},
        {"tau2": -1.0},
        {"beta": 0.0},
        {"beta": 1.5},
        {"temperature": 0.0},
        {"lr_threshold": 0.0},
        {"gradient": "half"},
    ],
)
def test_arguments_out_of_range_are_refused(make, bad):
    with pytest.raises(ValueError, match=list(bad)[-1]):
        make(make_data().labels, **bad)


def negatives_of(scores, labels, k):
    return scores[labels[:, k] == 0, k]


def scored(rows=4000, tasks=3, seed=5):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(rows, tasks, generator=generator) < 0.1).to(torch.int8)
    labels[torch.rand(rows, tasks, generator=generator) < 0.2] = -1
    return torch.randn(rows, tasks, generator=generator) * 1.5 - 2 + 2 * (labels == 1), labels


@pytest.mark.parametrize("scores", ["sigmoid", "logit", "recentered"])
def test_warm_start(scores):
    logits, labels = scored()
    objective = auc.PartialAUC(labels, max_fpr=0.2, min_fpr=0.05, transform=scores)
    objective.warm_start(logits, labels)
    for k in range(3):
        z = negatives_of(torch.sigmoid(logits) if scores == "sigmoid" else logits, labels, k)
        for t, rate in enumerate((0.2, 0.05)):
            above = float((z > objective.tracked.value[k, t]).float().mean())
            assert above == pytest.approx(rate, abs=1 / len(z))
        center = objective.log_odds()[k] if scores == "recentered" else 0
        h = logits[:, k] if scores == "logit" else torch.sigmoid(logits[:, k] - center)
        up, down = h[labels[:, k] == 1], h[labels[:, k] == 0]
        low, high = objective.tracked.value[k]
        chosen = torch.sigmoid((z - low) / objective.tracked.temperature)
        chosen = chosen - torch.sigmoid((z - high) / objective.tracked.temperature)
        top = (chosen * down).sum() / chosen.sum()
        assert objective.mean_positive[k].item() == pytest.approx(float(up.mean()), abs=1e-5)
        assert objective.mean_negative[k].item() == pytest.approx(float(top), abs=1e-5)
        assert float(objective.dual[k]) == pytest.approx(float(1 + top - up.mean()), abs=1e-5)


def test_warm_start_of_minmax():
    logits, labels = scored()
    objective = auc.MinMaxAUC(labels, margin=0.5)
    objective.warm_start(logits, labels)
    h = torch.sigmoid(logits)
    for k in range(3):
        a, b = h[labels[:, k] == 1, k].mean(), h[labels[:, k] == 0, k].mean()
        assert objective.mean_positive[k].item() == pytest.approx(float(a), abs=1e-6)
        assert objective.mean_negative[k].item() == pytest.approx(float(b), abs=1e-6)
        assert float(objective.dual[k]) == pytest.approx(max(0.0, float(0.5 + b - a)), abs=1e-6)


@pytest.mark.parametrize("make", [auc.MinMaxAUC, auc.PartialAUC])
@pytest.mark.parametrize("lacking", [0, 1])
def test_warm_start_takes_a_class_without_rows_to_be_like_the_other(make, lacking):
    """A rare class may have no rows here; its mean must not stay far from all scores."""
    logits, labels = scored()
    objective, whole = make(labels, transform="logit"), make(labels, transform="logit")
    here = labels.clone()
    here[here[:, 1] == lacking, 1] = -1
    objective.warm_start(logits - 6, here)
    whole.warm_start(logits - 6, labels)
    assert objective.mean_positive[1] == objective.mean_negative[1]
    assert objective.dual[1] == objective.margin
    assert objective.mean_positive[1] < -3
    for name in ("mean_positive", "mean_negative", "dual"):
        torch.testing.assert_close(getattr(objective, name)[::2], getattr(whole, name)[::2])


@pytest.mark.parametrize("make", [auc.MinMaxAUC, auc.PartialAUC, auc.PairwisePartialAUC])
def test_warm_start_leaves_tasks_without_labels_alone(make):
    logits, labels = scored()
    objective = make(labels)
    here = labels.clone()
    here[:, 1] = -1
    before = state(objective)
    objective.warm_start(logits, here)
    after = state(objective)
    for key, value in before.items():
        assert torch.equal(after[key][1], value[1]), key
        assert not torch.equal(after[key][0], value[0]), key
        assert after[key].isfinite().all()
    assert after["anchored.weight"].tolist() == [objective.anchor, 0, objective.anchor]


@pytest.mark.parametrize(
    "objective",
    [
        lambda y: auc.PartialAUC(y, max_fpr=0.1, tau1=0.01),
        lambda y: auc.PartialAUC(y, max_fpr=0.1, transform="recentered", tau1=0.1),
        lambda y: auc.PairwisePartialAUC(y, max_fpr=0.1, tau1=0.1),
        lambda y: auc.PartialAUC(y, max_fpr=0.1),  # at the default smoothing, too
        lambda y: auc.PartialAUC(y, max_fpr=0.1, transform="recentered"),
        lambda y: auc.PairwisePartialAUC(y, max_fpr=0.1),
    ],
)
def test_thresholds_are_tracked_to_the_rate(objective):
    """From a cold start, on batches of fixed scores: compare with the model's output and be at the rate."""
    logits, labels = scored()
    tracked = objective(labels)
    generator = torch.Generator().manual_seed(1)
    for step in range(400):
        rows = torch.randint(0, len(logits), (256,), generator=generator)
        tracked(logits[rows], labels[rows])
        if step == 250:
            tracked.tracked.lr /= 10
    exact = tracked.thresholds(logits, labels)
    with pytest.raises(ValueError, match=r"scores.*labels"):
        tracked.thresholds(logits)
    for k in range(3):
        z = negatives_of(logits, labels, k)
        assert float((z > exact[k]).float().mean()) == pytest.approx(0.1, abs=1 / len(z))
        assert float((z > tracked.thresholds()[k]).float().mean()) == pytest.approx(0.1, abs=0.02)


def test_range_of_rates_looks_only_at_its_negatives():
    """With sharp selection, the loss of [lo, hi] is the pair loss with the negatives ranked in between."""
    logits, labels = scored(rows=2000, tasks=1)
    objective = auc.PairwisePartialAUC(
        labels, max_fpr=0.5, min_fpr=0.2, tau1=1e-3, temperature=1e-3, unit=1.0
    )
    objective.warm_start(logits, labels)
    up = logits[labels[:, 0] == 1, 0].double()
    down = negatives_of(logits, labels, 0).double().sort(descending=True).values
    down = down[round(0.2 * len(down)) : round(0.5 * len(down))]
    expected = torch.nn.functional.softplus(1 - up[:, None] + down).mean()
    assert float(objective.eval()(logits, labels)) == pytest.approx(float(expected), rel=2e-3)


def test_capacity_changes_nothing_while_it_suffices():
    data = make_data()
    batch = data.dense()
    free, capped, tight = (
        auc.PairwisePartialAUC(data.labels, gradient="full", capacity=c).double() for c in (None, 200, 5)
    )
    ours, theirs = estimate(free, data, batch), estimate(capped, data, batch)
    for key, value in ours.items():
        torch.testing.assert_close(value, theirs[key], atol=1e-12, rtol=0)
    assert all(v.isfinite().all() for v in estimate(tight, data, batch).values())
    reserved = auc.PairwisePartialAUC(data.labels, gradient="full")
    reserved.reserve(300)
    capped.reserve(300)
    assert (reserved.capacity, capped.capacity) == (300, 200)  # a capacity that was given stays
