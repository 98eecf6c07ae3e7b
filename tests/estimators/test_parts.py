"""The small parts of the estimator, by closed forms and beside scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from mmb.auc import PartialAUC
from mmb.estimators.calibration import Calibration, fit_log_odds, fpr_thresholds, spread_as_averaged
from mmb.estimators.encoding import Periodic, PiecewiseLinear
from mmb.estimators.ensemble import CrossFit, _has_gained
from mmb.estimators.folds import assign_folds
from mmb.estimators.inputs import Standardiser
from mmb.estimators.model_mix import Kinds, _Dropout


def draw(rows=2000, tasks=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, tasks, generator=generator, dtype=torch.float64)
    slope, offset = torch.tensor([0.5, 2.0, 1.0]), torch.tensor([-3.0, 0.0, -1.0])
    chance = (slope * scores + offset).sigmoid()
    labels = (torch.rand(rows, tasks, generator=generator) < chance).to(torch.int8)
    labels[torch.rand(rows, tasks, generator=generator) < 0.2] = -1
    return scores, labels, slope, offset


def test_log_odds_are_those_of_logistic_regression():
    scores, labels, slope, offset = draw()
    (a,), b = fit_log_odds(scores.unsqueeze(1), labels, torch.ones(len(scores)))
    torch.testing.assert_close(a, slope.double(), rtol=0.2, atol=0.1)
    torch.testing.assert_close(b, offset.double(), rtol=0.2, atol=0.2)
    for k in range(3):
        there = labels[:, k] >= 0
        reference = LogisticRegression(C=np.inf).fit(scores[there, k : k + 1], labels[there, k])
        assert float(a[k]) == pytest.approx(reference.coef_[0, 0], abs=0.03)
        assert float(b[k]) == pytest.approx(reference.intercept_[0], abs=0.03)


def test_log_odds_weigh_rows():
    scores, labels, _, _ = draw(300)
    times = torch.randint(1, 4, (300,), generator=torch.Generator().manual_seed(1))
    weighted = fit_log_odds(scores.unsqueeze(1), labels, times.double())
    rows = torch.arange(300).repeat_interleave(times)
    repeated = fit_log_odds(scores[rows].unsqueeze(1), labels[rows], torch.ones(len(rows)))
    for one, other in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_log_odds_exist_where_classes_are_separate_or_absent():
    scores = torch.tensor([[-2.0, 1.0, 3.0], [-1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [2.0, 4.0, 3.0]])
    labels = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]], dtype=torch.int8)
    (a,), b = fit_log_odds(scores.unsqueeze(1), labels, torch.ones(4))
    assert bool((a > 0).all())
    chance = (a * scores + b).sigmoid()
    assert bool((chance[:2, 0] < 0.5).all())
    assert bool((chance[2:, 0] > 0.5).all())
    assert float(chance[:, 1].max()) < 0.5  # four negatives and no positive
    torch.testing.assert_close(chance[:, 2], torch.full((4,), 0.5, dtype=torch.float64), atol=1e-3, rtol=0)


@pytest.mark.parametrize("max_fpr", [0.05, 0.1, 0.29, 1.0])
def test_thresholds_are_those_of_the_objective(max_fpr):
    scores, labels, _, _ = draw(500)
    found = fpr_thresholds(scores, labels, torch.ones(500), max_fpr)
    torch.testing.assert_close(found, PartialAUC(labels, max_fpr=max_fpr).thresholds(scores, labels))


def test_thresholds_weigh_rows():
    scores, labels, _, _ = draw(300)
    times = torch.randint(1, 4, (300,), generator=torch.Generator().manual_seed(1))
    rows = torch.arange(300).repeat_interleave(times)
    weighted = fpr_thresholds(scores, labels, times.float(), 0.1)
    torch.testing.assert_close(
        weighted, fpr_thresholds(scores[rows], labels[rows], torch.ones(len(rows)), 0.1)
    )


def test_calibration_keeps_what_rows_do_not_tell():
    scores, labels, _, _ = draw(300)
    calibration, mass = Calibration(3), torch.ones(2, 3, dtype=torch.float64)
    calibration.fit(scores, scores, labels, torch.ones(300), 0.1, mass)
    slope, cut = calibration.slope.clone(), calibration.cut.clone()
    labels[:, 0] = torch.where(labels[:, 0] == 1, -1, labels[:, 0])  # no positives
    labels[:, 1] = -1
    calibration.fit(scores[:50], scores[:50], labels[:50], torch.ones(50), 0.1, mass)
    assert torch.equal(calibration.slope[:2], slope[:2])
    assert calibration.cut[0] != cut[0]
    assert calibration.cut[1] == cut[1]
    assert calibration.slope[2] != slope[2]


def test_scores_are_spread_as_those_of_an_average():
    """Networks that add noise to a common score: thresholds by one are right for the mean of four."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(20_000, 2, generator=generator) < 0.2).to(torch.int8)
    common = torch.randn(20_000, 2, generator=generator, dtype=torch.float64) + 2 * labels
    noise = torch.randn(4, 20_000, 2, generator=generator, dtype=torch.float64)
    noise[..., 1] *= 0.2
    networks = common + noise
    fold = torch.zeros(20_000, dtype=torch.int64)
    found = spread_as_averaged(networks, fold, labels, torch.ones(20_000))
    for value in (0, 1):
        there = labels == value
        for task in range(2):
            one, mean = found[there[:, task], task], networks.mean(0)[there[:, task], task]
            assert float(one.std()) == pytest.approx(float(mean.std()), rel=0.03)
            assert float(one.mean()) == pytest.approx(float(mean.mean()), abs=0.03)
    cut = fpr_thresholds(found, labels, torch.ones(20_000), 0.1)
    rate = ((networks.mean(0) > cut) & (labels == 0)).sum(0) / (labels == 0).sum(0)
    torch.testing.assert_close(rate, torch.full((2,), 0.1), atol=0.01, rtol=0)
    alone = fpr_thresholds(networks[0], labels, torch.ones(20_000), 0.1)
    assert float((networks.mean(0)[:, 0] > alone[0])[labels[:, 0] == 0].double().mean()) < 0.08


