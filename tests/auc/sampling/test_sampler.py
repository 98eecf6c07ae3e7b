"""What every sampler does: resume, obey its seed, refuse foreign state."""

from __future__ import annotations

import warnings

import pytest
import torch

from gappy_labels import make_labels
from mmb.auc.labels import Labels
from mmb.auc.sampling import RichRowSampler, TaskSampler


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
