"""Random mutations of valid tables and recipes, and what must hold for each: refused, or read as it says."""

import csv
import gzip
import io
import random
import warnings
from pathlib import Path

import polars
import torch
import yaml
import zstandard

import mmb.data
from mmb.data import DataError
from mmb.training import RecipeError, read_recipe, resolve

LABELS = {"1": 1, "0": 0, "yes": 1, "no": 0, "true": 1, "false": 0}
BLANK = {"", "na", "n/a", "nan", "null", "none", "?"}
ODD = ["", "NA", "nan", "-1", "2", "1.0", "0.0", "yes", "No", "x", "1e999", "inf", "-", " 1 ", "é", '"']
ODD += ["1_0", "0x1", "1,5", "\t", "2024-01-31", "TRUE", "1e-400", "−1", "one", "0.5", "1.", "00", "+1"]
ODD += ["1 0", '"1"', "\x1f1", "1\u2003"]
BYTES = [b'"', b"\r", b"\n", b",", b";", b"\0", b"\xff", b"\xef\xbb\xbf"]
FORMATS = ("csv", "csv", "csv", "tsv", "semicolon", "gz", "zst", "parquet", "arrow")
REFUSALS = (DataError, ValueError, RecipeError)


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


def says(path: Path, kind: str) -> list[list[int]] | None:
    """What the labels of a table are, read in the plainest way; None if it cannot be read so."""
    try:
        if kind in ("parquet", "arrow"):
            frame = polars.read_parquet(path) if kind == "parquet" else polars.read_ipc(path)
            columns = [frame[name].cast(polars.String).fill_null("").to_list() for name in ("sick", "old")]
        else:
            expand = {"gz": gzip.decompress, "zst": _expand}.get(kind, bytes)
            text = expand(path.read_bytes()).decode("utf-8-sig")
            head = next((line for line in io.StringIO(text, newline="") if line.strip("\r\n")), "")
            separator = "\t" if kind == "tsv" else "," if "," in head else max(";\t|", key=head.count)
            lines = [
                row
                for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
                if row
            ]
            names = [name.strip() for name in lines[0]]
            if any(len(row) != len(names) for row in lines):
                return None
            columns = [[row[names.index(name)] for row in lines[1:]] for name in ("sick", "old")]
        return [[_label(cell) for cell in row] for row in zip(*columns, strict=True)]
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


class Mutations:
    """Runs cases by number, and counts what happens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outcomes = folder, {"refused": 0, "read": 0}

    def run(self, number: int) -> None:
        """One case; any exception but a refusal, and any wrong label, is a failure."""
        draw = random.Random(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = self._recipe(draw) if draw.random() < 0.2 else self._table(draw)
        self.outcomes[outcome] += 1

    def _table(self, draw: random.Random) -> str:
        kind, rows = draw.choice(FORMATS), make_rows(draw)
        by_cells = kind not in ("parquet", "arrow") and draw.random() < 0.6
        if by_cells:
            for _ in range(draw.randrange(1, 4)):
                mutate_cells(rows, draw)
        path = write(rows, kind, self.folder)
        if not by_cells:
            path.write_bytes(mutate_bytes(path.read_bytes(), draw))
        options = {"path": path, "labels": "sick,old", "split": draw.choice(["random", "stratified"])}
        from mmb.data.files import frames
        from mmb.data.sets import table

        kept, table._SMALL = table._SMALL, draw.choice([table._SMALL, -1])
        block, frames._BLOCK = frames._BLOCK, draw.choice([64, 500, frames._BLOCK])
        try:
            dataset = mmb.data.load("table", self.folder / "root", **options)
        except REFUSALS as error:
            if not str(error).strip():
                raise AssertionError("a refusal without a message") from error
            return "refused"
        finally:
            table._SMALL, frames._BLOCK = kept, block
        expected = says(path, kind)
        assert expected is not None, f"{path.name}: read, though it cannot be understood"
        assert dataset.labels.tolist() == expected, f"{path.name}: other labels than it has"
        assert torch.cat(list(dataset.split.values())).sort().values.tolist() == list(range(len(expected)))
        return "read"

    def _recipe(self, draw: random.Random) -> str:
        plain = {
            "method": draw.choice(["ce", "pauc", "auc"]),
            "data": {"name": "table", "path": "t.csv", "labels": ["sick", "old"], "seed": 3},
            "model": {"name": "mlp", "hidden": [8]},
            "training": {"steps": 5, "max_fpr": 0.1},
            "optimizer": {"lr": 0.01},
        }
        path = self.folder / "recipe.yaml"
        if draw.random() < 0.5:
            section = draw.choice(list(plain))
            odd = draw.choice(
                [None, -1, "x", [], {}, 1e99, True, "", "NaN", [1, "a"], {"a": 1}, "2024-01-31"]
            )
            if isinstance(plain[section], dict) and draw.random() < 0.8:
                key = draw.choice([*plain[section], "nmae", "1", ""])
                plain[section][key] = odd
            else:
                plain[section] = odd
            path.write_text(yaml.safe_dump(plain), encoding="utf-8")
        else:
            path.write_bytes(mutate_bytes(yaml.safe_dump(plain).encode(), draw))
        try:
            resolve(read_recipe(path))
        except REFUSALS as error:
            if not str(error).strip():
                raise AssertionError("a refusal without a message") from error
            return "refused"
        return "read"
