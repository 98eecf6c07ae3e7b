import pytest
import torch

from mmb.data import Dataset

ROWS = {"train": torch.tensor([0]), "valid": torch.tensor([1]), "test": torch.tensor([2])}


def _dataset(**changes):
    fields = {
        "name": "toy",
        "inputs": torch.zeros(3, 2),
        "labels": torch.zeros(3, 1, dtype=torch.int8),
        "split": ROWS,
        "task_names": ("t",),
    }
    return Dataset(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": torch.zeros(3, 1)}, "int8"),
        ({"labels": torch.zeros(2, 1, dtype=torch.int8)}, r"\[3, 1\]"),
        ({"task_names": ("a", "b")}, r"\[3, 2\]"),
        ({"task_names": ("a\x1b[2J",)}, r"task_names.*x1b.*control"),
        ({"task_names": ("a\nb",)}, "control"),
        ({"split": {"train": torch.tensor([0])}}, "keys"),
        ({"split": {**ROWS, "test": torch.tensor([2.0])}}, "int64"),
        ({"split": {**ROWS, "test": torch.tensor([[2]])}}, "one-dimensional"),
    ],
)
def test_a_wrong_shape_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        _dataset(**changes)


def test_names_may_have_any_printable_character():
    assert _dataset(task_names=("=a, b's \xa0 'ü' \u200d 日本",)).task_names[0].startswith("=")


def test_batch_without_augmentation_ignores_the_generator():
    data = _dataset(inputs=torch.arange(6.0).view(3, 2))
    assert data.batch(torch.tensor([2]), torch.Generator()).tolist() == [[4.0, 5.0]]
    assert len(data) == 3
