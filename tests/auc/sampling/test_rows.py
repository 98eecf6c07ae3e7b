"""Draws of rows: intensities, weights, shuffled epochs."""

from __future__ import annotations

import pytest
import torch

from gappy_labels import make_labels
from mmb.auc.batches import DenseBatch
from mmb.auc.sampling import RichRowSampler


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
        with pytest.warns(UserWarning, match="left out: 2$"):
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
