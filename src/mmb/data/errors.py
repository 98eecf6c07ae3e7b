"""What can go wrong with a data set: exceptions that a command line can print without a traceback."""

from collections.abc import Iterable
from pathlib import Path


class DataError(Exception):
    """A data set cannot be obtained or read; the message says what to do about it."""


class MissingDataError(DataError, FileNotFoundError):
    """A file that the data set needs does not exist.

    Args:
        what: What is missing, for example `"tox21: the file tox21.csv"`; alone, the whole message (as when
            the exception comes from another process).
        looked_in: Every place that was searched.
        remedy: How to get it, as a sentence.
    """

    def __init__(self, what: str, looked_in: Iterable[Path | str] = (), remedy: str = "") -> None:
        places = "".join(f"\n  looked in: {place}" for place in looked_in)
        super().__init__(f"{what} is missing.{places}\n  to get it: {remedy}" if remedy else what)


class DamagedDataError(DataError, ValueError):
    """A file exists, but is not what it should be.

    Args:
        path: The file; alone, the whole message (as when the exception comes from another process).
        problem: What is wrong with it: what was found, and what was expected.
        remedy: What to do, as a sentence.
    """

    def __init__(self, path: Path | str, problem: str = "", remedy: str = "") -> None:
        super().__init__(f"{path} is damaged: {problem}.\n  what to do: {remedy}" if remedy else str(path))


class TableError(DataError, ValueError):
    """A table is sound, but what it says, or what is asked of it, does not fit.

    Args:
        path: The file; alone, the whole message (as when the exception comes from another process).
        problem: What does not fit: which column, which row, what was found there.
        remedy: What to do, as a sentence.
    """

    def __init__(self, path: Path | str, problem: str = "", remedy: str = "") -> None:
        super().__init__(f"{path}: {problem}.\n  what to do: {remedy}" if remedy else str(path))
