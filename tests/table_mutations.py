"""Random mutations of valid tables and recipes, and what must hold for each: refused, or read as it says."""

import csv
import gzip
import io
import random
import tempfile
import warnings
from itertools import combinations, pairwise
from pathlib import Path

import polars
import torch
import yaml
import zstandard

import mmb.data
from mmb.data import DataError
from mmb.training import RecipeError, Run, RunError, TrainingError, read_recipe, resolve, train
from new_files import read_new

LABELS = {"1": 1, "0": 0, "yes": 1, "no": 0, "true": 1, "false": 0, "y": 1, "n": 0, "t": 1, "f": 0}
LABELS |= {"positive": 1, "negative": 0, "pos": 1, "neg": 0, "active": 1, "inactive": 0}
BLANK = {"", ".", "#n/a", "<na>", "na", "n/a", "nan", "null", "none", "?"}
ODD = ["", "NA", "nan", "-1", "2", "1.0", "0.0", "yes", "No", "x", "1e999", "inf", "-", " 1 ", "é", '"']
ODD += ["1_0", "0x1", "1,5", "\t", "2024-01-31", "TRUE", "1e-400", "−1", "one", "0.5", "1.", "00", "+1"]
ODD += ["1 0", '"1"', "\x1f1", "1\u2003", "N", "Active", "neg", "t"]
BYTES = [b'"', b"\r", b"\n", b",", b";", b"\0", b"\xff", b"\xef\xbb\xbf"]
VALUES = [None, -1, 0, 1, 0.5, 1e99, True, "x", "", "NaN", "a:b", "2024-01-31"]
VALUES += [[], {}, [0], [1, "a"], {"a": 1}]
FORMATS = ("csv", "csv", "csv", "tsv", "semicolon", "gz", "zst", "parquet", "arrow")
REFUSALS = (DataError, ValueError, RecipeError, RunError, TrainingError)


def make_rows(draw: random.Random) -> list[list[str]]:
    """A header and rows: two numbers, a name, two labels with gaps."""
    rows = [["x", "z", "kind", "sick", "old"]]
    for _ in range(draw.randrange(30, 60)):
        x, z = f"{draw.gauss(0, 1):.4f}", draw.choice(["", str(draw.randrange(100))])
        rows.append([x, z, draw.choice("abc"), draw.choice(["0", "1"]), draw.choice(["0", "1", "", "0"])])
    return rows


def write(rows: list[list[str]], kind: str, folder: Path) -> Path:
    """Write rows in a format."""
    separator = {"tsv": "\t", "semicolon": ";"}.get(kind, ",")
    text = "".join(separator.join(row) + "\n" for row in rows).encode()
    path = folder / {"semicolon": "t.csv", "gz": "t.csv.gz", "zst": "t.csv.zst"}.get(kind, f"t.{kind}")
    if kind in ("parquet", "arrow"):
        frame = polars.read_csv(text)
        getattr(frame, "write_parquet" if kind == "parquet" else "write_ipc")(path)
    else:
        path.write_bytes({"gz": gzip.compress, "zst": zstandard.compress}.get(kind, bytes)(text))
    return path


def mutate_cells(rows: list[list[str]], draw: random.Random) -> None:
    """Change cells, rows or the header."""
    row, column = draw.randrange(len(rows)), draw.randrange(5)
    what = draw.randrange(6)
    if what < 3 and rows[row]:
        rows[row][column % len(rows[row])] = draw.choice(ODD)
    elif what == 3:
        rows[row] = rows[row][: draw.randrange(6)]
    elif what == 4:
        rows[row] = [*rows[row], draw.choice(ODD)]
    else:
        rows.insert(row, draw.choice([[], [""], list(rows[row]), list(rows[0])]))


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    """Change, insert, delete or repeat bytes."""
    place, what = draw.randrange(max(1, len(content))), draw.randrange(5)
    if what == 0:
        return content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]
    if what == 1:
        return content[:place] + draw.choice(BYTES) + content[place:]
    if what == 2:
        return content[:place] + content[place + draw.randrange(1, 30) :]
    if what == 3:
        return content[: place + 20] + content[place:]
    return content[:place]


