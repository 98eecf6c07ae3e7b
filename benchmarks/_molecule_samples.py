"""Sets of molecules on which nothing was chosen, from the archive that `mmb data get tox21` fetches.

Of large ones, every fortieth molecule, with the tasks that have some labels of both kinds among these.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

import mmb.data

SAMPLES = {
    "BACE": "bace",
    "PDBbind, tight": "pdbbind_full",
    "PCBA, sample": "pcba",
    "ChEMBL, sample": "chembl",
}
_EVERY = {"pcba": 40, "chembl": 40}
_FEWEST = 20  # labels of each kind that a task has
_TIGHT = 0.9  # share of affinities below those called positive


def write_sample(title: str, path: Path) -> None:
    """Write the sample of a title as a CSV file with a column `smiles`."""
    name = SAMPLES[title]
    header, *rows = _rows(name, _EVERY.get(name, 1))
    # Some files are sorted by their labels, and scaffolds that are equally common are split in order.
    rows = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    cells = np.array([row[1:] for row in rows])
    numbers = np.where(cells == "", np.nan, np.where(cells == "", "0", cells).astype(float))
    if name == "pdbbind_full":
        numbers = (numbers > np.quantile(numbers, _TIGHT)).astype(float)
    negatives, positives = ((numbers == kind).sum(0) for kind in (0, 1))
    tasks = np.flatnonzero(np.minimum(negatives, positives) >= _FEWEST)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", *(header[1 + task] for task in tasks)])
        for row, labels in zip(rows, numbers[:, tasks], strict=True):
            writer.writerow([row[0], *("" if np.isnan(label) else int(label) for label in labels)])


def _rows(name: str, every: int) -> Iterator[Sequence[str]]:
    """The header of a table in the archive, and every so many of its rows."""
    with tarfile.open(mmb.data.default_root() / "downloads" / "data.tar.gz") as archive:
        member = archive.extractfile(f"data/{name}.csv")
        assert member is not None
        lines = csv.reader(io.TextIOWrapper(member, encoding="utf-8"))
        yield next(lines)
        yield from islice(lines, 0, None, every)
