"""Where does the default soup gain, and where not: by rarity, size, tasks and difficulty of 80 data sets.

    python benchmarks/where_it_gains.py count [--sets ...]
    python benchmarks/where_it_gains.py table

`count` counts rows, tasks and positives of data sets of `transfer.py`, with the split of the first seed.
`table` sorts the logged runs by these, and by how well cross-entropy does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from _transfer_sets import ALL_SETS, GROUPS, named
from mmb.training import merge, resolve
from mmb.training.recipes.components import load_data
from transfer import CONTROL, DEFAULT, METRICS, read

FOLDER = Path(__file__).parents[1] / "results/transfer"
COUNTS = FOLDER / "sets.jsonl"
LOGS = ("default", "keel", "unseen", "molecules")
MOLECULES = ("Tox21", "SIDER", "BBBP", "ClinTox", "HIV", "MUV", "ToxCast", *GROUPS["MOLECULES"])


@dataclass(frozen=True)
class Found:
    """What is known of a data set, and means over its runs.

    Attributes:
        kind: Made up, molecules, or a table.
        positives: In the validation rows, of the median task.
        rate: Share of positives among the training labels of the median task.
        rows: For training.
        tasks: How many.
        level: Test partial AUC of the control.
        spread: Standard deviation of that between seeds, which is noise, and where splits differ, theirs.
        moved: Share of runs that leave the start.
        gains: Over the control, in partial AUC, average precision and AUC.
        error: Standard error of the first of them, over seeds.
        over_start: The same over the start.
    """

    kind: str
    positives: float
    rate: float
    rows: int
    tasks: int
    level: float
    spread: float
    moved: float
    gains: list[float]
    error: float
    over_start: list[float]


def count(name: str, folder: Path) -> dict[str, Any]:
    """Rows, tasks and positives of a data set."""
    recipe = resolve(merge(ALL_SETS[name](0, folder), {"method": "ce"}))
    plain = {"features": "fingerprint"} if recipe.data.get("features") == "descriptors" else {}
    dataset = load_data({**recipe.data, **plain})
    train, valid = (dataset.labels[dataset.split[part]] for part in ("train", "valid"))
    rates = (train == 1).sum(0) / (train >= 0).sum(0).clamp(min=1)
    return {
        "set": name,
        "rows": len(train),
        "validation rows": len(valid),
        "tasks": train.shape[1],
        "rate": round(float(rates.median()), 5),
        "positives": float((valid == 1).sum(0).double().quantile(0.5)),
    }


def records() -> list[dict[str, Any]]:
    """All logged runs with the default and its controls, on data sets with small networks."""
    return read([FOLDER / f"{log}.jsonl" for log in LOGS])


def sets() -> dict[str, Found]:
    """All data sets, with what is known of them."""
    counts = {one["set"]: one for one in map(json.loads, COUNTS.read_text().splitlines())}
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for record in records():
        runs.setdefault(record["set"], []).append(record["rows"])
    return {name: _found(name, counts[name], found) for name, found in runs.items()}


def _found(name: str, counts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Found:
    def gains(over: str) -> list[list[float]]:
        """In each metric, those of all seeds."""
        return [
            [run[DEFAULT]["test"][metric] - run[over]["test"][metric] for run in runs] for metric in METRICS
        ]

    over, levels = gains(CONTROL), [run[CONTROL]["test"]["pauc"] for run in runs]
    tables = {**GROUPS["KEEL"], **GROUPS["UNSEEN"], "breast cancer, rare": 0, "wine, rare": 0}
    return Found(
        kind="molecules" if name in MOLECULES else "tables" if name in tables else "digits, synthetic",
        positives=counts["positives"],
        rate=counts["rate"],
        rows=counts["rows"],
        tasks=counts["tasks"],
        level=statistics.fmean(levels),
        spread=statistics.stdev(levels),
        moved=statistics.fmean(run[DEFAULT]["picked"] != ["start"] for run in runs),
        gains=[statistics.fmean(values) for values in over],
        error=statistics.stdev(over[0]) / sqrt(len(runs)),
        over_start=[statistics.fmean(values) for values in gains("start")],
    )


FACTS: dict[str, tuple[str, Callable[[float], str], tuple[float, ...]]] = {
    "positives": ("positives in the validation rows, median task", "{:g}".format, (10, 30, 100)),
    "rate": ("positive rate, median task", "{:.0%}".format, (0.02, 0.1, 0.3)),
    "rows": ("training rows", "{:,.0f}".format, (500, 2000, 5000)),
    "tasks": ("tasks", "{:g}".format, (2, 10)),
    "level": ("partial AUC of cross-entropy", "{:g}".format, (0.6, 0.75, 0.9)),
    "spread": ("its standard deviation between seeds", "{:g}".format, (0.003, 0.01, 0.03)),
}


def tables(found: Mapping[str, Found]) -> Iterator[str]:
    """Lines of Markdown: gains by each fact, and how much each orders them."""
    yield "## By kind\n"
    kinds = dict.fromkeys(one.kind for one in found.values())
    yield from _table("kind", {kind: [one for one in found.values() if one.kind == kind] for kind in kinds})
    yield "\n## By tasks and what cross-entropy leaves to gain\n"
    yield from _table("tasks, partial AUC of cross-entropy", _crossed(list(found.values())))
    for fact, (title, shown, edges) in FACTS.items():
        yield f"\n## By {title}\n"
        bins = {
            _label(low, high, shown): [one for one in found.values() if low <= getattr(one, fact) < high]
            for low, high in pairwise((0.0, *edges, inf))
        }
        yield from _table(title, bins)
    yield "\n## Rank correlations\n"
    heads = ("pAUC over as much CE", "AP", "AUC", "pAUC over the start", "runs that leave the start")
    yield f"| | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(heads)}"
    for fact, (title, *_) in FACTS.items():
        columns = [[one.gains[place] for one in found.values()] for place in range(3)]
        columns += [[one.over_start[0] for one in found.values()], [one.moved for one in found.values()]]
        facts = [getattr(one, fact) for one in found.values()]
        cells = [f"{spearmanr(facts, column).statistic:+.2f}" for column in columns]
        yield f"| {title} | {' | '.join(cells)} |"


def steps_taken(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: what runs gained by how far from the start they went."""
    went: dict[str, list[list[float]]] = {name: [] for name in ("not at all", "halfway", "all the way")}
    for rows in (record["rows"] for record in records):
        picked = rows[DEFAULT]["picked"]
        way = "not at all" if picked == ["start"] else "halfway" if "start" in picked else "all the way"
        test = rows[DEFAULT]["test"]
        went[way].append([test[m] - rows[over]["test"][m] for over in (CONTROL, "start") for m in METRICS])
    metrics = "pAUC | AP | AUC"
    yield f"| from the start | runs | over as much CE: {metrics} | over the start: {metrics} |"
    yield f"|---|{'---|' * 7}"
    for way, gains in went.items():
        cells = [_mean(column) for column in zip(*gains, strict=True)]
        yield f"| {way} | {len(gains)} | {' | '.join(cells)} |"


