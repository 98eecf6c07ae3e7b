"""Your own images: a CSV file with a column of file names and label columns, gaps allowed.

PNG, JPEG and what else Pillow reads, 16-bit images, and DICOM with the extra `dicom`. Images become squares
of one size, decoded once by worker processes and cached under the root by their names, sizes and times of
change. They are augmented on the device. Labels: 1 / 0 (also true / false, yes / no, positive / negative, or
what `positive` says), blank if not known. Split at random by the seed, also stratified by labels or with
groups, such as patients, kept whole; into folds; in order of time; by a column that says train, valid or
test; or by a file for each part.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch

from mmb._names import name_list
from mmb.data.dataset import Dataset, Progress
from mmb.data.errors import DamagedDataError, DataError, MissingDataError, TableError
from mmb.data.files import cache
from mmb.data.files.table import Table, TextTable, is_blank, joined
from mmb.data.files.table_formats import read_training_table
from mmb.data.inputs.augmentation import check_names
from mmb.data.inputs.column_roles import check_columns, choose_labels, find_columns, find_owners
from mmb.data.inputs.image_cache import CachedImages, build_cache
from mmb.data.inputs.image_decoder import Decoder, Fit
from mmb.data.inputs.image_encoder import ImageEncoder
from mmb.data.inputs.images import Pixels
from mmb.data.inputs.label_reader import read_labels
from mmb.data.inputs.table_split import TableSplit, own_parts

Files = list[tuple[Path, os.stat_result | None]]
"""The file of each row, with its size and time of change; None for one that is missing."""
_FEW = 5  # files in a message


def prepare(
    store: Path,
    *,
    path: str | Path,
    image: str = "file",
    root: str | Path | None = None,
    suffix: str = "",
    size: int = 224,
    fit: Fit = "crop",
    gray: bool = False,
    bits: Literal[8, 16] = 8,
    window: tuple[float, float] | None = None,
    unreadable: Literal["refuse", "skip"] = "refuse",
    valid_path: str | Path | None = None,
    test_path: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Decode every image once; options are those of `load`. A damaged cache is built again."""
    tables = _read(path, valid_path, test_path)
    files = _files(tables, image, root, suffix, unreadable)
    decoder = Decoder(size, gray, fit, bits, window)
    folder = _cache_of(store, files, decoder)
    return folder if cache.is_intact(folder) else _build(folder, files, decoder, workers, progress)


def load(
    store: Path,
    *,
    path: str | Path,
    image: str = "file",
    root: str | Path | None = None,
    suffix: str = "",
    labels: str | Sequence[str] | None = None,
    positive: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split: Literal["random", "stratified"] = "random",
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    folds: int = 0,
    fold: int = 0,
    valid_path: str | Path | None = None,
    test_path: str | Path | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    size: int = 224,
    fit: Fit = "crop",
    gray: bool = False,
    bits: Literal[8, 16] = 8,
    window: tuple[float, float] | None = None,
    augment: str | Sequence[str] = "shift",
    unreadable: Literal["refuse", "skip"] = "refuse",
    workers: int | None = None,
) -> Dataset:
    """Load images, preparing them if needed; `details["unusable_rows"]` are those that were skipped.

    Args:
        store: The cache is in `store/images`.
        path: The file: CSV with a header line, UTF-8 (tab-separated if its name ends in `.tsv`).
        image: Name of the column with file names.
        root: Folder that these names start from; by default that of the CSV file.
        suffix: Added to every name, such as `.jpg`.
        labels: Names of the label columns, or patterns such as `finding_*`; by default all columns that are
            not used otherwise, and do not mostly hold something else.
        positive: Cells that mean positive; all others that are not blank are negative. By default labels
            are 1 and 0, yes and no, and the like.
        drop: Columns to leave out, such as identifiers; names or patterns.
        split: `"random"`, or `"stratified"`: positives of every task in every part, where there are enough.
        split_column: Column that says train, valid or test for each row.
        group: Column that says which rows belong together, such as a patient: no group is divided.
        time: Column of numbers or dates: the earliest rows train, the latest test.
        folds: Divide the rows into so many folds, at least 3; 0 for none.
        fold: Which of the folds tests; the next one is for validation. All others train.
        valid_path: A CSV file of its own for the validation rows.
        test_path: A CSV file of its own for the test rows.
        fractions: Of train, valid and test. Parts with a file of their own count as nothing.
        seed: Seed of the random split.
        size: Height and width of the images.
        fit: `"crop"` cuts out the largest centered square, `"stretch"` squeezes, `"pad"` adds black bars.
        gray: Keep one channel, a third of the bytes; models still get three, all the same.
        bits: 16 keeps what 16-bit and DICOM images have beyond 8 bits.
        window: Values of 16-bit and DICOM images that become black and white; by default the window that a
            DICOM file states (or else the range of its values), and the whole range of other 16-bit images.
        augment: Random changes in training: `shift` (by up to a sixteenth), `flip` (left to right),
            `flip_vertical`, `turn` (by quarters), `rotate` (by up to 10 degrees), `zoom`, `brightness`,
            `contrast`.
        unreadable: What to do about images that are missing or damaged: `"refuse"`, or `"skip"` their rows,
            which then belong to no part of the split.
        workers: Number of decoding processes; by default one per core.
    """
    if workers is not None and workers < 0:
        raise ValueError(f"workers: expected at least 0 processes, got {workers}")
    tables = _read(path, valid_path, test_path)
    table = joined(tables, tables[0].column_names)
    changes = check_names(name_list(augment))
    own = own_parts(valid_path, test_path)
    how = TableSplit(fractions, seed, split, split_column, group, time, folds, fold, own)
    dropped = find_columns(table, drop)
    check_columns(table, image=[image], drop=dropped, **{o: [name] for o, name in how.columns.items()})
    aside = [image, *dropped, *how.columns.values()]
    tasks, left_out = choose_labels(table, labels, aside, positive)
    check_columns(table, labels=tasks)
    label_matrix = read_labels(table, tasks, positive)
    parts = how.divide(table, label_matrix, [len(one) for one in tables])
    files = _files(tables, image, root, suffix, unreadable)
    decoder = Decoder(size, gray, fit, bits, window)
    folder = _cache_of(store, files, decoder)
    try:
        arrays, facts = cache.read(folder)
    except DamagedDataError:  # or not there yet
        arrays, facts = cache.read(_build(folder, files, decoder, workers, None))
    usable = arrays["usable"]
    if facts["problems"] and (unreadable == "refuse" or not bool(usable.any())):
        raise _refusal(table, image, {int(row): text for row, text in facts["problems"].items()})
    pixels = Pixels.of(
        pad=size // 16 if "shift" in changes else 0,
        flip="flip" in changes,
        changes=tuple(name for name in changes if name not in ("shift", "flip")),
    )
    return Dataset(
        name="images",
        inputs=CachedImages(arrays["images"], pixels, cache.checksum(folder, "images")),
        labels=label_matrix,
        split={part: rows[usable[rows]] for part, rows in parts.items()},
        task_names=tuple(tasks),
        encoder=ImageEncoder(
            decoder, column=image, root=None if root is None else str(Path(root).resolve()), suffix=suffix
        ),
        details={
            "path": str(path),
            **how.facts(table),
            "seed": seed,
            "size": size,
            "unusable_rows": torch.nonzero(~usable).squeeze(1).tolist(),
            "left_out": left_out,
            "owners": find_owners(table, left_out),
        },
    )


