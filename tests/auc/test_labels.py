"""Label matrices: what is accepted, what is counted, what is refused."""

from __future__ import annotations

import warnings

import pytest
import torch

from mmb.auc import CrossEntropy, Labels

NAN = float("nan")


def test_counts_and_rates_are_over_all_rows():
    labels = Labels(torch.tensor([[1, 0], [0, -1], [0, 1], [-1, 1]], dtype=torch.int8))
    assert labels.positives.tolist() == [1, 2]
    assert labels.negatives.tolist() == [2, 1]
    assert labels.positive_rate.tolist() == [0.25, 0.5]
    assert labels.negative_rate.tolist() == [0.5, 0.25]
    assert (labels.num_rows, labels.num_tasks, labels.num_usable) == (4, 2, 2)


@pytest.mark.parametrize(
    "matrix",
    [
        torch.tensor([[1.0, NAN], [0.0, 1.0], [NAN, 0.0]]),
        torch.tensor([[1, -1], [0, 1], [-1, 0]]),
        torch.tensor([[1, -1], [0, 1], [-1, 0]], dtype=torch.int8),
        torch.tensor([[1, NAN], [0, 1], [NAN, 0]], dtype=torch.float16),
    ],
)
def test_missing_is_nan_or_minus_one(matrix):
    values = Labels(matrix).values
    assert values.dtype == torch.int8
    assert values.tolist() == [[1, -1], [0, 1], [-1, 0]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_types_without_gaps_and_single_task(dtype):
    labels = Labels(torch.tensor([1, 0, 0], dtype=dtype))
    assert labels.values.tolist() == [[1], [0], [0]]


def test_bytes_are_labels_of_batches_too():
    labels = torch.tensor([[1, 0], [0, 1], [0, 0]], dtype=torch.uint8)
    scores = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    objective = CrossEntropy(labels)
    assert torch.equal(objective(scores, labels), objective(scores, labels.to(torch.int8)))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.complex64])
def test_other_types_are_named(dtype):
    with pytest.raises(TypeError, match=rf"labels.*{dtype}"):
        Labels(torch.tensor([1, 0, 0]).to(dtype))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.tensor([[0, 1], [1, 2], [3, 0]]), r"got 2 .*index \[1, 1\]"),
        (torch.tensor([[0.0, 1.0], [1.0, 0.5]]), r"got 0.5 .*index \[1, 1\]"),
        (torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), r"got -1.0 .*index \[1, 0\]"),
        (torch.tensor([[0.0, 1.0], [1.0, float("inf")]]), r"got inf"),
        (torch.tensor([[0, 1], [1, -2]]), r"got -2"),
        (torch.tensor([[0, 1], [1, 255]], dtype=torch.uint8), r"got 255 .*index \[1, 1\]"),
        (torch.full((3, 2), -1), "missing"),
        (torch.full((3, 2), NAN), "missing"),
        (torch.ones(3, 2), r"positives.*3, 3.*negatives.*0, 0"),
        (torch.zeros(0, 3), "empty"),
        (torch.zeros(2, 2, 2), r"\[rows, tasks\] or \[rows\]"),
    ],
)
def test_bad_labels_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        Labels(matrix)


def test_only_tensors():
    with pytest.raises(TypeError, match=r"torch.as_tensor"):
        Labels([[0, 1]])


def test_one_warning_lists_all_tasks_left_out():
    matrix = torch.tensor([[1, 1, 0, -1, 1], [0, 1, 0, -1, 0]])
    with pytest.warns(UserWarning, match=r"3 of 5 tasks .* left out: 1, 2, 3") as caught:
        labels = Labels(matrix)
    assert len(caught) == 1
    assert labels.usable.tolist() == [True, False, False, False, True]
    assert labels.num_usable == 2


def test_long_lists_are_cut():
    matrix = torch.zeros(2, 100, dtype=torch.int8)
    matrix[0, 0] = 1
    with pytest.warns(UserWarning, match="and 79 more"):
        Labels(matrix)


def test_no_warning_without_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Labels(torch.tensor([[1, 0], [0, 1]]))
