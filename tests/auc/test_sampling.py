import math
import warnings

import pytest
import torch

from mmb.auc.batches import DenseBatch, TaskBatch
from mmb.auc.labels import Labels
from mmb.auc.sampling import RichRowSampler, TaskSampler


def make_labels(num_rows=300, num_tasks=6, seed=0):
    """Random labels with gaps; task 0 has few positives, task 1 few negatives."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.linspace(0.1, 0.5, num_tasks)
    values = (torch.rand(num_rows, num_tasks, generator=generator) < chance).to(torch.int8)
    values[torch.rand(num_rows, num_tasks, generator=generator) < 0.3] = -1
    values[:, 0] = 0
    values[5:8, 0] = 1
    values[:, 1] = 1
    values[20:22, 1] = 0
    return values


def assert_same(left, right):
    """Two draws are bit-identical."""
    if left is None or right is None:
        assert left is right
        return
    for name in left.__dataclass_fields__:
        a, b = getattr(left, name), getattr(right, name)
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b), name
        else:
            assert_same(a, b)


SAMPLERS = {
    "tasks": lambda labels, **kw: TaskSampler(labels, 3, 8, independent_lower=True, **kw),
    "weighted tasks": lambda labels, **kw: TaskSampler(
        labels, 3, 8, task_weights=torch.arange(labels.shape[1]) + 1.0, **kw
    ),
    "rich rows": lambda labels, **kw: RichRowSampler(labels, 32, **kw),
    "shuffled rows": lambda labels, **kw: RichRowSampler(labels, 32, rich_fraction=0, **kw),
}


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS.keys())
class TestEverySampler:
    def test_resumes_mid_epoch_bit_for_bit(self, make):
        labels = make_labels()
        sampler = make(labels)
        list(sampler)
        for _, _ in zip(range(4), sampler, strict=False):
            pass
        state = sampler.state_dict()
        assert (state["epoch"], state["step"]) == (1, 4)
        expected = [*sampler, *sampler]
        other = make(labels, generator=123)
        other.load_state_dict(state)
        resumed = [*other, *other]
        assert len(resumed) == len(expected) == 2 * len(sampler) - 4
        for left, right in zip(resumed, expected, strict=True):
            assert_same(left, right)

    def test_seed_decides_the_draws_and_epochs_differ(self, make):
        labels = make_labels()
        first, second, other = make(labels), make(labels), make(labels, generator=1)
        one, two = list(first), list(first)
        for left, right in zip(one, second, strict=True):
            assert_same(left, right)
        assert not torch.equal(one[0].rows, two[0].rows)
        assert not torch.equal(one[0].rows, next(iter(other)).rows)

    def test_leaves_the_global_generator_alone(self, make):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        list(make(make_labels()))
        assert torch.equal(torch.get_rng_state(), before)

    def test_refuses_a_foreign_state_and_changes_nothing(self, make):
        sampler = make(make_labels())
        next(iter(sampler))
        before = sampler.state_dict()
        with pytest.raises(ValueError, match="without"):
            sampler.load_state_dict({"epoch": 3})
        with pytest.raises(ValueError, match="steps"):
            sampler.load_state_dict({**before, "step": 10_000})
        assert sampler.state_dict()["step"] == before["step"]
        assert torch.equal(sampler.state_dict()["generator"], before["generator"])


class TestTaskSampler:
    def test_rows_have_the_class_they_are_drawn_for(self):
        labels = make_labels()
        sampler = TaskSampler(labels, 4, 10, positive_fraction=0.3, independent_lower=True)
        for draw in sampler:
            assert draw.tasks.unique().numel() == 4
            for part in (draw, draw.lower):
                assert part.labels.sum(1).tolist() == [3] * 4
                assert torch.equal(labels[part.rows, draw.tasks[:, None]], part.labels)
            assert not torch.equal(draw.rows, draw.lower.rows)

    def test_rows_differ_until_a_class_is_used_up_and_then_come_evenly(self):
        labels = make_labels()
        sampler = TaskSampler(labels, 6, 14, steps_per_epoch=50)
        for draw in sampler:
            for task, rows in zip(draw.tasks.tolist(), draw.rows, strict=True):
                for part, value in ((rows[:7], 1), (rows[7:], 0)):
                    there = int((labels[:, task] == value).sum())
                    counts = part.unique(return_counts=True)[1]
                    assert len(counts) == min(there, 7)
                    assert counts.max() - counts.min() <= 1
                    assert counts.max() == math.ceil(7 / min(there, 7))

    def test_every_row_of_a_class_is_equally_likely(self):
        labels = make_labels(num_rows=60, num_tasks=3, seed=1)
        sampler = TaskSampler(labels.repeat(1, 20), 60, 8, steps_per_epoch=250)  # each task twenty times
        seen = torch.zeros(60, 60)
        for draw in sampler:
            seen.index_put_((draw.rows, draw.tasks[:, None]), torch.ones(60, 8), accumulate=True)
        seen = seen.unflatten(1, (20, 3)).sum(1)
        assert seen[labels == -1].sum() == 0
        for value in (0, 1):
            for task in range(3):
                share = seen[labels[:, task] == value, task]
                expected = 4 * 5_000 / len(share)
                # the standard deviation of a count is at most sqrt(expected): five of them
                assert (share - expected).abs().max() < 5 * math.sqrt(expected)

    def test_pairs_of_rows_are_equally_likely(self):
        labels = torch.zeros(20 + 60, 1, dtype=torch.int8)
        labels[:20] = 1  # few enough to be permuted; the negatives are drawn
        together, samples = torch.zeros(80, 80), 300 * 20
        for draw in TaskSampler(labels.repeat(1, 20), 20, 16, steps_per_epoch=300):
            inside = torch.zeros(20, 80).scatter_(1, draw.rows, 1)
            together += inside.T @ inside
        for part, count in ((slice(0, 20), 20), (slice(20, 80), 60)):
            pairs = together[part, part][~torch.eye(count, dtype=torch.bool)]
            expected = samples * 8 * 7 / (count * (count - 1))
            assert (pairs - expected).abs().max() < 5 * math.sqrt(expected)

    def test_tasks_that_lack_a_class_are_never_drawn(self):
        labels = make_labels()
        labels[:, 2] = 0
        labels[:, 4] = -1
        with pytest.warns(UserWarning, match=r"\[2, 4\]"):
            sampler = TaskSampler(labels, 4, 4, steps_per_epoch=20)
        for draw in sampler:
            assert draw.tasks.sort().values.tolist() == [0, 1, 3, 5]

    def test_uniform_over_tasks(self):
        sampler = TaskSampler(make_labels(), 2, 2, steps_per_epoch=1200)
        counts = torch.stack([draw.tasks for draw in sampler]).flatten().bincount(minlength=6)
        assert (counts - 400).abs().max() < 5 * math.sqrt(400)

    def test_weighted_over_tasks_with_unbiased_importance(self):
        weights = torch.tensor([8.0, 1, 1, 1, 1, 0.5])
        sampler = TaskSampler(make_labels(), 3, 2, task_weights=weights, steps_per_epoch=1_000)
        # the first would come 1.92 times per step: it comes once, and the others share the other two places
        rates = torch.cat([torch.ones(1), 2 * weights[1:] / weights[1:].sum()])
        phi = torch.tensor([3.0, -1, 4, 1, -5, 9])
        counts, estimate = torch.zeros(6), 0.0
        for draw in sampler:
            assert draw.tasks.unique().numel() == 3
            counts[draw.tasks] += 1
            estimate += float((draw.weights * phi[draw.tasks]).mean())
        torch.testing.assert_close(counts / 1_000, rates, atol=0.05, rtol=0)
        assert estimate / 1_000 == pytest.approx(float(phi.mean()), abs=0.3)
        # exactly: each task's inclusion rate times its weight over k is 1 / m
        for draw in sampler:
            torch.testing.assert_close(draw.weights * rates[draw.tasks] / 3, torch.full((3,), 1 / 6))
            break

    def test_tasks_of_weight_zero_are_never_drawn(self):
        weights = torch.tensor([0.0, 1, 1, 0, 1, 1])
        for draw in TaskSampler(make_labels(), 3, 2, task_weights=weights, steps_per_epoch=500):
            assert not {0, 3} & set(draw.tasks.tolist())

    def test_class_means_are_unbiased(self):
        labels = make_labels(num_rows=40, num_tasks=2, seed=3)
        values = torch.randn(40, generator=torch.Generator().manual_seed(0))
        sampler = TaskSampler(labels.repeat(1, 20), 40, 6, steps_per_epoch=200)  # each task twenty times
        total = torch.zeros(40, 2)
        for draw in sampler:
            phi = values[draw.rows].unflatten(1, (2, 3)).mean(2)  # positives first
            total[draw.tasks] += phi / 200
        total = total.unflatten(0, (20, 2)).mean(0)
        for task in range(2):
            for column, value in ((0, 1), (1, 0)):
                truth = values[labels[:, task] == value].mean()
                assert float(total[task, column]) == pytest.approx(float(truth), abs=0.06)

    def test_batch_looks_rows_up_in_nested_inputs(self):
        labels = make_labels()
        inputs = {"x": torch.randn(300, 5), "ids": torch.arange(300)}
        draw = next(iter(TaskSampler(labels, 3, 4, independent_lower=True)))
        batch = draw.batch(inputs)
        assert isinstance(batch, TaskBatch)
        assert batch.inputs["x"].shape == (3, 4, 5)
        assert torch.equal(batch.inputs["ids"], draw.rows)
        assert torch.equal(batch.lower.inputs["ids"], draw.lower.rows)
        assert torch.equal(batch.rows, draw.rows)
        assert torch.equal(batch.tasks, batch.lower.tasks)
        other = torch.full((300, 6), -1)
        assert torch.equal(draw.batch(inputs, other).labels, draw.labels)  # as a draw of rows is used

    def test_epoch_is_one_row_per_row(self):
        assert len(TaskSampler(make_labels(), 3, 8)) == math.ceil(300 / 24)

    def test_single_task_vector(self):
        draw = next(iter(TaskSampler(torch.tensor([0.0, 1, float("nan"), 0]), 1, 4)))
        assert draw.rows[0, :2].tolist() == [1, 1]
        assert sorted(draw.rows[0, 2:].tolist()) == [0, 3]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"tasks_per_step": 7}, r"tasks_per_step.*\[1, 6\]"),
            ({"tasks_per_step": 0}, "tasks_per_step"),
            ({"rows_per_task": 1}, "rows_per_task"),
            ({"positive_fraction": 1.0}, "positive_fraction"),
            ({"task_weights": torch.ones(3)}, "task_weights"),
            ({"task_weights": -torch.ones(6)}, "task_weights"),
            ({"task_weights": torch.eye(6)[0]}, r"tasks_per_step.*\[1, 1\]"),
            ({"steps_per_epoch": 0}, "steps_per_epoch"),
        ],
    )
    def test_refuses_bad_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            TaskSampler(make_labels(), **{"tasks_per_step": 2, "rows_per_task": 4, **arguments})

    @pytest.mark.parametrize("name", ["tasks_per_step", "rows_per_task", "steps_per_epoch"])
    def test_refuses_numbers_that_are_not_whole(self, name):
        with pytest.raises(ValueError, match=f"{name}.*whole.*2.0"):
            TaskSampler(make_labels(), **{"tasks_per_step": 2, "rows_per_task": 4, name: 2.0})


class TestRichRowSampler:
    def intensity(self, labels, fraction):
        """Lambda from its definition, with plain loops."""
        num_rows, num_tasks = labels.shape
        result = torch.full((num_rows,), (1 - fraction) / num_rows, dtype=torch.float64)
        for task in range(num_tasks):
            rows = (labels[:, task] == 1).nonzero().squeeze(1)
            result[rows] += fraction / (num_tasks * len(rows))
        return result

    @pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75])
    def test_weighted_intensity_is_uniform_exactly(self, fraction):
        labels = make_labels()
        sampler = RichRowSampler(labels, 40, fraction)
        intensity = self.intensity(labels, fraction)
        assert float(intensity.sum()) == pytest.approx(1)
        weights = torch.full((300,), torch.nan, dtype=torch.float64)
        for _ in range(40):
            for draw in sampler:
                if len(draw.rows) == 40:
                    weights[draw.rows] = draw.weights.double()
        drawn = ~weights.isnan()
        assert drawn.all()
        # sum_i lambda_i w_i phi_i = 1/N sum_i phi_i for every phi: each product is 1/N
        torch.testing.assert_close(weights * intensity, torch.full_like(weights, 1 / 300), rtol=1e-6, atol=0)

    def test_rows_come_as_often_as_the_intensity_says(self):
        labels = make_labels()
        sampler = RichRowSampler(labels, 50, 0.5)
        counts, epochs = torch.zeros(300), 250
        for _ in range(epochs):
            for draw in sampler:
                counts.index_add_(0, draw.rows, torch.ones(len(draw.rows)))
        expected = self.intensity(labels, 0.5) * 300 * epochs
        assert ((counts - expected).abs() < 6 * expected.sqrt()).all()
        poor = (labels != 1).all(1)
        assert float(counts[poor].sum()) == pytest.approx(float(expected[poor].sum()), rel=0.05)

    def test_class_means_of_dense_batches_are_unbiased(self):
        labels = make_labels(num_rows=80, num_tasks=3, seed=5)
        phi = torch.randn(80, 3, generator=torch.Generator().manual_seed(1))
        sampler = RichRowSampler(labels, 16, 0.5)
        total, batches = torch.zeros(2, 3), 0
        for _ in range(150):
            for draw in sampler:
                batch = draw.batch(phi, labels)
                for row, value in enumerate((0, 1)):
                    rate = (labels == value).float().mean(0)
                    entries = (batch.labels == value) * batch.inputs * batch.weights[:, None]
                    total[row] += entries.sum(0) / (len(draw.rows) * rate)
                batches += 1
        for row, value in enumerate((0, 1)):
            there = labels == value
            truth = (phi * there).sum(0) / there.sum(0)
            torch.testing.assert_close(total[row] / batches, truth, atol=0.1, rtol=0)

    def test_weights_are_bounded_however_rare_a_task(self):
        labels = torch.zeros(5000, 4, dtype=torch.int8)
        labels[::2, 1:] = 1
        labels[17, 0] = 1  # one positive among 5000
        sampler = RichRowSampler(labels, 100, 0.5)
        for draw in sampler:
            assert draw.weights.max() <= 2  # 1 / (1 - f)
            batch = draw.batch(torch.zeros(5000), labels)
            rate = (labels == 1).float().mean(0)
            of_positives = (batch.labels == 1) * batch.weights[:, None] / (100 * rate)
            assert of_positives.max() <= 4 / (0.5 * 100) * (1 + 1e-6)  # m / (f n)
            assert (batch.labels[:, 0] == 1).any()

    def test_clipping_biases_only_the_clipped_rows(self):
        labels = make_labels()
        sampler = RichRowSampler(labels, 40, 0.75, max_weight=2)
        true = 1 / (300 * self.intensity(labels, 0.75))
        assert (true > 2).any()
        assert (true < 2).any()
        for draw in sampler:
            if len(draw.rows) == 40:
                torch.testing.assert_close(
                    draw.weights.double(), true[draw.rows].clamp(max=2), rtol=1e-6, atol=0
                )

    def test_plain_epochs_visit_every_row_once(self):
        sampler = RichRowSampler(make_labels(), 64, rich_fraction=0)
        draws = list(sampler)
        assert [len(draw.rows) for draw in draws] == [64, 64, 64, 64, 44]
        assert all(draw.weights is None for draw in draws)
        rows = torch.cat([draw.rows for draw in draws])
        assert torch.equal(rows.sort().values, torch.arange(300))
        assert not torch.equal(rows, torch.arange(300))

    @pytest.mark.parametrize(("size", "sizes"), [(13, [13] * 22 + [14]), (299, [300]), (300, [300])])
    def test_no_row_is_left_alone(self, size, sizes):
        sampler = RichRowSampler(make_labels(), size, rich_fraction=0)
        for _ in range(2):
            draws = list(sampler)
            assert [len(draw.rows) for draw in draws] == sizes
            assert torch.equal(torch.cat([draw.rows for draw in draws]).sort().values, torch.arange(300))
        assert len(RichRowSampler(make_labels(), 1, rich_fraction=0)) == 300

    def test_uniform_part_has_no_row_twice_in_an_epoch(self):
        sampler = RichRowSampler(make_labels(), 60, 0.5)
        uniform = torch.cat([draw.rows[30:] for draw in sampler])
        assert uniform.unique().numel() == uniform.numel() == 150

    def test_rich_part_holds_each_task_evenly(self):
        labels = make_labels()
        for draw in RichRowSampler(labels, 48, 0.5):
            assert ((labels[draw.rows[:24]] == 1).sum(0) >= 4).all()  # 24 rich rows over 6 tasks

    def test_tasks_that_lack_a_class_are_not_drawn_for(self):
        labels = make_labels()
        labels[:, 2] = 1  # would make every row rich
        with pytest.warns(UserWarning, match=r"\[2\]"):
            sampler = RichRowSampler(labels, 40, 0.5)
        others = labels[:, [0, 1, 3, 4, 5]]
        expected = 1 / (300 * self.intensity(others, 0.5))
        draw = next(iter(sampler))
        torch.testing.assert_close(draw.weights.double(), expected[draw.rows], rtol=1e-6, atol=0)

    def test_batch_is_dense(self):
        labels = make_labels()
        batch = next(iter(RichRowSampler(labels, 10))).batch(torch.arange(300), labels)
        assert isinstance(batch, DenseBatch)
        assert torch.equal(batch.inputs, batch.rows)
        assert torch.equal(batch.labels, labels[batch.rows])
        assert batch.weights.shape == (10,)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"batch_size": 0}, "batch_size"),
            ({"batch_size": 301}, r"batch_size.*\[1, 300\]"),
            ({"rich_fraction": 1.0}, "rich_fraction"),
            ({"rich_fraction": -0.1}, "rich_fraction"),
            ({"max_weight": 0.5}, "max_weight"),
        ],
    )
    def test_refuses_bad_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            RichRowSampler(make_labels(), **{"batch_size": 10, **arguments})

    def test_refuses_numbers_that_are_not_whole(self):
        with pytest.raises(ValueError, match=r"batch_size.*whole.*8\.0"):
            RichRowSampler(make_labels(), 8.0)


def test_accepts_checked_labels_without_warning_again():
    labels = make_labels()
    labels[:, 2] = 0
    with pytest.warns(UserWarning, match="left out"):
        checked = Labels(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TaskSampler(checked, 2, 4)
        RichRowSampler(checked, 8)


def test_large_label_matrix_is_listed_in_parts(monkeypatch):
    monkeypatch.setattr("mmb.auc.sampling.sampler._CHUNK", 700)  # two columns at a time
    labels = make_labels()
    for draw in TaskSampler(labels, 6, 8):
        assert torch.equal(labels[draw.rows, draw.tasks[:, None]], draw.labels)
