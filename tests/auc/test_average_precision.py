"""AveragePrecision: the gradient of the surrogate on all data, and what a batch has to do with it."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from objective_bank import estimate, make, make_data

VARIANTS = ["average-precision", "average-precision-logistic"]


def surrogate_of(objective, logits, labels):
    """One minus the soft precision at each positive, over index lists, mean over positives, then tasks."""
    losses = []
    for k in range(labels.shape[1]):
        known = labels[:, k] >= 0
        h, y = logits[known, k], labels[known, k] == 1
        if objective.transform == "recentered":
            h = torch.sigmoid(h - torch.log(y.sum() / (~y).sum()))
        short = objective.margin - h[y][:, None] + h
        loss = torch.log1p(short.exp()) if objective.surrogate == "logistic" else short.clamp(min=0) ** 2
        losses.append(1 - (loss[:, y].sum(1) / loss.sum(1)).mean())
    return float(torch.stack(losses).mean())


@pytest.mark.parametrize("name", [*VARIANTS, "reduced"])
def test_estimate_on_all_rows_is_the_gradient_of_the_surrogate(name):
    data = make_data(seed=3, rows=20, tasks=3)
    if name == "reduced":  # exact also after a step
        objective = auc.MSVRAveragePrecision(data.labels, data.model, transform="recentered").double()
        estimate(objective, data, data.dense())
        with torch.no_grad():
            for parameter in data.model.parameters():
                parameter += 0.3 * data.rand(*parameter.shape)
    else:
        objective = make(name, data, randomize=False)
    objective.shift_pull = 0.0
    ours, checked = estimate(objective, data, data.dense()), 0
    with torch.no_grad():
        for key, parameter in data.model.named_parameters():
            flat = parameter.view(-1)
            for i in range(0, len(flat), 2):
                old, values = float(flat[i]), []
                for step in (1e-5, -1e-5):
                    flat[i] = old + step
                    values.append(surrogate_of(objective, data.model(data.inputs), data.labels))
                flat[i] = old
                difference = (values[0] - values[1]) / 2e-5
                assert float(ours[key].view(-1)[i]) == pytest.approx(difference, abs=2e-8, rel=1e-6), (key, i)
                checked += 1
    assert checked > 15
    value = float(objective.eval().backward(data.model, data.dense())["loss"])
    assert value == pytest.approx(surrogate_of(objective, data.model(data.inputs).detach(), data.labels))


def test_tracked_shares_are_unbiased_although_a_batch_has_few_positives():
    """A positive's own pair counts as in all data, not as one of the two positives of a batch."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(400) < 40).long().unsqueeze(1)
    scores = torch.randn(400, 1, generator=generator, dtype=torch.float64)
    objective = auc.AveragePrecision(labels, beta=1.0).double()
    objective(scores, labels, rows=torch.arange(400))
    whole, found = objective.above.value.clone(), [[] for _ in range(40)]
    for _ in range(4000):
        rows = torch.randperm(400, generator=generator)[:20]  # with two positives
        objective(scores[rows], labels[rows], rows=rows)
        for row in rows[rows < 40].tolist():
            found[row].append(objective.above.value[row].clone())
    means = torch.stack([torch.stack(values).mean(0) for values in found])
    torch.testing.assert_close(means.mean(0), whole.mean(0), rtol=0.06, atol=0)


def test_equals_libauc_on_one_task_without_gaps():
    losses = pytest.importorskip("libauc.losses")
    generator = torch.Generator().manual_seed(1)
    labels = (torch.rand(40, 1, generator=generator) < 0.3).long()
    rows = torch.arange(40)
    for surrogate in ("squared_hinge", "logistic"):  # theirs has a scale in place of the margin: none here
        margin, scale = (0.7, 0.7) if surrogate == "squared_hinge" else (1e-12, 1.0)
        objective = auc.AveragePrecision(
            labels, surrogate=surrogate, margin=margin, transform="logit", beta=0.4
        ).double()
        objective.shift_pull = 0.0
        peer = losses.APLoss(data_len=40, gamma=1.0, margin=scale, surr_loss=surrogate, device="cpu")
        peer.u_all, peer.u_pos = peer.u_all.double(), peer.u_pos.double()
        for _ in range(3):
            scores = torch.randn(40, 1, generator=generator, dtype=torch.float64)
            mine, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
            objective(mine, labels, rows=rows).backward()
            peer(theirs, labels, rows).backward()
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-12)
            peer.gamma = 0.4  # it starts its averages at zero, so its first batch has to set them


def test_gradients_are_finite_where_nothing_is_above_a_positive():
    """With a margin near zero its own pair is next to nothing, and all that is in the denominator."""
    labels, scores = torch.tensor([[1], [1], [0]]), torch.tensor([[2.0], [2.0], [0.0]], requires_grad=True)
    auc.AveragePrecision(labels, margin=1e-12)(scores, labels, rows=torch.arange(3)).backward()
    assert bool(scores.grad.isfinite().all())


@pytest.mark.parametrize("options", [{"surrogate": "hinge"}, {"beta": 0.0}, {"margin": 0.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        auc.AveragePrecision(torch.tensor([[1], [0]]), **options)
