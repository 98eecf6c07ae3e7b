"""Data sets from what is in memory."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from mmb.data import make_dataset
from mmb.data.inputs.columns import plain_columns

INPUTS = torch.arange(60.0).reshape(20, 3)
LABELS = (torch.arange(20).unsqueeze(1) % torch.tensor([2, 5]) == 0).long()
ROWS = torch.tensor([4, 0, 7])


class Pairs(TorchDataset):
    def __len__(self):
        return 20

    def __getitem__(self, row):
        return {"x": INPUTS[row], "twice": 2 * INPUTS[row]}, LABELS[row]


class IterableRows(IterableDataset):
    def __iter__(self):
        return iter(INPUTS)


SHUFFLED = torch.randperm(20, generator=torch.Generator().manual_seed(0)).tolist()  # an index of a frame


@pytest.mark.parametrize(
    "inputs",
    [
        INPUTS,
        INPUTS.double(),
        INPUTS.double().numpy(),
        INPUTS.flip(0).numpy()[::-1],  # which torch cannot share
        pd.DataFrame(INPUTS.numpy(), index=SHUFFLED),
        INPUTS.tolist(),
        list(INPUTS),
        list(INPUTS.double().numpy()),
        TensorDataset(INPUTS),
        lambda rows: INPUTS[rows],
        lambda rows: INPUTS[rows].double().numpy(),
    ],
)
def test_rows_are_those_that_were_given(inputs):
    data = make_dataset(inputs, LABELS)
    assert torch.equal(data.batch(ROWS), INPUTS[ROWS])
    assert torch.equal(data.labels, LABELS.to(torch.int8))
    assert data.task_names == ("0", "1")
    assert sorted(torch.cat(list(data.split.values())).tolist()) == list(range(20))


@pytest.mark.parametrize(
    "labels", [LABELS.numpy(), LABELS.tolist(), pd.DataFrame(LABELS.numpy(), index=SHUFFLED).astype(float)]
)
def test_labels_of_any_kind(labels):
    assert torch.equal(make_dataset(INPUTS, labels).labels, LABELS.to(torch.int8))
    column = pd.Series([0.0, 1.0, None, 0.0] * 5, index=SHUFFLED)
    assert make_dataset(INPUTS, column).labels.flatten().tolist() == [0, 1, -1, 0] * 5


def test_inputs_of_several_parts():
    data = make_dataset({"x": INPUTS.double(), "twice": (2 * INPUTS).numpy()}, LABELS)
    for found in (data.batch(ROWS), data.to("cpu").batch(ROWS)):
        assert torch.equal(found["x"], INPUTS[ROWS])
        assert torch.equal(found["twice"], 2 * INPUTS[ROWS])
    arrays = make_dataset(lambda rows: {"x": INPUTS.numpy()[rows]}, LABELS)
    assert torch.equal(arrays.batch(ROWS)["x"], INPUTS[ROWS])


def test_pairs_of_inputs_may_have_labels_beside_them():
    pairs = list(zip(INPUTS, 2 * INPUTS[:, :2], strict=True))
    assert torch.equal(make_dataset(pairs, LABELS).batch(ROWS)[1], 2 * INPUTS[ROWS][:, :2])


def test_an_encoder_is_kept():
    encoder = plain_columns(["a", "b", "c"])
    assert make_dataset(INPUTS, LABELS, encoder=encoder).encoder is encoder


def test_a_torch_data_set_of_pairs_has_its_labels():
    data = make_dataset(Pairs())
    assert torch.equal(data.labels, LABELS.to(torch.int8))
    assert torch.equal(data.batch(ROWS)["twice"], 2 * INPUTS[ROWS])
    moved = data.to("cpu")
    assert torch.equal(moved.batch(ROWS)["x"], INPUTS[ROWS])


def test_one_task_gaps_and_a_split_of_ones_own():
    labels = np.array([0.0, 1.0, np.nan] * 6 + [0.0, 1.0])
    split = {"train": range(10), "valid": np.arange(10, 15), "test": [15, 16, 17, 18, 19]}
    data = make_dataset(INPUTS, labels, split=split, task_names=["only"])
    assert data.labels.shape == (20, 1)
    assert (data.labels == -1).sum() == 6
    assert data.split["test"].tolist() == [15, 16, 17, 18, 19]


def test_a_split_may_be_made_of_masks():
    rows = np.arange(20)
    masks = {"train": rows < 12, "valid": torch.tensor((rows >= 12) & (rows < 15)), "test": rows >= 15}
    data = make_dataset(INPUTS, LABELS, split=masks)
    assert [data.split[part].tolist() for part in masks] == [
        [*range(12)],
        [12, 13, 14],
        [*range(15, 20)],
    ]


def test_every_part_has_positives_of_rare_tasks():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    labels = (torch.rand(2000, 6, generator=generator) < rates).long()
    data = make_dataset(torch.zeros(2000, 1), labels, seed=3)
    counts = torch.stack([labels[data.split[part]].sum(0) for part in ("train", "valid", "test")])
    assert (counts > 0).all()
    rarest = labels[:, 0].sum()
    assert counts[1, 0] == pytest.approx(0.1 * rarest, abs=1)
    other = make_dataset(torch.zeros(2000, 1), labels, seed=4)
    assert not torch.equal(other.split["test"], data.split["test"])


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((INPUTS, LABELS[:5]), ValueError, "20 rows.*5"),
        ((INPUTS,), ValueError, "labels.*None.*Tensor"),
        ((3, LABELS), TypeError, "inputs.*int"),
        ((IterableRows(), LABELS), TypeError, r"inputs.*IterableDataset"),
        ((DataLoader(Pairs()),), TypeError, r"inputs.*DataLoader.*\.dataset"),
        ((INPUTS, LABELS + 1), ValueError, "labels"),
        ((Pairs(), LABELS), ValueError, "labels.*pairs"),
        (({"x": INPUTS, "y": INPUTS[:5]}, LABELS), ValueError, "inputs.*20.*5"),
        (({"x": ["text"]}, LABELS), TypeError, r"inputs\['x'\].*list"),
        (([[1.0, 2.0], [3.0]] * 10, LABELS), TypeError, "inputs.*one length.*list"),
        ((pd.DataFrame({"a": ["x"] * 20}), LABELS), TypeError, "inputs.*DataFrame"),
        ((INPUTS, pd.Series(["yes"] * 20)), TypeError, "labels.*Series"),
        ((list(INPUTS),), ValueError, "labels.*pairs.*Tensor"),
        ((pd.DataFrame(INPUTS.numpy()),), ValueError, "labels.*None.*DataFrame"),
    ],
)
def test_bad_rows_are_named(arguments, kind, message):
    with pytest.raises(kind, match=message):
        make_dataset(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": {"train": [0, 1, 2], "valid": [2], "test": []}}, r"row 2 is in train and in valid"),
        ({"split": {"train": [0, 1, 1], "valid": [2], "test": []}}, r"row 1 is in train and in train"),
        ({"split": {"train": [0, 1], "valid": [9], "test": []}}, r"split\['valid'\].*from 0 to 5"),
        ({"split": {"train": [0, 1], "valid": [-1], "test": []}}, r"split\['valid'\].*from 0 to 5"),
        ({"split": {"train": [0], "valid": [1.5], "test": []}}, r"split\['valid'\]: .*row numbers, got 1\.5"),
        ({"split": {"train": [True] * 5, "valid": [], "test": []}}, r"split\['train'\]: .*mask of 6 rows"),
        ({"split": {"train": [0] * 900, "valid": [], "test": []}}, r"row 0 is in train and in train:"),
        ({"task_names": ["a"]}, r"task_names.*each of 2 tasks, got 1"),
        ({"task_names": ["a", "a"]}, r"task_names: 'a' is there more than once"),
    ],
)
def test_splits_and_names_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_dataset(torch.zeros(6, 2), torch.zeros(6, 2), **options)