def _table(title: str, bins: Mapping[str, Sequence[Found]]) -> Iterator[str]:
    metrics = "pAUC | AP | AUC"
    heads = f"sets | runs that leave the start | over as much CE: {metrics} | over the start: {metrics}"
    yield f"| {title} | {heads} | sets below -1 |"
    yield f"|---|{'---|' * 9}"
    for label, inside in bins.items():
        if inside:
            below = sum(one.gains[0] + one.error < -0.001 for one in inside)
            cells = [str(len(inside)), f"{statistics.fmean(one.moved for one in inside):.0%}"]
            for columns in ([one.gains for one in inside], [one.over_start for one in inside]):
                cells += [_mean(column) for column in zip(*columns, strict=True)]
            yield f"| {label} | {' | '.join(cells)} | {below} |"


def _mean(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{1000 * statistics.fmean(values):+.1f} ({1000 * error:.1f})"


def _crossed(found: Sequence[Found]) -> dict[str, list[Found]]:
    """Data sets with few and many tasks, on which cross-entropy is or is not near the best possible."""
    return {
        f"{tasks}, {level}": [
            one for one in found if (one.tasks >= 10) == many and (one.level >= 0.9) == high
        ]
        for many, tasks in ((False, "below 10"), (True, "10 or more"))
        for high, level in ((False, "below 0.9"), (True, "0.9 or more"))
    }


def _label(low: float, high: float, shown: Callable[[float], str]) -> str:
    if low == 0:
        return "1" if high == 2 else f"below {shown(high)}"
    return f"{shown(low)} or more" if high == inf else f"{shown(low)} to {shown(high)}"


def page() -> Iterator[str]:
    """Lines of Markdown: all tables."""
    yield "## By how far runs went\n"
    yield from steps_taken(records())
    yield ""
    yield from tables(sets())


def main() -> None:
    """Count, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    counting = commands.add_parser("count")
    counting.add_argument("--sets", nargs="*", choices=[*ALL_SETS, *GROUPS], default=list(ALL_SETS))
    commands.add_parser("table")
    options = parser.parse_args()
    if options.command == "table":
        print("\n".join(page()))
        return
    warnings.simplefilter("ignore")
    lines = COUNTS.read_text().splitlines() if COUNTS.exists() else []
    known = {json.loads(line)["set"] for line in lines}
    for name in named(options.sets):
        if name not in known:
            with tempfile.TemporaryDirectory() as folder, COUNTS.open("a") as log:
                log.write(json.dumps(count(name, Path(folder))) + "\n")
            print(name, flush=True)


if __name__ == "__main__":
    main()
