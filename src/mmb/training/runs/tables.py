"""Results as text tables."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from mmb._extras import require
from mmb.metrics.titles import column_titles, definition, shown_metrics, value_text

MOST_ROWS = 40
"""Tasks that a terminal shows."""
_PROSE = 24  # a longer text, and a name of any length, may be broken over lines; nothing else may
_TITLE = 50  # a title of up to this length is not broken over lines
_NARROWEST = 12  # that such a column may become


def make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> Any:
    """A table (rich) with numbers at four digits and gaps as a dash; names are shown as they are.

    Print it with `print_table`, which cuts nothing off.
    """
    text = require("rich.text", extra="training").Text  # rich would take `[nm]` in a plain string for markup
    table = require("rich.table", extra="training").Table(
        title=text(title, "table.title"),
        caption=text(caption, "table.caption") if caption else None,
        min_width=min(len(title), _TITLE),
    )
    for index, column in enumerate(columns):
        longest = max((len(row[index]) for row in rows if isinstance(row[index], str)), default=0)
        prose = longest > (_PROSE if index else 0)
        justify = "left" if prose or index == 0 else "right"
        header = text(column.replace(" ", "\n") if len(column) > _PROSE else column)
        width = max(_width(cell) for cell in [header, *(text(_cell(row[index])) for row in rows)])
        table.add_column(
            header,
            justify=justify,
            no_wrap=not prose,
            overflow="fold",
            min_width=min(width, _NARROWEST) if prose else width,
        )
    for row in rows:
        table.add_row(*(text(_cell(value)) for value in row))
    return table


def first_rows(rows: list[list[Any]], most: int | None = MOST_ROWS) -> list[list[Any]]:
    """The first rows of a table for a terminal, and a line that says how many more there are."""
    if most is None or len(rows) <= most:
        return rows
    return [*rows[:most], [f"... {len(rows) - most} more", *[None] * (len(rows[0]) - 1)]]


def _width(text: Any) -> int:
    """Width of the longest line of a text (rich)."""
    return max(int(line.cell_len) for line in text.split(allow_blank=True))


def print_table(table: Any, console: Any) -> None:
    """Print a table of `make_table` on a console (rich), which is made wider where its numbers need it."""
    needed = sum(column.min_width + 3 for column in table.columns) + 1  # and the lines between them
    console.width = max(console.width, needed)
    console.print(table)


def as_text(table: Any) -> str:
    """A table as plain text."""
    file = io.StringIO()
    print_table(table, require("rich.console", extra="training").Console(file=file, width=120))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def result_table(result: dict[str, Any], most: int | None = None, place: str = "") -> str:
    """The table of one run: a line per task, and the mean; of validation rows if test rows were not seen.

    Args:
        result: Of the run.
        most: How many tasks get a line; all by default.
        place: The file that has all lines.
    """
    part = "test" if "test" in result else "valid"
    max_fpr, select = result["max_fpr"], result["selected_by"]
    shown = shown_metrics(select)
    columns = ["task", "train +", "train -", *column_titles(max_fpr, select), "FPR", "TPR"]
    tasks = result["tasks"]
    keys = ["name", "positives", "negatives", *(f"{part}_{key}" for key in (*shown, "fpr", "tpr"))]
    rows = [list(row) for row in zip(*(tasks[key] for key in keys), strict=True)]
    rows = first_rows(rows, most)
    rows.append(["mean", None, None, *(result[part][key] for key in shown), None, None])
    title = f"{result['data']}, {result['method']}, seed {result['seed']}: {part} rows"
    caption = (
        f"Weights of step {result['best_step']} of {result['steps']}, selected by validation "
        f"{select}. {definition(max_fpr, select)}. FPR and TPR: at "
        f"the threshold of FPR {max_fpr:g} on validation rows. By chance, AUC and pAUC are 0.5, and AP is "
        "the share of positives."
    )
    caption += f" All tasks: {place}." if place and len(tasks["name"]) > len(rows) else ""
    text = as_text(make_table(title, columns, rows, caption))
    return f"{text}\n{_branch_table(result, part)}" if "branches" in result else text


def _branch_table(result: dict[str, Any], part: str) -> str:
    """The branches of a run, and how much of each is in the result."""
    select = result["selected_by"]
    columns = ["branch", "share", "steps", f"valid {select}", *column_titles(result["max_fpr"], select)]
    rows = [
        [
            name,
            "stopped" if found.get("stopped_early") and not found["share"] else found["share"],
            found["steps"],
            found["valid"][select],
            *(found[part][key] for key in shown_metrics(select)),
        ]
        for name, found in result["branches"].items()
    ]
    own = [result["valid"][select], *(result[part][key] for key in shown_metrics(select))]
    rows.append(["result", 1.0, result["steps"], *own])
    caption = f"Means over tasks on {part} rows; shares were chosen on validation rows."
    if note := unbranched_note(result):
        caption += f" {note}"
    return as_text(make_table("Branches", columns, rows, caption))


def unbranched_note(result: Mapping[str, Any]) -> str:
    """Why a run with branches trained only one of them; empty if it trained all."""
    if "still_rising" in result:
        found = f"rose by {result['still_rising']:.3f} in the last fifth of the first phase"
    elif "still_gaining" in result:
        found = f"rose by {result['still_gaining']:.3f} in the first branch"
    else:
        return ""
    return f"Partial AUC on validation rows {found}, so one branch has the steps of all."


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return value_text(value) if isinstance(value, float) else str(value)