def test_scores_for_probabilities_stay_where_all_of_them_is_chance():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(100) % 2).to(torch.int8).unsqueeze(1)
    networks = torch.randn(4, 100, 1, generator=generator, dtype=torch.float64)
    fold, own = torch.arange(100) % 4, torch.randn(100, 1, generator=generator, dtype=torch.float64) / 2
    found = spread_as_averaged(networks, fold, labels, torch.ones(100), own)
    torch.testing.assert_close(found, own)
    steady = own + 0.1 * networks  # nearly all of it known
    both = [spread_as_averaged(steady, fold, labels, torch.ones(100), h) for h in (None, own)]
    assert 0.9 < float(both[1].std() / own.std()) < 1
    assert float(both[0].std()) == pytest.approx(float(both[1].std()), rel=0.05)


def test_what_networks_know_by_heart_hardly_moves_scores():
    """Networks put rows they were trained on elsewhere, all the same way: thresholds stay about right."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.zeros(20_000, 1, dtype=torch.int8)
    fold = torch.arange(20_000) % 4
    common, heart = torch.randn(2, 20_000, 1, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.randn(4, 20_000, 1, generator=generator, dtype=torch.float64)
    knew = (fold != torch.arange(4).unsqueeze(1)).unsqueeze(2)
    networks = common + noise + knew * heart
    found = spread_as_averaged(networks, fold, labels, torch.ones(20_000))
    cut = fpr_thresholds(found, labels, torch.ones(20_000), 0.1)
    assert float((common + noise.mean(0) > cut).double().mean()) == pytest.approx(0.1, abs=0.03)


def test_every_fold_has_its_share_of_every_task():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([0.3, 0.1, 0.02])
    labels = (torch.rand(2000, 3, generator=generator) < rates).to(torch.int8)
    fold = assign_folds(labels, 4, generator)
    assert fold.bincount().tolist() == [500] * 4
    for number in range(4):
        shares = (labels[fold == number] == 1).sum(0) / (labels == 1).sum(0)
        torch.testing.assert_close(shares, torch.full((3,), 0.25), atol=0.05, rtol=0)


def test_no_network_goes_without_a_class():
    labels = torch.zeros(50, 3, dtype=torch.int8)
    labels[7, 0] = 1  # one positive
    labels[:, 1], labels[9, 1] = 1, 0  # one negative
    labels[:5, 2] = 1
    for seed in range(20):
        fold = assign_folds(labels, 3, torch.Generator().manual_seed(seed))
        assert fold[7] == fold[9] == -1
        assert (fold >= 0).sum() == 48


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ([0.1, 0.1, 0.1], True),
        ([0.3, -0.1, 0.1], False),  # mean 0.1, standard error 0.115
        ([0.4, 0.0, 0.1], True),  # mean 0.167, standard error 0.12
        ([0.2, -0.2, 0.1], False),
        ([-0.1, -0.1, -0.1], False),
        ([math.nan, 0.1, math.nan], True),
        ([math.nan, -0.1, math.nan], False),
        ([math.nan, math.nan], True),
    ],
)
def test_a_gain_has_to_be_more_than_noise(gains, kept):
    assert _has_gained(torch.tensor(gains)) == kept


def test_one_network_goes_without_a_quarter_of_the_rows():
    labels = (torch.arange(24) % 2).to(torch.int8).unsqueeze(1)
    out = assign_folds(labels, 1, torch.Generator()) == 0
    assert labels[out].sum() == (labels[out] == 0).sum() == 3
    labels[1:] = 0  # the only positive, and so nothing to calibrate by
    labels[0] = 1
    fold = assign_folds(labels, 1, torch.Generator())
    assert fold[0] == -1


def test_one_network_is_calibrated_by_the_rows_held_out_where_they_have_both_classes():
    labels = torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]], dtype=torch.int8)
    fold = torch.tensor([0, 0, -1, -1])
    found = CrossFit(0, torch.zeros(1), torch.zeros(1, 2), torch.zeros(1, 4, 2), torch.zeros(4, 2), fold)
    assert found.told(labels).tolist() == [[0, 1], [1, 1], [-1, 0], [-1, 0]]
    assert found._replace(logits=torch.zeros(2, 4, 2)).told(labels) is labels


def test_calibration_of_a_task_starts_with_its_second_class():
    """Constant while there is one class; what came before does not count after."""
    scores, labels, _, _ = draw(100, 3)
    calibration, zero, one = Calibration(3), torch.zeros_like(labels), torch.ones_like(labels)
    mass = torch.tensor([[100.0] * 3, [0.0] * 3], dtype=torch.float64)
    calibration.fit(scores, scores, zero, torch.ones(100), 0.1, mass)
    assert calibration(scores).unique().tolist() == pytest.approx([math.log(0.5 / 100.5)])
    calibration.fit(scores, scores, one, torch.ones(100), 0.1, mass + 1)
    assert torch.equal(calibration(scores), scores)


def test_kinds_are_weighed_by_what_they_tell():
    """Of noise and two halves of what there is to know, the halves get all; scale is no matter."""
    scores, labels, _, _ = draw(4000)
    generator = torch.Generator().manual_seed(1)
    noise, split = torch.randn(2, *scores.shape, generator=generator, dtype=torch.float64)
    kinds = torch.stack([0.1 * noise, scores + split, 100 * (scores - split)], 1)
    slope, offset = fit_log_odds(kinds, labels, torch.ones(4000))
    share = slope * kinds.std(0)
    share = share / share.sum(0)
    assert bool((share[0] < 0.2).all())
    torch.testing.assert_close(share[1], share[2], atol=0.2, rtol=0)
    (alone,), base = fit_log_odds(scores.unsqueeze(1), labels, torch.ones(4000))
    blended = (slope * kinds).sum(1) + offset
    assert float((blended - (alone * scores + base)).abs().mean()) < 0.3
    # of no rows, what was before, or equal shares
    nothing = torch.zeros(4000)
    kept, _ = fit_log_odds(kinds, labels, nothing, slope)
    torch.testing.assert_close(kept / kept.sum(0), slope / slope.sum(0))
    equal, _ = fit_log_odds(kinds, labels, nothing)
    torch.testing.assert_close(equal * kinds.std(0, correction=0), torch.full((3, 3), 1 / 3).double())


def test_encoding_is_how_far_a_value_lies_through_each_range():
    values = torch.arange(17.0)  # quantiles at 0, 2, 4, ..., 16
    encoding = PiecewiseLinear(values.unsqueeze(1))
    ranges = ((values.unsqueeze(1) - torch.arange(0.0, 16, 2)) / 2).clamp(0, 1)
    expected = (ranges - ranges.mean(0)) / ranges.std(0, correction=0)
    torch.testing.assert_close(encoding(values.unsqueeze(1)), torch.cat([values.unsqueeze(1), expected], 1))


def test_encoding_leaves_columns_alone_that_are_flat_or_have_two_values():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randn(500, generator=generator), torch.zeros(500), (torch.arange(500) % 5 == 0).float()]
    encoding = PiecewiseLinear(torch.stack(columns, 1))
    assert encoding.columns.unique().tolist() == [0]
    assert encoding(torch.stack(columns, 1)).shape == (500, encoding.num_outputs) == (500, 3 + 8)
    assert len(PiecewiseLinear(torch.randn(20, 3000, generator=generator)).columns) == 0  # too many to encode


def test_waves_are_cosines_of_their_column():
    torch.manual_seed(0)
    periodic = Periodic(3, torch.tensor([0, 2]))
    x = torch.randn(5, 3)
    found = periodic(x)
    assert found.shape == (5, periodic.num_outputs) == (5, 3 + 2 * 4)
    waves = torch.cos(x[:, 2:] * periodic.frequency[1] + periodic.phase[1])
    torch.testing.assert_close(found[:, 7:], waves @ periodic.weight[1] + periodic.bias[1])


@pytest.mark.parametrize(("hidden", "bits", "kinds"), [((8, 4), False, 5), ((8, 4), True, 2), ((), False, 1)])
def test_kinds_stand_side_by_side(hidden, bits, kinds):
    """Each is a model of its own: the loss of one leaves the others alone."""
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    x = (x > 0).float() if bits else x
    model = Kinds(3, hidden, 2, 0.5, PiecewiseLinear(x)).eval()
    assert len(model.models) == len(model.penalties) == kinds
    assert model(x).shape == (50, kinds * 2)
    for kind in range(kinds):
        model.zero_grad()
        model(x)[:, 2 * kind : 2 * kind + 2].sum().backward()
        touched = [
            any(p.grad is not None and bool(p.grad.any()) for p in m.parameters()) for m in model.models
        ]
        assert touched == [other == kind for other in range(kinds)]


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = torch.ones(400, 251)
    layer = _Dropout(0.25)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = layer(x)
    assert found.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((found == 0).double().mean()) == pytest.approx(0.25, abs=0.005)
    assert layer.eval()(x) is x


@pytest.mark.parametrize("outlier", [1e3, 1e8, 1e12, -999999999.0])
def test_one_cell_far_out_leaves_the_others_as_they_were(outlier):
    column = np.random.default_rng(0).normal(size=(500, 1))
    spoilt = np.concatenate([column, [[outlier]]])
    inputs = []
    for rows in (column, spoilt):
        standardise = Standardiser(sparse=False)
        standardise.learn(rows, np.ones(len(rows)))
        inputs.append(standardise(rows, torch.float64))
    assert float(np.corrcoef(inputs[0][:, 0], inputs[1][:500, 0])[0, 1]) > 0.999
    assert 0.5 < float(inputs[1][:500].std()) < 2


def test_cells_out_of_reach_stay_at_their_end():
    standardise = Standardiser(sparse=False)
    standardise.learn(np.linspace(-1, 1, 50).reshape(-1, 1), np.ones(50))
    found = standardise(np.array([[-1e300], [-1e160], [0.0], [1e160], [1e300]]), torch.float64)
    torch.testing.assert_close(found[:, 0], torch.tensor([-4.0, -4, 0, 4, 4], dtype=torch.float64))
