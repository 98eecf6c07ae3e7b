"""Task-sampled draws: which tasks, which rows, how often."""

from __future__ import annotations

import math

import pytest
import torch

from gappy_labels import make_labels
from mmb.auc.batches import TaskBatch
from mmb.auc.sampling import TaskSampler


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
        with pytest.warns(UserWarning, match="left out: 2, 4$"):
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
