"""The small parts of training against closed forms: schedules, the paper's momentum, thresholds, feeding."""

import math

import pytest
import torch
from torch import nn

from mmb.auc import CrossEntropy, Labels
from mmb.auc.sampling import RichRowSampler, TaskSampler
from mmb.data import Dataset
from mmb.training.loop.feed import Feed
from mmb.training.loop.randomness import derive_seed, own_randomness
from mmb.training.loop.setup import make_optimizer, make_sampler, rows_per_step
from mmb.training.loop.step_sizes import step_size_factor
from mmb.training.recipes.recipe import OptimizerSettings, ScheduleSettings
from mmb.training.runs.log import RunLog, Window, read_log
from mmb.training.runs.scoring import decision_thresholds, rates_at
from tiny_runs import tiny_recipe


def factors(steps=100, steps_per_epoch=10, **settings):
    return [step_size_factor(ScheduleSettings(**settings), t, steps, steps_per_epoch) for t in range(steps)]


def test_step_decay_multiplies_at_milestones():
    found = factors(name="step", milestones=(3, 5), factor=0.1)
    assert found == pytest.approx([1.0] * 30 + [0.1] * 20 + [0.01] * 50)


def test_cosine_and_warmup():
    assert factors(name="cosine")[50] == pytest.approx(0.5)
    assert factors(name="cosine") == pytest.approx(
        [(1 + math.cos(math.pi * t / 100)) / 2 for t in range(100)]
    )
    assert factors(name="constant", warmup=4)[:6] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_one_cycle_is_that_of_torch():
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=1001)
    found = []
    for _ in range(1000):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert factors(1000, name="one_cycle") == pytest.approx(found, abs=0.006)  # its last step is one earlier


def test_momentum_is_the_papers_moving_average():
    gradients = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer, no_objective = nn.Linear(3, 1, bias=False, dtype=torch.float64), nn.Module()
    optimizer = make_optimizer(OptimizerSettings("momentum", lr=0.1, momentum=0.7), layer, no_objective)
    x, z = layer.weight.detach().clone(), gradients[0]  # z starts at the first estimate
    for gradient in gradients:
        layer.weight.grad = gradient.unsqueeze(0).clone()
        optimizer.step()
        z = 0.7 * z + 0.3 * gradient  # b0 = 0.3
        x = x - 0.1 * z
        torch.testing.assert_close(layer.weight.detach(), x)


def test_weight_decay_spares_the_objectives_variables():
    model, objective = nn.Linear(2, 2), nn.Linear(2, 2)
    for name in ("momentum", "sgd", "adam", "adamw"):
        groups = make_optimizer(OptimizerSettings(name, weight_decay=0.1), model, objective).param_groups
        assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_thresholds_are_the_lowest_within_the_rate():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 6, generator=generator).round(decimals=1)  # with ties
    labels = torch.randint(-1, 2, (200, 6), generator=generator)
    labels[:, 5] = 1
    fprs = (0.05, 0.1, 0.3)
    thresholds = decision_thresholds(logits, labels, fprs)
    assert thresholds[:, 5].isnan().all()
    assert all(rate[5].isnan() for rate in rates_at(logits, labels, thresholds[0]))  # no threshold, no rate
    for limit, threshold in zip(fprs, thresholds, strict=True):
        fpr, _ = rates_at(logits, labels, threshold)
        assert (fpr[:5] <= limit).all()
        for task in range(5):
            negatives = logits[labels[:, task] == 0, task]
            lower = negatives[negatives < threshold[task]].max()
            assert (negatives > lower).double().mean() > limit  # the next lower one would be too low


def test_thresholds_of_round_rates_are_not_lost_to_rounding():
    logits, labels = torch.arange(30.0).unsqueeze(1), torch.zeros(30, 1, dtype=torch.int8)
    assert decision_thresholds(logits, labels, (0.1,)).item() == 26  # three of thirty are above


@pytest.mark.parametrize("method", ["pauc", "auc-ct"])
def test_steps_have_as_many_rows_where_tasks_are_few(method):
    recipe = tiny_recipe(method, sampler={"kind": "tasks", "tasks_per_step": 4, "rows_per_task": 6})
    sampler = make_sampler(recipe, Labels((torch.arange(200) % 3 == 0).long().unsqueeze(1)))
    draw = next(iter(sampler))
    drawn = sum(part.rows.numel() for part in (draw, draw.lower) if part is not None)
    assert drawn == rows_per_step(recipe) == (48 if method == "auc-ct" else 24)
    assert len(sampler) == math.ceil(200 / drawn)


