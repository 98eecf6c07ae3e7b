"""What each column of a table is for: labels, features or another use, by name or by what it holds."""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from mmb._names import first_few, has_control, name_list
from mmb.data.errors import TableError
from mmb.data.files.table import Table
from mmb.data.inputs.label_reader import no_label

_SHOWN = 12  # different cells of a column, in a message
_OWNER = re.compile(
    r"(^|_|\W)(patient|subject|person|participant|donor|family|household|customer|client|user|member|"
    r"id|identifier)(_?(id|nr|no|number|key))?$|[a-z]ID$",
    re.IGNORECASE,
)  # names of columns that say whom a row belongs to


def find_columns(table: Table, names: str | Sequence[str], reserved: Collection[str] = ()) -> list[str]:
    """Column names, in which `*` and `?` stand for any letters and any letter.

    Such a pattern finds no reserved columns. A name or pattern that finds nothing is kept as it is.
    """
    columns, chosen = table.column_names, list[str]()
    if isinstance(names, str) and names.strip() in columns:
        return [names.strip()]  # also with commas in it
    for name in name_list(names):
        pattern = name not in columns and ("*" in name or "?" in name)
        found = [c for c in columns if c not in reserved and fnmatchcase(c, name)] if pattern else []
        chosen += [c for c in found if c not in chosen] or [name]
    return chosen


def choose_columns(
    table: Table, argument: str, names: str | Sequence[str] | None, reserved: Collection[str] = ()
) -> list[str]:
    """The columns that an argument names; if it is None, all but those that are reserved for other uses."""
    if names is None:
        chosen = [name for name in table.column_names if name not in reserved]
        if not chosen:
            used = first_few([*reserved], _SHOWN)
            raise TableError(
                table.path,
                f"no columns are left for {argument}: all are used otherwise ({used})",
                f"add columns to the file, or name other columns for other uses than {argument}",
            )
    else:
        chosen = find_columns(table, names, reserved)
        twice = [name for place, name in enumerate(chosen) if name in chosen[:place]]
        taken = [name for name in chosen if name in reserved]
        if not chosen or twice or taken:
            problem = f"{taken[0]!r}, which has another use" if taken else "no column"
            raise TableError(
                table.path,
                f"data.{argument} names {f'{twice[0]!r} twice' if twice else problem}",
                f"name at least one column, none twice, and none with another use (data.{argument}=NAME)",
            )
    odd = [name for name in chosen if has_control(name)]
    if argument == "labels" and odd:
        raise TableError(
            table.path,
            f"the name of column {odd[0]!r} has a control character, so it cannot name a task",
            "rename the column in the file, or choose other columns (data.labels=NAME)",
        )
    return chosen


def choose_labels(
    table: Table,
    names: str | Sequence[str] | None,
    reserved: Collection[str],
    positive: str | Sequence[str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The label columns, and the columns that were left out, with the reason.

    If no columns are named, those that are not reserved are labels, except for those that mostly hold
    something else, such as identifiers and measurements.
    """
    chosen = choose_columns(table, "labels", names, reserved)
    if names is not None or positive is not None:
        return chosen, {}
    found = {name: no_label(table, name) for name in chosen}
    tasks = [name for name in chosen if not found[name]]
    return tasks or chosen, {name: reason for name, reason in found.items() if reason and tasks}


def may_be_owner(name: str, different: int, rows: int) -> bool:
    """Whether a column may say whom a row belongs to, by its name and how many different cells it has."""
    return bool(_OWNER.search(name)) and 20 < different < rows / 1.2


def find_owners(table: Table, names: Collection[str]) -> dict[str, int]:
    """Those columns that may say whom a row belongs to, with their numbers of different cells."""
    counts = {name: len(table.names(name).names) for name in names if _OWNER.search(name)}
    return {name: count for name, count in counts.items() if may_be_owner(name, count, len(table))}


def check_columns(table: Table, **options: Sequence[str]) -> None:
    """Raise an error that says which option to correct, unless all columns that options name are there."""
    for option, names in options.items():
        for name in names:
            table.check_column(name, option)
