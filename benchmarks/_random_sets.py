"""Data sets of random values with the sizes of real ones, for timing where there are no files."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import torch

from mmb.data import Dataset
from mmb.data.inputs.images import ImageTensor, Pixels
from mmb.data.splits import random_split

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_graphs import random_graphs


@cache
def molecules(rows: int = 8192, tasks: int = 128, smallest: int = 16, largest: int = 36) -> Dataset:
    """Molecules of about 26 atoms and 56 directed bonds, as in molpcba.

    Args:
        rows: How many.
        tasks: Number of tasks.
        smallest: Fewest atoms.
        largest: Most atoms.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = random_graphs(rows, generator, smallest, largest)
    return Dataset("random molecules", inputs, *_labels(rows, tasks, generator))


@cache
def images(rows: int = 2048, side: int = 32, tasks: int = 10) -> Dataset:
    """Images of three channels.

    Args:
        rows: How many.
        side: Height and width.
        tasks: Number of tasks.
    """
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, generator=generator)
    return Dataset("random images", ImageTensor(pixels, Pixels.of()), *_labels(rows, tasks, generator))


def _labels(rows: int, tasks: int, generator: torch.Generator):
    """Labels of which a third are missing and few positive, as in molpcba, a split, and names of tasks."""
    drawn = torch.rand(rows, tasks, generator=generator)
    labels = (drawn < max(0.014, 8 / rows)).to(torch.int8).masked_fill_(drawn > 0.67, -1)
    split = random_split(rows, (0.9, 0.05, 0.05), generator)
    return labels, split, tuple(f"task {number}" for number in range(tasks))