def test_seeds_of_purposes_differ_and_the_world_is_left_alone():
    assert len({derive_seed(seed, purpose) for seed in range(9) for purpose in ("model", "sampler")}) == 18
    before = torch.get_rng_state()
    with own_randomness(3, torch.device("cpu")):
        first = torch.rand(3)
    with own_randomness(3, torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


class ReadAhead:
    """Inputs whose stream takes rows several batches ahead of their use, as worker processes do."""

    def __init__(self, values, ahead):
        self.values, self.ahead = values, ahead

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return self.values[rows]

    def to(self, device):
        return self

    def stream(self, batches, generator):
        waiting = []
        for rows in batches:
            waiting.append(rows)
            if len(waiting) > self.ahead:
                rows = waiting.pop(0)
                noise = torch.rand(len(rows), 1, generator=generator)  # drawn when handed out
                yield rows, self.values[rows] + noise


def make_feed(kind, ahead):
    generator = torch.Generator().manual_seed(1)
    labels = (torch.rand(60, 3, generator=generator) < 0.3).to(torch.int8)
    rows = torch.arange(60)
    split = {"train": rows[10:], "valid": rows[:5], "test": rows[5:10]}
    dataset = Dataset(
        "fake", ReadAhead(torch.randn(60, 2, generator=generator), ahead), labels, split, ("a", "b", "c")
    )
    train = Labels(labels[split["train"]])
    sampler = (
        RichRowSampler(train, 8, 0.5, generator=2)
        if kind == "rows"
        else TaskSampler(train, 2, 4, independent_lower=True, generator=2)
    )
    return Feed(dataset, sampler, torch.Generator().manual_seed(3), CrossEntropy(train)), dataset


def tensors_of(batch):
    parts = [batch.inputs, batch.labels, batch.rows, batch.weights]
    if getattr(batch, "lower", None) is not None:
        parts += [batch.tasks, *tensors_of(batch.lower)]
    return [part for part in parts if part is not None]


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_a_feed_resumes_exactly_whatever_was_read_ahead(kind):
    feed, _ = make_feed(kind, ahead=5)
    source = iter(feed)
    for _ in range(9):  # into the second epoch
        next(source)
    state = feed.state_dict()
    expected = [tensors_of(next(source)) for _ in range(12)]
    resumed, _ = make_feed(kind, ahead=2)
    resumed.load_state_dict(state)
    for batch, want in zip(resumed, expected, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(tensors_of(batch), want, strict=True))


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_batches_are_of_training_rows_with_their_labels(kind):
    feed, dataset = make_feed(kind, ahead=0)
    for batch, _ in zip(feed, range(20), strict=False):
        rows = dataset.split["train"][batch.rows]
        inputs = dataset.inputs.values[rows]
        assert ((batch.inputs - inputs >= 0) & (batch.inputs - inputs <= 1)).all()  # the noise of the stream
        if kind == "rows":
            assert torch.equal(batch.labels, dataset.labels[rows])
        else:
            for part in (batch, batch.lower):
                rows = dataset.split["train"][part.rows]
                assert torch.equal(part.labels, dataset.labels[rows, part.tasks.unsqueeze(1)])


def test_the_log_is_cut_where_a_checkpoint_was_taken(tmp_path):
    with RunLog(tmp_path, 0, 0, tensorboard=False) as log:
        log.write("train", 1, {"loss": 0.5})
        position = log.sync()
        log.write("train", 2, {"loss": math.nan})
    assert read_log(tmp_path)[1] == {"kind": "train", "step": 2, "loss": None}
    with RunLog(tmp_path, position, 1, tensorboard=False) as log:
        log.write("train", 2, {"loss": 0.25})
    assert [record["loss"] for record in read_log(tmp_path)] == [0.5, 0.25]


def test_the_log_knows_its_length_after_it_was_cut(tmp_path):
    with RunLog(tmp_path, 0, 0, tensorboard=False) as log:
        log.write("train", 1, {"loss": 0.5})
        position = log.sync()
        log.write("train", 2, {"loss": 0.25})
    with RunLog(tmp_path, position, 1, tensorboard=False) as log:
        assert log.sync() == position  # a checkpoint before the first line


def test_a_log_that_was_damaged_is_continued_and_read(tmp_path):
    with RunLog(tmp_path, 0, 0, tensorboard=False) as log:
        for step in (1, 2):
            log.write("train", step, {"loss": 0.5})
        position = log.sync()
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[: position - 9])
    with RunLog(tmp_path, position, 2, tensorboard=False) as log:
        log.write("train", 3, {"loss": 0.5})
    assert b"\0" not in file.read_bytes()
    assert [record["step"] for record in read_log(tmp_path)] == [1, 3]
    file.write_bytes(b"\xff\xfe\n[1]\n" + file.read_bytes())
    assert [record["step"] for record in read_log(tmp_path)] == [1, 3]
    file.unlink()
    assert read_log(tmp_path) == []


def test_windows_average_and_resume():
    window, resumed = Window(), Window()
    window.add({"loss": torch.tensor(1.0)})
    resumed.load_state_dict(window.state_dict())
    resumed.add({"loss": torch.tensor(2.0)})
    assert resumed.take() == {"loss": 1.5}
    assert resumed.take() == {}
