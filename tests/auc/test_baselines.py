"""The baselines against the textbook."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mmb import auc
from mmb.metrics import roc_auc
from mmb.models import mlp
from objective_bank import make_data


def full(tasks=4, rows=40):
    data = make_data(rows=rows, tasks=tasks)
    labels = data.labels.clamp(min=0)
    return data.model(data.inputs).detach(), labels


def test_cross_entropy_without_gaps_is_the_plain_mean():
    scores, labels = full()
    ours = auc.CrossEntropy(labels).double()(scores, labels)
    assert float(ours) == pytest.approx(
        float(functional.binary_cross_entropy_with_logits(scores, labels.double())), rel=1e-12
    )


def test_cross_entropy_with_gaps_is_the_mean_over_each_tasks_labels():
    data = make_data()
    scores = data.model(data.inputs).detach()
    means = []
    for k in range(data.num_tasks):
        there = data.labels[:, k] >= 0
        means.append(
            functional.binary_cross_entropy_with_logits(scores[there, k], data.labels[there, k].double())
        )
    ours = auc.CrossEntropy(data.labels).double()(scores, data.labels)
    assert float(ours) == pytest.approx(float(torch.stack(means).mean()), rel=1e-12)


def test_cross_entropy_is_the_same_function_for_balanced_draws():
    """Half positives, half negatives drawn: still the mean over the task's labels, not over the draw."""
    data = make_data(rows=60, tasks=1)
    scores, labels = data.model(data.inputs).detach()[:, 0], data.labels[:, 0]
    objective = auc.CrossEntropy(labels).double()
    up, down = (labels == 1).nonzero().flatten(), (labels == 0).nonzero().flatten()
    whole = torch.cat([up.repeat(3), down.repeat(2)])  # other proportions, the same class means
    drawn = objective(scores[None, whole], labels[None, whole], torch.tensor([0]))
    assert float(drawn) == pytest.approx(float(objective(scores, labels)), rel=1e-12)


