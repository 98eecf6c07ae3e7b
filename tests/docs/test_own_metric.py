"""The page on whether objectives win their own metric: its tables and its figures are those of the logs."""

import importlib
import json
import re
import statistics

import pytest

from docs.conftest import ROOT

FOLDER = ROOT / "results" / "own_metric"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.partition("| molpcba |")[0].split())


@pytest.fixture
def own_metric(monkeypatch):
    """The benchmark."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("own_metric")


@pytest.fixture
def records(own_metric):
    """The log."""
    return own_metric.read([FOLDER / "runs.jsonl"])


@pytest.fixture
def cells(own_metric, records):
    """Cells of the tables by data set, row and column."""

    def find(name):
        rows = [line.strip("|").split("|") for line in own_metric.table(records, name)][2:]
        columns = own_metric.COLUMNS
        return {row[0].strip(): dict(zip(columns, map(str.strip, row[2:]), strict=True)) for row in rows}

    return {name: find(name) for name in ("molpcba", "Tox21", "MUV")}


def gain(cell):
    """Gain and standard error."""
    found, error = re.search(r"([+-][\d.]+) \(([\d.]+)\)", cell).groups()
    return float(found), float(error)


def own_cells(own_metric, rows):
    """The cell of each objective in its own metric."""
    return {title: rows[title][row.own] for title, row in own_metric.ROWS.items() if row.own}


def test_tables_are_those_of_the_log(own_metric, records):
    tables = PAGE.strip().split("\n\n")[-3:]
    assert tables == ["\n".join(own_metric.table(records, name)) for name in ("molpcba", "Tox21", "MUV")]


def test_winners_after_cross_entropy(own_metric, cells):
    own = own_cells(own_metric, cells["molpcba"])
    winners = {title: cell for title, cell in own.items() if cell.endswith("** *")}
    assert list(winners) == ["ConstrainedRecall", "FPRAtRecall"]
    told = re.findall(r"`(\w+)` gains ([\d.]+) in the (?:true|false) positive rate", PROSE)
    assert told == [(title, f"{gain(cell)[0] / 1000:.4f}") for title, cell in winners.items()]
    above, noise = re.search(
        r"([^.]*) are above cross-entropy in theirs.*? gains as much or more\. ([^.]*)", PROSE
    ).groups()
    for title in re.findall(r"`(\w+)`", above):
        assert gain(own.pop(title))[0] > 0, title
    for title in re.findall(r"`(\w+)`", noise):
        found, error = gain(own.pop(title))
        assert abs(found) < 2 * error, title
    assert own.keys() - winners.keys() == {"AveragePrecision", "NDCG"}  # of which the next point tells


def test_average_precision_after_cross_entropy(records):
    """It ends where it started; in a soup it loses to cross-entropy, on Tox21 it gains."""
    folder = ROOT / "results" / "molpcba-soup" / "table2" / "soup"
    ends = {(run["seed"], run["row"]): run["test"]["AP"] for run in records if run["set"] == "molpcba"}
    losses = []
    for seed in range(3):
        soup = json.loads((folder / f"seed-{seed}" / "result.json").read_text(encoding="utf-8"))
        test = {name: branch["test"]["ap"] for name, branch in soup["branches"].items()}
        for title in ("AveragePrecision", "NDCG"):
            assert ends[seed, title] == pytest.approx(test["start"], abs=1e-6)
        losses.append(test["ce"] - test["ap"])
    assert f"loses {min(losses):.3f} to {max(losses):.3f} in average precision" in PROSE
    log = (FOLDER / "defaults.txt").read_text(encoding="utf-8")
    gains = [float(found) for found in re.findall(r"^Tox21.* ap hinge sig \(([-\d.]+),", log, re.MULTILINE)]
    assert len(gains) == 2
    assert f"gains {min(gains) / 1000:.3f} to {max(gains) / 1000:.3f} in average precision on Tox21" in PROSE


def test_from_random_weights(own_metric, cells):
    own = {name: own_cells(own_metric, cells[name]) for name in ("Tox21", "MUV")}
    winners = [(name, title) for name in own for title, cell in own[name].items() if cell.endswith("** *")]
    assert winners == [("Tox21", "PartialAUC")]
    assert "On Tox21 from random weights, `PartialAUC` wins partial AUC against all." in PROSE
    assert "none wins its own against all others" in PROSE
    objectives = [row for title, row in cells["Tox21"].items() if title != "CE"]
    assert all(gain(row["AUC"])[0] < 0 for row in objectives)
    assert all(found < error for found, error in (gain(row["FPR at TPR 0.8"]) for row in objectives))
    ups = [gain(cell)[0] > 0 for title, row in cells["MUV"].items() if title != "CE" for cell in row.values()]
    assert statistics.fmean(ups) > 0.5
