"""SOPA and SOPAs: their variables per positive."""

from __future__ import annotations

import pytest
import torch

from mmb import auc
from objective_bank import make_data


@pytest.mark.parametrize("make", [auc.SOPA, auc.SOPAs])
def test_one_variable_per_positive_and_no_more(make):
    labels = torch.zeros(500, 40, dtype=torch.int8)
    labels[torch.arange(40), torch.arange(40)] = 1
    labels[100:103, 7] = 1
    objective = make(labels)
    assert sum(v.numel() for v in objective.state_dict().values()) == 43


@pytest.mark.parametrize("make", [auc.SOPA, auc.SOPAs])
def test_scores_may_be_of_a_higher_precision_than_the_variables(make):
    labels = (torch.arange(12).reshape(6, 2) % 3 == 0).float()
    scores = torch.linspace(-1, 1, 12).reshape(6, 2)
    values = []
    for dtype in (torch.float32, torch.float64):
        objective = make(labels)
        for _ in range(2):  # the second meets what the first stored
            loss = objective(scores.to(dtype), labels, rows=torch.arange(6))
        assert loss.dtype == dtype
        values.append(loss.double())
    torch.testing.assert_close(*values, rtol=1e-5, atol=1e-6)


def test_sopa_variables_settle_at_the_quantile_of_the_pair_losses():
    data = make_data(rows=60, tasks=1)
    scores = data.model(data.inputs).detach()
    rows = torch.arange(60)
    objective = auc.SOPA(data.labels, max_fpr=0.3).double()
    for rate, steps in ((0.05, 100), (0.01, 100), (0.002, 200)):
        objective.lr_positive = rate
        for _ in range(steps):
            objective(scores, data.labels, rows=rows)
    h = torch.sigmoid(scores[:, 0])
    up, down = h[data.labels[:, 0] == 1], h[data.labels[:, 0] == 0]
    losses = (1 - up[:, None] + down) ** 2
    above = (losses > objective.level.value[:, None] + 0.01).double().mean(1)
    below = (losses > objective.level.value[:, None] - 0.01).double().mean(1)
    assert bool(((above <= 0.3) & (below >= 0.3)).all())


def test_sopas_first_visit_sets_and_later_ones_average():
    data = make_data(rows=30, tasks=1)
    scores, rows = data.model(data.inputs).detach(), torch.arange(30)
    objective = auc.SOPAs(data.labels, temperature=0.4, beta=0.25).double()

    def inner(scores):
        h = torch.sigmoid(scores[:, 0])
        up, down = h[data.labels[:, 0] == 1], h[data.labels[:, 0] == 0]
        return (((1 - up[:, None] + down) ** 2) / 0.4).exp().mean(1)

    objective(scores, data.labels, rows=rows)
    torch.testing.assert_close(objective.log_mean.value.exp(), inner(scores))
    objective(scores + 0.3 * scores**2, data.labels, rows=rows)
    expected = 0.75 * inner(scores) + 0.25 * inner(scores + 0.3 * scores**2)
    torch.testing.assert_close(objective.log_mean.value.exp(), expected)


def test_sopas_does_not_overflow():
    labels = torch.tensor([[1], [0], [0]])
    scores = torch.tensor([[-60.0], [60.0], [-60.0]], requires_grad=True)
    objective = auc.SOPAs(labels, temperature=0.01, transform="logit")
    loss = objective(scores, labels, rows=torch.arange(3))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
    assert float(loss.detach()) == pytest.approx(121.0**2, rel=1e-3)  # the worst pair alone


@pytest.mark.parametrize("name", ["SOPA", "SOPAs"])
def test_equals_libauc_on_one_task_without_gaps(name):
    losses = pytest.importorskip("libauc.losses.auc")
    generator = torch.Generator().manual_seed(1)
    labels = (torch.arange(40) < 12).long().unsqueeze(1)  # so that positives have the numbers of their rows
    options = {"margin": 0.8, "transform": "logit"}
    if name == "SOPA":
        objective = auc.SOPA(labels, max_fpr=0.3, lr_positive=0.2, **options).double()
        peer = losses.pAUC_CVaR_Loss(40, 12, margin=0.8, beta=0.3, eta=0.2, device="cpu")
    else:
        objective = auc.SOPAs(labels, temperature=0.7, beta=0.4, **options).double()
        peer = losses.pAUC_DRO_Loss(40, gamma=1.0, margin=0.8, Lambda=0.7, device="cpu")
    objective.shift_pull = 0.0
    peer.u_pos = peer.u_pos.double()
    for _ in range(4):
        scores = torch.randn(40, 1, generator=generator, dtype=torch.float64)
        mine, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        objective(mine, labels, rows=torch.arange(40)).backward()
        peer(theirs, labels, torch.arange(40)).backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-12)
        peer.gamma = 0.4  # it starts its averages at zero, so its first batch has to set them
    own = objective.level.value if name == "SOPA" else objective.log_mean.value.exp()
    torch.testing.assert_close(own, peer.u_pos[:12, 0], rtol=1e-6, atol=1e-7)