def _read(*paths: str | Path | None) -> list[TextTable]:
    """The tables of the files that are given."""
    return [read_training_table(Path(path)) for path in paths if path is not None]


def _files(
    tables: Sequence[Table], image: str, root: str | Path | None, suffix: str, unreadable: str
) -> Files:
    """Find the file of each row, and refuse missing ones if asked to."""
    found = [_files_of(table, image, root, suffix, unreadable) for table in tables]
    return [file for files in found for file in files]


def _files_of(table: Table, image: str, root: str | Path | None, suffix: str, unreadable: str) -> Files:
    folder = table.path.parent if root is None else Path(root)
    names = table.cells(image)
    blank = [is_blank(name) for name in names]
    if unreadable == "refuse":
        table.refuse_rows(blank, f"no file name in column {image!r}")
        if not folder.is_dir():
            raise MissingDataError(
                f"the folder of the images (data.root={folder})",
                [folder.absolute()],
                "name the folder that the names in the table start from: data.root=DIR",
            )
    files: Files = []
    for name, is_empty in zip(names, blank, strict=True):
        file = folder / f"{name.strip()}{suffix}"
        try:
            found = None if is_empty or not file.is_file() else file.stat()
        except (OSError, ValueError):  # names that no file can have
            found = None
        files.append((file, found))
    missing = {row: f"{file} is missing" for row, (file, found) in enumerate(files) if found is None}
    if len(missing) == len(files) or (missing and unreadable == "refuse"):
        raise _refusal(table, image, missing)
    return files


def _cache_of(store: Path, files: Files, decoder: Decoder) -> Path:
    known = [
        (str(file.absolute()), None if found is None else (found.st_size, found.st_mtime_ns))
        for file, found in files
    ]
    key = json.dumps([known, asdict(decoder)])
    return store / "images" / hashlib.sha256(key.encode()).hexdigest()[:16]


def _build(
    folder: Path, files: Files, decoder: Decoder, workers: int | None, progress: Progress | None
) -> Path:
    paths = [None if found is None else file for file, found in files]
    return build_cache(folder, paths, decoder, workers, progress)


def _refusal(table: Table, column: str, problems: dict[int, str]) -> DataError:
    """An error that names the first images that cannot be used."""
    few = [(*table.locate(row), " ".join(text.split())) for row, text in problems.items()][:_FEW]
    listed = "".join(f"\n  data row {row}: {text}" for path, row, text in few if path == few[0][0])
    return TableError(
        few[0][0],
        f"{len(problems)} of {len(table)} images in column {column!r} cannot be used "
        f"(rows are counted from 1 after the header):{listed}",
        "correct the files, their names, the folder (data.root=DIR) or the suffix (data.suffix=.png), "
        "or leave these rows out: data.unreadable=skip",
    )
