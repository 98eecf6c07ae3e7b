"""Tables show names as they are, whatever is in them, and keep their numbers."""

import io

import pytest
from rich.console import Console

from mmb.training.runs.tables import as_text, make_table, print_table, result_table

COLUMNS = ["task", "AUC", "pAUC 0.1", "AP", "FPR"]
NUMBERS = [0.91234, 0.81234, 0.71234, None]


@pytest.mark.parametrize("name", ["ic50 [nm]", "[/red]", "[bold]x[/bold]", ":smile:", "a & <b>"])
def test_names_are_not_taken_for_markup(name):
    text = as_text(make_table(f"rows of {name}", COLUMNS, [[name, *NUMBERS]], f"about {name}"))
    title, caption = text.splitlines()[0], text.splitlines()[-1]
    assert title.strip() == f"rows of {name}"
    assert caption.strip() == f"about {name}"
    assert f"│ {name} " in text


def test_long_names_are_broken_and_leave_room_for_numbers():
    text = as_text(make_table("t", COLUMNS, [["x" * 300, *NUMBERS]]))
    assert text.count("x") == 300
    for shown in ("0.9123", "0.8123", "0.7123", "pAUC 0.1"):
        assert shown in text


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_numbers_are_never_cut_whatever_the_terminal(width):
    file = io.StringIO()
    columns = ["task", *["+", "-", "gaps"] * 3, "objective.lr_dual objective.lr_threshold"]
    rows = [["x" * 35, *range(32800, 32809), "0.123 (0.001)"], ["y y " * 9, *[41] * 9, "0.5"]]
    print_table(make_table("t", columns, rows), Console(file=file, width=width))
    cells = {cell.strip() for line in file.getvalue().splitlines() for cell in line.split("│")}
    assert {*map(str, range(32800, 32809)), "41", "0.123 (0.001)"} <= cells
    assert file.getvalue().count("x") == 35


def test_a_title_is_not_broken_above_a_narrow_table():
    title = "called positive among 3000 rows, at FPR 0.1"
    assert as_text(make_table(title, ["task", "rows"], [["a", 1]])).splitlines()[0].strip() == title


def test_of_very_many_tasks_the_first_are_shown():
    tasks = {"name": [f"t{k}" for k in range(9)], "positives": [1] * 9, "negatives": [2] * 9}
    tasks |= {f"test_{key}": [0.5] * 9 for key in ("auc", "pauc", "ap", "fpr", "tpr")}
    result = {"data": "d", "method": "ce", "seed": 0, "best_step": 1, "steps": 2, "selected_by": "pauc"}
    result |= {"max_fpr": 0.1, "test": {"auc": 0.5, "pauc": 0.5, "ap": 0.5}, "tasks": tasks}
    text = result_table(result, 4, "run/table.txt")
    assert "t3" in text
    assert "t4" not in text
    assert "5 more" in text
    assert "run/table.txt" in text
    assert "more" not in result_table(result, 9, "run/table.txt")
    assert "t8" in result_table(result)