def read_plainly(path: Path, kind: str) -> list:
    """Separator, header and rows of a table, read in the plainest way; any error if it cannot be read so."""
    if kind in ("parquet", "arrow"):
        frame = polars.read_parquet(path) if kind == "parquet" else polars.read_ipc(path)
        columns = [frame[name].cast(polars.String).fill_null("").to_list() for name in frame.columns]
        return [",", frame.columns, *map(list, zip(*columns, strict=True))]
    expand = {"gz": gzip.decompress, "zst": _expand}.get(kind, bytes)
    text = expand(path.read_bytes()).decode("utf-8-sig")
    head = next((line for line in io.StringIO(text, newline="") if line.strip("\r\n")), "")
    separator = "\t" if kind == "tsv" else "," if "," in head else max(";\t|", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header, *rows = [row for row in reader if row]
    return [separator, [name.strip() for name in header], *rows]


def says(path: Path, kind: str, positive: bool) -> dict | None:
    """Separator, cells and labels by column, read in the plainest way; None if they cannot be read so."""
    try:
        separator, header, *rows = read_plainly(path, kind)
        if any(len(row) != len(header) for row in rows):
            return None
        found = {name: [row[place] for row in rows] for place, name in enumerate(header)}
        for name in ("sick", "old"):
            commas = separator == ";" and not positive  # 1,0 is a number
            cells = [cell.replace(",", ".", 1) if commas else cell for cell in found[name]]
            found[name] = [(_chosen if positive else _label)(cell) for cell in cells]
        return {**found, "separator": separator}
    except Exception:  # whatever is wrong with it
        return None


def _expand(content: bytes) -> bytes:
    with zstandard.open(io.BytesIO(content), "rb") as file:
        return file.read()


def _label(cell: str) -> int:
    cell = cell.strip().lower()
    if cell in BLANK or cell == "-1":
        return -1
    if cell in LABELS:
        return LABELS[cell]
    value = float(cell)
    if value not in (-1, 0, 1) or "_" in cell:
        raise ValueError(cell)
    return int(value)


def _chosen(cell: str) -> int:
    """A label where 1 and yes are positive, and all others negative."""
    cell = cell.strip()
    if cell.lower() in BLANK:
        return -1
    try:
        return int(float(cell) == 1 and "_" not in cell)
    except ValueError:
        return int(cell == "yes")


SPLITS = ({}, {}, {"split": "stratified"}, {"group": "kind"}, {"time": "x"}, {"folds": 4, "fold": 1})


class Mutations:
    """Runs cases by number, and counts what happens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outcomes = folder, {"refused": 0, "read": 0, "rows scored": 0, "trained": 0}
        rows = make_rows(random.Random(0))
        self.sound = write([*rows, *(row for k in range(3) for row in rows[1:])], "csv", folder).rename(
            folder / "sound.csv"
        )
        data = mmb.data.load("table", folder / "root", path=self.sound, labels="sick,old")
        self.encoder = data.encoder

    def run(self, number: int) -> None:
        """One case; any exception but a refusal, and any wrong label or row, is a failure."""
        draw = random.Random(number)
        case = draw.choices([self._table, self._new_rows, self._recipe], [0.6, 0.2, 0.2])[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.outcomes[case(draw)] += 1

    def _mutated(self, draw: random.Random) -> tuple[Path, str]:
        """A table with some mutations, and its format."""
        kind, rows = draw.choice(FORMATS), make_rows(draw)
        by_cells = kind not in ("parquet", "arrow") and draw.random() < 0.6
        if by_cells:
            for _ in range(draw.randrange(1, 4)):
                mutate_cells(rows, draw)
        path = write(rows, kind, self.folder)
        if not by_cells:
            path.write_bytes(mutate_bytes(path.read_bytes(), draw))
        return path, kind

    def _table(self, draw: random.Random) -> str:
        """A table to train on: labels are those that it says, and no split leaks."""
        path, kind = self._mutated(draw)
        split, positive = draw.choice(SPLITS), draw.random() < 0.2
        options = {"path": path, "labels": "sick,old", **split} | ({"positive": "1,yes"} if positive else {})
        from mmb.data.files import frames
        from mmb.data.sets import table

        kept, table._SMALL = table._SMALL, draw.choice([table._SMALL, -1])
        block, frames._BLOCK = frames._BLOCK, draw.choice([64, 500, frames._BLOCK])
        try:
            dataset = mmb.data.load("table", self.folder / "root", **options)
        except REFUSALS as error:
            return _refused(error)
        finally:
            table._SMALL, frames._BLOCK = kept, block
        expected = says(path, kind, positive)
        assert expected is not None, f"{path.name}: read, though it cannot be understood"
        labels = zip(expected["sick"], expected["old"], strict=True)
        assert dataset.labels.tolist() == [*map(list, labels)], f"{path.name}: other labels than it has"
        parts = [rows.tolist() for rows in dataset.split.values() if len(rows)]
        assert sorted(row for rows in parts for row in rows) == [*range(len(dataset))]
        if "group" in split:
            groups = [{expected["kind"][row].strip() for row in rows} for rows in parts]
            assert all(one.isdisjoint(other) for one, other in combinations(groups, 2)), "a divided group"
        if "time" in split:
            commas = expected["separator"] == ";"
            cells = [cell.replace(",", ".") if commas else cell for cell in expected["x"]]
            times = [[float(cells[row].strip()) for row in rows] for rows in parts]
            assert all(max(one) < min(other) for one, other in pairwise(times)), "time goes back"
        return "read"

    def _new_rows(self, draw: random.Random) -> str:
        """A table to score: each row is refused, or becomes what its cells would in a sound table."""
        path, kind = self._mutated(draw)
        try:
            found = list(self.encoder.batches(path))
        except REFUSALS as error:
            return _refused(error)
        inputs = torch.cat([batch.inputs for batch in found])
        problems = [problem for batch in found for problem in batch.problems]
        separator, header, *rows = read_plainly(path, kind)
        assert len(rows) == len(problems), f"{path.name}: {len(problems)} rows, though it has {len(rows)}"
        fitting = [k for k, row in enumerate(rows) if len(row) == len(header)]
        assert all(problems[k] for k in range(len(rows)) if k not in fitting), "a row that does not fit"
        with (self.folder / "again.csv").open("w", newline="", encoding="utf-8") as file:
            separator = ";" if separator == ";" else ","  # with semicolons, 1,5 is a number
            writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL)
            writer.writerows([header, *(rows[k] for k in fitting)])
        again, usable = read_new(self.encoder, self.folder / "again.csv")
        assert [not problems[k] for k in fitting] == usable.tolist(), f"{path.name}: other rows can be used"
        assert torch.equal(inputs[fitting][usable], again[usable]), f"{path.name}: other inputs"
        return "rows scored"

    def _recipe(self, draw: random.Random) -> str:
        """A recipe: what is not refused can be trained."""
        plain = {
            "method": draw.choice(["ce", "pauc", "auc"]),
            "data": {"name": "table", "path": str(self.sound), "labels": ["sick", "old"], "seed": 3},
            "model": {"name": "mlp", "hidden": [8], "dropout": 0.1, "ranges": 4},
            "sampler": {"batch_size": 16, "rich_fraction": 0.5},
            "training": {"steps": 2, "max_fpr": 0.1, "device": "cpu", "tensorboard": False},
            "schedule": {"name": "cosine", "warmup": 1},
            "optimizer": {"lr": 0.01, "betas": [0.9, 0.99], "clip": 1.0},
        }
        path = self.folder / "recipe.yaml"
        if draw.random() < 0.5:
            section = draw.choice(list(plain))
            odd = draw.choice(VALUES)
            if isinstance(plain[section], dict) and draw.random() < 0.8:
                key = draw.choice([*plain[section], "nmae", "1", ""])
                plain[section][key] = odd
            else:
                plain[section] = odd
            path.write_text(yaml.safe_dump(plain), encoding="utf-8")
        else:
            path.write_bytes(mutate_bytes(yaml.safe_dump(plain).encode(), draw))
        try:
            recipe = resolve(read_recipe(path))
            if recipe.training.length > 50:  # a mutation may make it long
                return "read"
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                train(Run.create(Path(folder) / "run", recipe))
        except REFUSALS as error:
            return _refused(error)
        return "trained"


def _refused(error: Exception) -> str:
    if not str(error).strip():
        raise AssertionError("a refusal without a message") from error
    return "refused"
