"""Averages of weights: closed forms, what is picked, and what does not belong together."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

import mmb
from mmb import auc, metrics, soup
from mmb.models import freeze_batch_norm, mlp, resnet18
from objective_bank import OBJECTIVES, STATELESS


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def linear():
    """Three linear models, too small for their directions to tell where they come from."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [nn.Linear(4, 2) for _ in range(3)]


def branches(start, count, size=0.05, seed=0):
    """Copies of a model, moved at random."""
    generator = seeded(seed)
    models = [copy.deepcopy(start) for _ in range(count)]
    with torch.no_grad():
        for model in models:
            for weight in model.parameters():
                weight += size * torch.randn(weight.shape, generator=generator)
    return models


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return mlp(8, [16], 3)


def normalized(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2)
        return nn.Sequential(*layers)


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# -- The average ---------------------------------------------------------------------------------------------


def test_the_average_of_linear_models_is_linear_in_them(linear):
    x = torch.randn(5, 4, generator=seeded())
    outputs = torch.stack([model(x) for model in linear])
    found = mmb.soup.uniform(linear)
    torch.testing.assert_close(found.model(x), outputs.mean(0))
    assert found.weights == {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}
    weighted = soup.uniform(dict(zip("abc", linear, strict=True)), weights={"a": 3, "b": 0, "c": 1})
    torch.testing.assert_close(weighted.model(x), 0.75 * outputs[0] + 0.25 * outputs[2])
    assert weighted.picked == ("a", "c")


def test_models_stay_as_they_are(linear):
    before = copy.deepcopy(linear)
    linear[0].weight.grad = torch.ones(2, 4)
    linear[0].eval()
    found = soup.uniform(linear)
    assert all(same(a, b) for a, b in zip(linear, before, strict=True))
    assert found.model.weight.grad is None
    assert not found.model.training
    with torch.no_grad():
        found.model.weight += 1
    assert same(linear[0], before[0])


def test_a_single_model_is_copied_as_it_is():
    start = normalized()
    found = soup.uniform([start])
    assert same(found.model, start)
    assert found.model is not start


def test_equal_models_average_exactly():
    start = network()
    assert same(soup.uniform([start] * 7).model, start)


def test_state_dicts_are_put_into_a_copy_of_a_module(linear):
    empty = nn.Linear(4, 2)
    before = copy.deepcopy(empty)
    found = soup.uniform([model.state_dict() for model in linear], like=empty)
    assert same(found.model, soup.uniform(linear).model)
    assert same(empty, before)
    state = soup.average([model.state_dict() for model in linear], weights=[1, 1, 2])
    torch.testing.assert_close(state["bias"], (linear[0].bias + linear[1].bias + 2 * linear[2].bias) / 4)


def test_half_precision_is_averaged_in_single():
    models = [nn.Linear(2, 2).bfloat16() for _ in range(4)]
    values = (1.0, 1.0, 1.0, 1.03125)
    with torch.no_grad():
        for model, value in zip(models, values, strict=True):
            model.weight.fill_(value)
    found = soup.uniform(models).model.weight
    assert found.dtype == torch.bfloat16
    assert found.unique().item() == torch.tensor(sum(values) / 4).bfloat16().item()


