"""The first rows of a user's table, read without importing what is slow, to answer what was typed."""

import csv
import gzip
import importlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mmb._cell_words import BLANK, NEGATIVE, POSITIVE
from mmb._names import TABLE_SUFFIXES

_ROWS = 20_000  # that are looked at, at most
_BYTES = 1 << 22  # of text
_GAPS = BLANK | {"-1", "-1.0"}
_ONES, _ZEROS = POSITIVE | {"1", "1.0"}, NEGATIVE | {"0", "0.0"}
_IMAGES = (".png", ".jpg", ".jpeg", ".dcm", ".tif", ".tiff", ".bmp", ".gif", ".webp")


@dataclass(frozen=True)
class TableHead:
    """Names of columns, and the cells of the first rows by column; nothing if the file cannot be read."""

    columns: dict[str, list[str]]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    def labels(self) -> list[str]:
        """The columns that may be labels: both signs, gaps, and nothing else."""
        return [name for name, cells in self.columns.items() if _are_labels(cells)]

    def smiles(self) -> str | None:
        """The column of SMILES, by its name."""
        found = [name for name in self.columns if "smiles" in name.lower()]
        exact = [name for name in found if name.lower() == "smiles"]
        return next(iter(exact or (found if len(found) == 1 else [])), None)

    def images(self) -> str | None:
        """The first column in which most cells are names of image files."""
        return next((name for name, cells in self.columns.items() if _are_images(cells)), None)


def is_table(path: Path) -> bool:
    """Whether a path is a table, by its name; or a folder of nothing else."""
    if path.is_dir():
        shown = [file for file in path.iterdir() if not file.name.startswith((".", "_"))]
        return bool(shown) and all(file.is_file() and is_table(file) for file in shown)
    return path.suffix.lower() in TABLE_SUFFIXES


def read_head(path: Path) -> TableHead:
    """The first rows of a table, or of the first file of a folder."""
    try:
        if path.is_dir():
            path = min(file for file in path.iterdir() if not file.name.startswith((".", "_")))
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith((b"PAR1", b"ARROW1")):
            polars = importlib.import_module("polars")
            scan = polars.scan_parquet if start.startswith(b"PAR1") else polars.scan_ipc
            frame = scan(path).head(_ROWS).collect()
            cells = ([str(cell) for cell in column.to_list()] for column in frame)
            return TableHead(dict(zip(frame.columns, cells, strict=True)))
        if start.startswith(b"\x28\xb5\x2f\xfd"):  # Zstandard
            return TableHead({})
        with (gzip.open if start.startswith(b"\x1f\x8b") else open)(path, "rb") as text:
            rows = list(islice(_rows(path, text.read(_BYTES)), _ROWS))
    except Exception:  # whatever is wrong with it is said when it is read
        return TableHead({})
    names, body = rows[0] if rows else [], [row for row in rows[1:] if len(row) == len(rows[0])]
    return TableHead({name.strip(): [row[place] for row in body] for place, name in enumerate(names)})


def _rows(path: Path, content: bytes) -> Iterator[list[str]]:
    text = content.decode("utf-8-sig", "replace")
    header = text.partition("\n")[0]
    tabs = "\t" in header and ".tsv" in [suffix.lower() for suffix in path.suffixes]
    separator = "\t" if tabs else "," if "," in header else max(";\t|", key=header.count)
    return filter(None, csv.reader(io.StringIO(text, newline=None), delimiter=separator))


def _are_labels(cells: list[str]) -> bool:
    found = {cell.strip().lower() for cell in cells}.difference(_GAPS)
    both = not found.isdisjoint(_ONES) and not found.isdisjoint(_ZEROS)
    return both and found <= _ONES | _ZEROS


def _are_images(cells: list[str]) -> bool:
    names = [name for cell in cells if (name := cell.strip().lower()) not in BLANK]
    return 2 * sum(name.endswith(_IMAGES) for name in names) > len(names)