def test_focal_without_focus_is_balanced_cross_entropy():
    scores, labels = full()
    ours = auc.Focal(labels, gamma=0.0, alpha=0.5).double()(scores, labels)
    plain = functional.binary_cross_entropy_with_logits(scores, labels.double())
    assert float(ours) == pytest.approx(0.5 * float(plain), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("sure", [1e4, -1e4])
def test_focal_survives_extreme_scores(gamma, sure):
    _, labels = full()
    scores = torch.where(labels == 1, sure, -sure).double().requires_grad_()
    loss = auc.Focal(labels, gamma=gamma).double()(scores, labels)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


def test_minibatch_is_the_pair_loss_with_the_top_negatives():
    data = make_data(rows=40, tasks=3)
    scores = data.model(data.inputs).detach().requires_grad_()
    objective = auc.MiniBatchPartialAUC(data.labels, max_fpr=0.25, margin=0.8).double()
    objective(scores, data.labels).backward()
    plain = scores.detach().clone().requires_grad_()
    parts = []
    for k in range(3):
        h = torch.sigmoid(plain[:, k])
        up, down = h[data.labels[:, k] == 1], h[data.labels[:, k] == 0].sort(descending=True).values
        share = 0.25 * len(down)
        weight = (share - torch.arange(len(down), dtype=torch.float64)).clamp(0, 1)
        parts.append((((0.8 - up[:, None] + down) ** 2).mean(0) * weight).sum() / share)
    torch.stack(parts).mean().backward()
    torch.testing.assert_close(scores.grad, plain.grad, atol=1e-12, rtol=0)


def test_minibatch_share_falls_from_all_negatives_with_every_visit():
    data = make_data(rows=40, tasks=3)
    scores = data.model(data.inputs).detach()
    objective = auc.MiniBatchPartialAUC(data.labels, max_fpr=0.25, anneal=4).double()
    tasks = torch.tensor([2, 0])
    for visit in range(6):
        share = max(0.25 ** (visit / 4), 0.25)
        assert objective.current_share.tolist() == pytest.approx([share, 1.0, share], rel=1e-6)
        fixed = auc.MiniBatchPartialAUC(data.labels, max_fpr=share).double()
        sampled = scores.T[tasks], data.labels.T[tasks], tasks
        before = objective.eval()(*sampled)
        assert before == objective.train()(*sampled)
        torch.testing.assert_close(before, fixed(*sampled), rtol=1e-6, atol=0)
    assert auc.MiniBatchPartialAUC(data.labels).state_dict() == {}
    again = auc.MiniBatchPartialAUC(data.labels, max_fpr=0.25, anneal=4).double()
    again.load_state_dict(objective.state_dict())
    assert torch.equal(again.current_share, objective.current_share)
    with pytest.raises(ValueError, match="anneal"):
        auc.MiniBatchPartialAUC(data.labels, anneal=-1)


@pytest.mark.parametrize(
    ("objective", "name", "value"),
    [
        (auc.PairwisePartialAUC, "margin", float("nan")),
        (auc.PairwisePartialAUC, "capacity", float("nan")),
        (auc.PairwisePartialAUC, "capacity", 8.0),
        (auc.Focal, "gamma", float("nan")),
        (auc.MiniBatchPartialAUC, "anneal", float("nan")),
    ],
)
def test_values_that_are_not_numbers_are_refused(objective, name, value):
    with pytest.raises(ValueError, match=f"{name}.* got {value}"):
        objective(torch.tensor([0, 1, 1]), **{name: value})


def test_annealing_keeps_minibatch_from_giving_all_rows_the_same_score():
    """Half of each score is noise: with the top tenth from the start scores stay together."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1500, 60, generator=generator)
    signal = inputs @ torch.randn(60, 20, generator=generator) / 60**0.5
    noisy = signal + torch.randn(1500, 20, generator=generator)
    labels = (noisy > 1.2 * noisy.std()).to(torch.int8)
    spread, areas = [], []
    for anneal in (0, 150):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = mlp(60, [32], 20)
        objective = auc.MiniBatchPartialAUC(labels[:1000], anneal=anneal)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        rows = torch.Generator().manual_seed(1)
        for _ in range(150):
            chosen = torch.randint(1000, (64,), generator=rows)
            optimizer.zero_grad()
            objective.backward(model, auc.DenseBatch(inputs[chosen], labels[chosen]))
            optimizer.step()
        with torch.no_grad():
            scores = model(inputs[1000:])
        spread.append(float(scores.std(0).mean()))
        areas.append(float(roc_auc(scores, labels[1000:]).mean()))
    assert spread[1] > 3 * spread[0]
    assert areas[1] > areas[0] + 0.03


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


@pytest.mark.parametrize("make", [auc.MiniBatchPartialAUC, auc.SOPA, auc.SOPAs])
def test_recentered_scores_are_those_of_logits_less_the_log_odds(make):
    data = make_data(rows=30)
    logits, rows = data.model(data.inputs).detach(), torch.arange(30)
    plain, recentered = (make(data.labels, transform=scores).double() for scores in ("sigmoid", "recentered"))
    positives, negatives = (data.labels == 1).sum(0), (data.labels == 0).sum(0)
    shifted = (logits + (positives / negatives).log()).requires_grad_()
    logits.requires_grad_()
    plain(logits, data.labels, rows=rows).backward()
    recentered(shifted, data.labels, rows=rows).backward()
    torch.testing.assert_close(shifted.grad, logits.grad)
    assert float(logits.grad.abs().max()) > 0


def test_sopas_passes_nan_on():
    labels = torch.tensor([[1], [0], [0]])
    loss = auc.SOPAs(labels)(torch.full((3, 1), torch.nan), labels, rows=torch.arange(3))
    assert loss.isnan()  # a loss of zero would hide it


@pytest.mark.parametrize("margin", [0.0, -1.0])
@pytest.mark.parametrize(
    "make", [auc.MinMaxAUC, auc.PartialAUC, auc.MiniBatchPartialAUC, auc.SOPA, auc.SOPAs]
)
def test_margins_that_rank_the_wrong_way_are_refused(make, margin):
    with pytest.raises(ValueError, match=f"margin.*positive.*{margin}"):
        make(torch.tensor([[1], [0]]), margin=margin)


def test_pairs_may_do_without_a_margin_where_the_loss_never_ends():
    labels = torch.tensor([[1], [0]])
    assert auc.PairwisePartialAUC(labels, margin=0.0).margin == 0
    for options in ({"margin": -1.0}, {"margin": 0.0, "surrogate": "squared_hinge"}):
        with pytest.raises(ValueError, match=r"margin.*logistic"):
            auc.PairwisePartialAUC(labels, **options)


def test_unknown_scores_are_named():
    with pytest.raises(ValueError, match=r"transform.*recentered.*softmax"):
        auc.SOPAs(torch.tensor([[1], [0]]), transform="softmax")