def test_models_of_other_dtypes_are_converted_to_the_first(linear):
    found = soup.uniform([linear[0], linear[1].double()]).model
    assert found.weight.dtype == torch.float32
    torch.testing.assert_close(found.weight.double(), (linear[0].weight.double() + linear[1].weight) / 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_models_on_other_devices_are_brought_to_the_first(linear):
    found = soup.uniform([linear[0], linear[1].cuda()]).model
    assert found.weight.device.type == "cpu"


class Tied(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        if tied:
            self.b.weight = self.a.weight


def test_shared_weights_stay_shared():
    found = soup.uniform([Tied(), Tied()]).model
    assert found.a.weight is found.b.weight
    with pytest.raises(ValueError, match=r"'a.weight' and 'b.weight'.*one tensor"):
        soup.uniform([Tied(), Tied(tied=False)])


class Counting(nn.Module):
    def __init__(self, count, hidden=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.tensor(count))
        self.register_buffer("hidden", torch.tensor(hidden), persistent=False)


def test_whole_numbers_must_agree():
    assert soup.uniform([Counting(3), Counting(3)]).model.count == 3
    with pytest.raises(ValueError, match="whole numbers in 'count'"):
        soup.uniform([Counting(3), Counting(4)])


def test_buffers_outside_of_the_state_dict_must_agree():
    with pytest.raises(ValueError, match=r"'hidden'.*state dict"):
        soup.uniform([Counting(3), Counting(3, hidden=1.0)])


# -- Batch normalization -------------------------------------------------------------------------------------


def trained_branches(count=3):
    """Branches whose batch normalization has seen different rows."""
    models = branches(normalized(), count, size=0.1)
    generator = seeded(1)
    for number, model in enumerate(models):
        model.train()
        for _ in range(number + 3):
            model(number + torch.randn(32, 8, generator=generator))
    return models


def test_statistics_are_those_of_the_rows():
    models = trained_branches()
    rows = torch.randn(256, 8, generator=seeded(2)) * 2 + 1
    found = soup.uniform(models, batches=rows.split(64)).model
    hidden = found[0](rows)
    torch.testing.assert_close(found[1].running_mean, hidden.mean(0))
    spread = torch.stack([part.var(0) for part in hidden.split(64)]).mean(0)
    torch.testing.assert_close(found[1].running_var, spread)
    assert found.training
    assert soup.uniform(models, batches=iter(rows.split(64))).model[1].num_batches_tracked == 4


def test_statistics_that_differ_need_inputs():
    with pytest.raises(ValueError, match=r"batches.*1\.running_mean"):
        soup.uniform(trained_branches())


def test_statistics_that_are_frozen_need_none():
    models = [copy.deepcopy(model) for model in branches(trained_branches(1)[0], 2)]
    assert soup.uniform(models).model[1].num_batches_tracked == 3
    models[1][1].num_batches_tracked += 4
    assert soup.uniform(models).model[1].num_batches_tracked == 7
    models = trained_branches()
    for model in models:
        freeze_batch_norm(model)
    expected = torch.stack([model[1].running_mean for model in models]).mean(0)
    torch.testing.assert_close(soup.uniform(models, batches=None).model[1].running_mean, expected)


def test_every_candidate_is_recalibrated_before_it_is_evaluated():
    rows = torch.randn(128, 8, generator=seeded(2))
    seen = []

    def evaluate(model):
        assert not model.training
        seen.append((model[1].running_mean - model[0](rows).mean(0)).abs().max().item())
        return torch.zeros(4)

    soup.greedy(trained_branches(), evaluate, batches=[rows])
    assert len(seen) == 5
    assert max(seen) < 1e-5
    with pytest.raises(ValueError, match=r"batches.*iterator"):
        soup.greedy(trained_branches(), evaluate, batches=iter([rows]))


@pytest.mark.parametrize("average", [soup.uniform, lambda *a, **o: soup.greedy(*a, lambda _: 0.0, **o)])
def test_statistics_that_are_not_finite_are_refused(average):
    rows = torch.randn(64, 8)
    rows[3, 2] = math.nan
    with pytest.raises(ValueError, match=r"batches.*1\.running_mean.*NaN"):
        average(trained_branches(), batches=[rows])


# -- Greedy --------------------------------------------------------------------------------------------------


class Point(nn.Module):
    """A model that is one point."""

    def __init__(self, *place):
        super().__init__()
        self.place = nn.Parameter(torch.tensor(place))


def points(*places):
    return {f"{chr(97 + k)}": Point(*place) for k, place in enumerate(places)}


def test_greedy_picks_the_best_subset():
    target = torch.tensor([0.0, 0.0])
    models = points((3.0, 0.0), (1.0, 0.2), (-1.0, 0.1), (0.0, 5.0))
    found = soup.greedy(models, lambda model: -(model.place - target).norm() * torch.ones(5))
    assert found.picked == ("b", "c")
    assert found.weights == {"a": 0, "b": 0.5, "c": 0.5, "d": 0}
    torch.testing.assert_close(found.model.place, torch.tensor([0.0, 0.15]))
    assert found.value == pytest.approx(-0.15)
    assert found.values["a"] == pytest.approx(-3)
    assert [trial.accepted for trial in found.trials] == [True, False, False, True]
    assert found.trials[-1].against == ("a",)
    assert found.trials[-1].gain == pytest.approx(2.85)


def test_a_single_value_may_be_a_number():
    found = soup.greedy(points((3.0,), (1.0,), (-1.0,)), lambda model: -model.place.abs().item())
    assert found.picked == ("b", "c")
    assert math.isnan(found.trials[-1].error)


def test_gains_within_noise_return_the_fallback():
    """Two tasks gain, two lose: the mean is up, but no more than chance makes it."""
    models = points((0.0,), (1.0,))
    gains = torch.tensor([3.0, -2.0, 3.0, -2.0])
    found = soup.greedy(models, lambda model: model.place * gains)
    assert found.picked == ("a",)
    assert found.value == 0
    assert not found.trials[-1].accepted
    assert found.trials[-1].error == pytest.approx(gains.std().item() / 2)
    assert soup.greedy(models, lambda model: model.place * gains, guard=0).picked == ("b",)
    assert soup.greedy(models, lambda model: model.place * gains, fallback="b").picked == ("b",)


def share_that_leaves_the_fallback(guard, gain, count=5, seeds=200):
    """How often an average is returned if values are noise, but for a gain of the last model."""
    left = 0
    for seed in range(seeds):
        noise = 0.02 * torch.randn(count, 20, generator=seeded(seed))
        noise[-1] += gain
        models = points(*torch.eye(count).tolist())
        found = soup.greedy(models, lambda model, noise=noise: model.place @ noise, guard=guard)
        left += found.picked != ("a",)
    return left / seeds


def test_the_guard_holds_against_noise_and_lets_gains_through():
    noisy = {guard: share_that_leaves_the_fallback(guard, gain=0.0) for guard in (0, 1, 3)}
    assert noisy[3] <= 0.05
    assert noisy[3] < noisy[1] < 0.6 * noisy[0]
    assert share_that_leaves_the_fallback(1, gain=0.02) >= 0.95
    assert share_that_leaves_the_fallback(3, gain=0.04) >= 0.95


def test_without_any_value_all_are_averaged():
    models = points((0.0,), (1.0,), (5.0,))
    with pytest.warns(UserWarning, match="no model has a value") as caught:
        found = soup.greedy(models, lambda model: torch.full((3,), torch.nan))
    assert len(caught) == 1
    torch.testing.assert_close(found.model.place, torch.tensor([2.0]))
    assert math.isnan(found.value)


def test_tasks_without_a_value_do_not_count():
    models = points((0.0,), (1.0,))
    missing = torch.tensor([torch.nan, 0, 0, 0])
    found = soup.greedy(models, lambda model: model.place.detach() + missing)
    assert found.picked == ("b",)
    assert found.value == 1


def test_a_fallback_without_a_value_is_not_kept():
    values = {0.0: torch.nan, 1.0: 0.5, 0.5: 0.3}
    found = soup.greedy(points((0.0,), (1.0,)), lambda model: torch.full((4,), values[model.place.item()]))
    assert found.picked == ("b",)


def test_a_model_that_diverged_is_left_out():
    models = points((0.0,), (torch.nan,), (1.0,))
    with pytest.warns(UserWarning, match=r"\['b'\].*finite"):
        found = soup.greedy(models, lambda model: model.place.detach().repeat(3))
    assert found.picked == ("c",)
    assert math.isnan(found.values["b"])
    with pytest.raises(ValueError, match=r"'b'.*finite.*'place'"):
        soup.uniform(models)
    with pytest.raises(ValueError, match=r"'b'.*finite"):
        soup.greedy(models, lambda model: 0.0, fallback="b")
    soup.uniform(models, weights=[1, 0, 1])


def test_numbers_that_are_infinite_in_all_models_stay():
    models = points((-torch.inf, 1.0), (-torch.inf, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert soup.greedy(models, lambda model: 0.0).model.place[0] == -torch.inf


# -- Models that do not belong together ----------------------------------------------------------------------


def test_networks_from_different_starts_are_refused():
    start, other = network(0), network(1)
    soup.uniform(branches(start, 3), start=start)
    with pytest.raises(ValueError, match=r"1 and 0.*cosine.*start"):
        soup.uniform([start, other])
    with pytest.raises(ValueError, match="0 and the start"):
        soup.uniform(branches(start, 2), start=other)


def test_wide_networks_with_batch_norm_are_told_apart():
    """Scales of batch normalization are alike in all networks and must not hide that weights are not."""
    pytest.importorskip("monai")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        start, other = resnet18(2), resnet18(2)
    soup.uniform([start, copy.deepcopy(start)])
    with pytest.raises(ValueError, match="cosine"):
        soup.uniform([start, other])


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        ([], ValueError, "models.*none"),
        ({}, ValueError, "models.*none"),
        ([nn.Linear(2, 2), nn.Linear(2, 3)], ValueError, r"'weight'.*\[3, 2\].*\[2, 2\]"),
        ([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)], ValueError, "1 entries.*bias"),
        ([nn.Linear(2, 2), nn.Sequential()], TypeError, "Linear, Sequential"),
        ([nn.Linear(2, 2), nn.Linear(2, 2).state_dict()], TypeError, "Linear, state dict"),
        ([nn.Linear(2, 2).state_dict()], ValueError, "like"),
        (nn.Linear(2, 2).state_dict(), TypeError, "'weight' is a Tensor"),
        ([nn.LazyLinear(2)], ValueError, "no shape"),
    ],
)
def test_models_that_do_not_fit_are_named(models, error, message):
    with pytest.raises(error, match=message):
        soup.uniform(models)


@pytest.mark.parametrize(
    "weights", [[1, 2], [1, 2, -1], [0, 0, 0], [1, 2, math.nan], [1, 2, math.inf], {0: 1}]
)
def test_shares_that_are_none_are_refused(linear, weights):
    with pytest.raises(ValueError, match="weights"):
        soup.uniform(linear, weights=weights)


def test_arguments_of_greedy_are_checked(linear):
    with pytest.raises(ValueError, match=r"fallback.*'ce'"):
        soup.greedy(linear, lambda model: 0.0, fallback="ce")
    with pytest.raises(ValueError, match="guard"):
        soup.greedy(linear, lambda model: 0.0, guard=-1)
    counts = iter([3, 2, 2])
    with pytest.raises(ValueError, match=r"evaluate.*3.*2"):
        soup.greedy(linear, lambda model: torch.zeros(next(counts)))


# -- Objectives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in STATELESS])
def test_block_state_is_averaged(name):
    generator = seeded()
    labels = (torch.rand(40, 3, generator=generator) < 0.3).to(torch.int8)
    made = [OBJECTIVES[name](labels) for _ in range(2)]
    for objective in made:
        for value in objective.state_dict().values():
            value.copy_(torch.rand(value.shape, generator=generator))
    found = soup.uniform(made).model
    assert type(found) is type(made[0])
    states = [objective.state_dict() for objective in made]
    assert states[0]
    for entry, value in found.state_dict().items():
        torch.testing.assert_close(value, (states[0][entry] + states[1][entry]) / 2)


def test_objectives_for_other_labels_are_refused():
    labels = torch.tensor([[1], [0], [1], [0]])
    with pytest.raises(ValueError, match="labels"):
        soup.uniform([auc.MinMaxAUC(labels), auc.MinMaxAUC(labels.roll(1, 0)[:3])])
    with pytest.raises(TypeError, match="CrossEntropy, Focal"):
        soup.uniform([auc.CrossEntropy(labels), auc.Focal(labels)])


# -- Noise of few rows ---------------------------------------------------------------------------------------


def test_pseudo_values_of_a_mean_are_the_rows():
    """With a fold for each row, the pseudo-values of a mean are the numbers themselves."""
    scores = torch.randn(12, generator=seeded()).double()
    labels = torch.zeros(12)
    found = soup.jackknife(lambda s, y: s.mean(0), scores, labels, folds=12)
    torch.testing.assert_close(found, scores)


@pytest.mark.parametrize("values", [(0.5, 0.7), (0.7, 0.5), (0.6, 0.6), (math.nan, 0.5)])
def test_of_two_averages_the_better_is_taken(values):
    """They share no start; of equals, and if one cannot be valued, the first."""
    one, other = (soup.uniform({name: mlp(3, [8], 2)}) for name in "ab")
    value_of = {id(one.model): values[0], id(other.model): values[1]}
    found = soup.better(one, other, lambda model: value_of[id(model)])
    second = values[1] > values[0]
    assert found.model is (other if second else one).model
    assert found.weights == {"a": float(not second), "b": float(second)}
    assert found.trials[-1].accepted == second
    assert found.value == pytest.approx(values[second], nan_ok=True)


def test_the_better_of_two_must_be_better_beyond_noise():
    one, other = (soup.uniform({name: mlp(3, [8], 2)}) for name in "ab")
    gains = torch.tensor([3.0, -2.0, 3.0, -2.0])  # mean 0.5, standard error 1.4
    for guard, second in ((0.0, True), (0.3, True), (0.4, False)):
        found = soup.better(one, other, lambda model: gains * (model is other.model), guard=guard)
        assert found.picked == (("b",) if second else ("a",))
        assert found.trials[-1].accepted == second
    for guard in (math.nan, -1.0):
        with pytest.raises(ValueError, match="guard"):
            soup.better(one, other, lambda model: gains, guard=guard)


def test_evidence_is_in_units_of_the_noise_of_each_metric():
    others = torch.randn(2, 4, generator=seeded()).double()
    gains = torch.tensor([[3.0, -2.0, 3.0, -2.0], [300.0, -200.0, 300.0, -200.0]])
    units = 0.5 / (math.sqrt(25 / 3) / 2)  # mean over standard error
    assert soup.evidence(others + gains, others) == pytest.approx(units)
    assert soup.evidence(others - gains, others) == pytest.approx(-units)
    halved = gains * torch.tensor([[1.0], [0.0]])
    assert soup.evidence(others + halved, others) == pytest.approx(units / 2)


def test_evidence_without_spread_or_without_values():
    nothing, some = torch.full((1, 3), math.nan), torch.tensor([[1.0, 1.0, math.nan]])
    assert math.isnan(soup.evidence(nothing, some))
    assert soup.evidence(some + 1, some) > 1e6
    assert soup.evidence(some, some) == 0
    assert soup.evidence(torch.tensor([[0.6]]), torch.tensor([[0.5]])) > 1e6  # a single value
    both = torch.cat([nothing, some])
    assert soup.evidence(both + torch.tensor([0.1, 0.3, 0.0]), both) == pytest.approx(2)


def test_pseudo_values_of_several_metrics_are_those_of_each():
    scores = torch.randn(60, 3, generator=seeded()).double()
    labels = (scores + torch.randn(60, 3, generator=seeded(1)) > 1).float()
    each = [metrics.roc_auc, metrics.average_precision]
    found = soup.jackknife(lambda s, y: torch.stack([one(s, y) for one in each]), scores, labels)
    assert found.shape == (2, 20)
    for row, one in zip(found, each, strict=True):
        torch.testing.assert_close(row, soup.jackknife(one, scores, labels))


def test_averages_that_have_some_models_in_common_are_refused():
    models = points((0.0,), (1.0,))
    with pytest.raises(ValueError, match=r"other.*'a'"):
        soup.better(soup.uniform({"a": models["a"]}), soup.uniform(models), lambda model: 0.0)


@pytest.mark.parametrize(("guard", "picked"), [(0.0, ("b",)), (3.0, ("a", "b"))])
def test_a_greedy_average_must_beat_that_of_all_by_more_than_noise(guard, picked):
    models = points((0.0,), (1.0,))
    noise = torch.tensor([2.0, 0.0, 1.0, 1.0])

    def evaluate(model):
        return model.place.detach() * noise

    chosen = soup.greedy(models, evaluate, guard=0.0)
    found = soup.better(soup.uniform(models), chosen, evaluate, guard=guard)
    assert found.picked == picked
    assert list(found.weights) == ["a", "b"]
    assert found.values == {"a": 0.0, "b": 1.0}


def test_the_spread_of_pseudo_values_is_the_noise_of_the_metric():
    """Over many samples of rows, the standard error agrees with how far the metric scatters."""
    values, errors = [], []
    for seed in range(200):
        generator = seeded(seed)
        labels = (torch.rand(300, 2, generator=generator) < 0.2).to(torch.int8)
        scores = labels + torch.randn(300, 2, generator=generator)
        found = soup.jackknife(metrics.roc_auc, scores, labels)
        torch.testing.assert_close(found.mean(), metrics.roc_auc(scores, labels).mean())
        values.append(found.mean())
        errors.append(found.std() / 20**0.5)
    assert torch.stack(errors).mean() == pytest.approx(torch.stack(values).std().item(), rel=0.15)


def test_a_task_without_positives_has_no_noise():
    labels = torch.zeros(30, 2, dtype=torch.int8)
    scores = torch.randn(30, 2, generator=seeded())
    assert soup.jackknife(metrics.roc_auc, scores, labels).isnan().all()
    labels[::5, 0] = 1
    assert soup.jackknife(metrics.roc_auc, scores, labels).mean().item() == pytest.approx(
        metrics.roc_auc(scores[:, 0], labels[:, 0]).item()
    )


def test_without_rows_jackknife_has_nothing_to_tell():
    def nothing(scores, labels):
        return torch.full((scores.shape[1],), math.nan)

    values = soup.jackknife(nothing, torch.zeros(0, 2), torch.zeros(0, 2))
    assert values.shape == (20,)
    assert values.isnan().all()


@pytest.mark.parametrize(("shape", "folds", "message"), [((3, 2), 20, "shape"), ((4, 2), 1, "folds")])
def test_arguments_of_jackknife_are_checked(shape, folds, message):
    with pytest.raises(ValueError, match=message):
        soup.jackknife(metrics.roc_auc, torch.zeros(4, 2), torch.zeros(shape), folds)
