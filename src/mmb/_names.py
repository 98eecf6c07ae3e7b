"""Names: as lists, the nearest or the first few of them in messages, and those of data sets and files."""

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

OWN_DATA = ("table", "csv", "molecules", "images")
"""Data sets that are a user's own files, of which nothing is known beforehand."""
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", ".zst", ".parquet", ".arrow", ".feather", ".ipc")
"""How names of tables end."""
_QUOTED = 60  # characters of a cell
_CONTROL = ("Cc", "Cs")  # Unicode categories: control characters, and halves of characters


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or else all of them.

    For example `"; did you mean 'tox21'?"` or `"; expected one of: digits, synthetic"`.
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of: {', '.join(known) or 'none'}"


def has_control(name: str) -> bool:
    """Whether a name has a character that would change the terminal or the table it is shown in."""
    return any(unicodedata.category(sign) in _CONTROL for sign in name)


def shown(cell: str) -> str:
    """A cell as a message quotes it: of a long one the start."""
    return repr(cell) if len(cell) <= _QUOTED else f"{cell[:_QUOTED]!r}... ({len(cell):,} characters)"


def first_few(names: Sequence[object], most: int = 5) -> str:
    """The first of some names or numbers, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def name_list(names: str | Sequence[str]) -> list[str]:
    """Column names from a list, or from one string with commas."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    return [str(name) for name in names]
