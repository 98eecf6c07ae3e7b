"""The packaged split against the published files, where `$MMB_OGB_FILES` names a folder with them."""

import gzip
import os
from pathlib import Path

import pytest
import torch

import mmb.data
from mmb.data.sets.molpcba import official_split

np = pytest.importorskip("numpy")
published = pytest.mark.skipif("MMB_OGB_FILES" not in os.environ, reason="$MMB_OGB_FILES is not set")
prepared = pytest.mark.skipif(
    not (mmb.data.default_root() / "molpcba" / "graph").exists(), reason="molpcba is not prepared"
)


def _numbers(name):
    with gzip.open(Path(os.environ["MMB_OGB_FILES"], name), "rt") as file:
        return torch.tensor([int(line) for line in file])


def test_the_split_has_the_published_sizes():
    split = official_split()
    assert {part: len(rows) for part, rows in split.items()} == {
        "train": 350343,
        "valid": 43793,
        "test": 43793,
    }
    assert torch.equal(torch.cat(list(split.values())).sort().values, torch.arange(437929))
    assert split["train"][:5].tolist() == [0, 1, 2, 3, 5]
    assert split["valid"][:5].tolist() == [23, 26, 27, 30, 43]
    assert split["test"][:5].tolist() == [4, 8, 37, 59, 61]


@published
def test_the_split_is_the_published_one():
    for part, rows in official_split().items():
        assert torch.equal(rows, _numbers(f"split/scaffold/{part}.csv.gz"))


@published
@prepared
def test_graphs_have_the_published_sizes():
    data = mmb.data.load("molpcba")
    atoms, edges = data.inputs.host_ptr.diff()
    assert torch.equal(atoms, _numbers("num-node-list.csv.gz"))
    assert torch.equal(edges, 2 * _numbers("num-edge-list.csv.gz"))
