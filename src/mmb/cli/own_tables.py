"""Tables of the user's own, as people name them: what they are, and which of their columns are labels."""

import shlex
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from mmb._names import first_few
from mmb.cli.table_head import is_table, read_head
from mmb.cli.usage import UsageError

_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_SHOWN = 12  # columns of a file, in a message


def data_of(word: str) -> str | None:
    """The data set that reads the table which a word names; None if it names none.

    Raises:
        UsageError: If it names a file that cannot be read, such as a workbook.
    """
    path = Path(word).expanduser()
    if "://" in word:
        raise UsageError(f"{word} is an address: download the file, and give its path")
    if path.suffix.lower() in _WORKBOOKS:
        raise UsageError(f"{word} is a workbook: save the sheet as CSV (UTF-8), and give that file")
    if not is_table(path):
        return None
    head = read_head(path)
    return "molecules" if head.smiles() else "images" if head.images() else "table"


def columns_of(data: str, given: Mapping[str, str]) -> dict[str, str]:
    """Columns of SMILES and of image files, found by their names or cells where none are given.

    Args:
        data: One of `OWN_DATA`.
        given: Options of the data set.

    Raises:
        UsageError: If labels are missing; it says which columns may be.
    """
    if "path" not in given:
        raise UsageError("data.path is missing: which file? For example --path table.csv")
    path = Path(given["path"])
    if not is_table(path) or not path.exists():
        return {}
    head = read_head(path)
    if data in ("table", "csv") and "labels" not in given:
        likely = head.labels()
        example = _pattern(likely, head.names) or (head.names[-1] if head.names else "NAME")
        several = ": these say nothing but yes and no" if likely else ""
        columns = f" Its columns are {first_few(head.names, _SHOWN)}" if head.names else ""
        raise UsageError(
            f"which columns of {path} are labels? Say so with --labels, for example --labels "
            f"{shlex.quote(example)}{several}.{columns}"
        )
    smiles, images = head.smiles(), head.images()
    if data == "molecules" and "smiles" not in given and smiles not in (None, "smiles"):
        return {"smiles": str(smiles)}
    if data == "images" and "image" not in given and images and "file" not in head.names:
        return {"image": images}
    return {}


def _pattern(chosen: list[str], names: list[str]) -> str:
    """Some columns as one word: with commas or, if they are many that start alike, as a pattern."""
    letters = takewhile(lambda several: len({*several}) == 1, zip(*chosen, strict=False))
    start = "".join(several[0] for several in letters)
    if len(chosen) > _SHOWN and start and sum(name.startswith(start) for name in names) == len(chosen):
        return f"{start}*"
    return ",".join(chosen[:_SHOWN])
