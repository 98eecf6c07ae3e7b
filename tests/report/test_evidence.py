import pytest
import torch

from mmb import metrics
from mmb.report import evidence as module
from mmb.report.comparison import area_samples


def evidence(scores, labels):
    return module.evidence(area_samples(scores, labels, 0.1)["auc"], scores, labels)


def table(rows=400, tasks=3, rate=0.2, signal=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(rows, tasks, generator=generator) < rate).to(torch.int8)
    return torch.randn(rows, tasks, generator=generator) + signal * labels, labels


def test_the_noise_of_chance_is_that_of_shuffled_rows():
    """Tasks that share scores and labels, so that their noise does not cancel."""
    scores, labels = table(tasks=1, signal=1.0)
    scores, labels = scores.repeat(1, 4), labels.repeat(1, 4)
    mean, tasks = evidence(scores, labels)
    generator = torch.Generator().manual_seed(1)
    shuffled = torch.stack(
        [
            metrics.roc_auc(scores[torch.randperm(len(scores), generator=generator)], labels).mean()
            for _ in range(400)
        ]
    )
    assert mean.chance_error.item() == pytest.approx(shuffled.std().item(), rel=0.1)
    assert tasks.chance_error.tolist() == pytest.approx([mean.chance_error.item()] * 4)


def test_independent_tasks_have_less_noise_together():
    mean, tasks = evidence(*table(rows=2000, tasks=16))
    assert mean.chance_error.item() == pytest.approx(tasks.chance_error.mean().item() / 4, rel=0.2)


@pytest.mark.parametrize(("signal", "level"), [(1.0, "above"), (-1.0, "below"), (0.0, "near")])
def test_what_many_rows_show(signal, level):
    mean, tasks = evidence(*table(rows=2000, signal=signal))
    assert bool(mean.enough)
    for one in ("above", "below"):
        assert bool(getattr(mean, one)) == (one == level)
        assert getattr(tasks, one).tolist() == [one == level] * 3
    assert bool(mean.near) == (level != "above")


def test_few_positives_show_nothing():
    scores, labels = table(rows=60, tasks=1)
    labels.zero_()
    labels[:2] = 1
    scores[:2] = 10.0  # a perfect ranking
    mean, _ = evidence(scores, labels)
    assert mean.auc == 1
    assert not bool(mean.enough)
    assert not bool(mean.above)
    assert mean.error > 0


def test_equal_scores_and_tasks_without_a_class():
    scores, labels = torch.zeros(500, 3), table(rows=500)[1]
    labels[:, 2] = 0
    mean, tasks = evidence(scores, labels)
    assert bool(mean.near)
    assert tasks.near.tolist() == [True, True, False]
    assert tasks.enough.tolist() == [True, True, False]
