"""How far to go from a start toward the average of its branches: rules compared on the runs of `transfer.py`.

    python benchmarks/halfway.py run FOLDER-OF-TRANSFER-RUNS ...
    python benchmarks/halfway.py table

For each run it logs by how many standard errors the average and the point halfway to it are above the start
on validation rows, by each of three metrics, and what each gives on test rows. The table shows what rules
would have gained: which average, which metrics, and how much is needed for the whole way and for half of it.
Its last two lines are held out: each data set has the rule that gains most on the others, or on other groups.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from _transfer_sets import ALL_SETS, GROUPS
from mmb import soup
from mmb.training import Run
from mmb.training.loop.branch_average import average_branches, halfway, start_weights, validation_values
from mmb.training.loop.setup import make_setup
from transfer import branches_of, folder_of, metrics_of

LOG = Path(__file__).parents[1] / "results/transfer/halfway.jsonl"
METRICS = ("pauc", "auc", "ap")
RULES = ("uniform", "greedy")
JUDGES = (("pauc",), ("pauc", "auc"), ("pauc", "auc", "ap"))
NEVER = float("inf")
LIMITS = (  # standard errors needed for the whole way, and for half of it
    *((limit, NEVER) for limit in (-NEVER, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0)),
    *((0.5, 0.0), (1.0, 0.0), (1.0, 0.25), (1.0, 0.5), (1.5, 0.5)),
)


def look_at(place: Path) -> dict[str, Any]:
    """What the start of a run, its average and the point between them give on validation and test rows."""
    run, start = Run.open(place / "soup"), Run.open(place / "start")
    setup, branches = make_setup(run.recipe), branches_of(run)
    states = {"start": start_weights(start, setup)}
    for rule in RULES:
        recipe = replace(run.recipe, soup=replace(run.recipe.soup, rule=rule))
        found = average_branches(replace(setup, recipe=recipe), branches)
        states[f"half, {rule}"] = halfway(setup, found, start, branches).model.state_dict()
        states[f"whole, {rule}"] = found.model.state_dict()
    values = validation_values(setup, *METRICS)
    seen, record = {}, {}
    for point, state in states.items():
        setup.model.load_state_dict(state)
        seen[point] = values(setup.model)
        pairs = zip(METRICS, seen[point], seen["start"], strict=True)
        errors = {name: soup.evidence(one[None], other[None]) for name, one, other in pairs}
        record[point] = {"errors": errors, "test": metrics_of(setup)["test"]}
    return record


def run_all(folders: Sequence[Path]) -> None:
    """Look at every run in some folders, and append a line for each to the log."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = {folder_of(name): name for name in ALL_SETS}
    for place in sorted(place for folder in folders for place in folder.glob("*/seed-*")):
        seed = int(place.name.removeprefix("seed-"))
        record = {"set": names[place.parent.name], "seed": seed, **look_at(place)}
        with LOG.open("a") as file:
            file.write(json.dumps(record) + "\n")


def taken(record: Mapping[str, Any], rule: str, judge: Sequence[str], limits: tuple[float, float]) -> str:
    """The point that a rule takes."""
    for way, limit in zip(("whole", "half"), limits, strict=True):
        errors = [record[f"{way}, {rule}"]["errors"][metric] for metric in judge]
        if statistics.fmean(errors) > limit:
            return f"{way}, {rule}"
    return "start"


def gains(
    records: Sequence[Mapping[str, Any]], rule: str, judge: Sequence[str], limits: tuple[float, float]
) -> list[list[float]]:
    """For each data set what a rule gains over the start in each metric on test rows, x 1,000."""
    found = defaultdict(list)
    for record in records:
        test, start = (record[point]["test"] for point in (taken(record, rule, judge, limits), "start"))
        found[record["set"]].append([1000 * (test[name] - start[name]) for name in ("pauc", "ap", "auc")])
    return [[statistics.fmean(column) for column in zip(*runs, strict=True)] for runs in found.values()]


def table() -> Iterator[str]:
    """Lines of Markdown: for each rule its mean gains, and how many data sets lose."""
    records = [json.loads(line) for line in LOG.read_text().splitlines()]
    grouped = {name: group for group, sets in GROUPS.items() for name in sets}
    parts = {
        title: [record for record in records if grouped.get(record["set"], "others") == title]
        for title in ("others", "KEEL", "UNSEEN")
    }
    counts = [f"{title} ({len({record['set'] for record in part})})" for title, part in parts.items()]
    yield f"| average | judged by | whole | half | {' | '.join(counts)} | all | below -1 | lowest |"
    yield f"|---|---|---|---|{'---|' * (len(parts) + 3)}"
    for rule, judge, limits in product(RULES, JUDGES, LIMITS):
        cells = [_means(gains(part, rule, judge, limits)) for part in (*parts.values(), records)]
        lows = [row[0] for row in gains(records, rule, judge, limits)]
        ends = [str(sum(low < -1 for low in lows)), f"{min(lows):+.1f}"]
        yield f"| {' | '.join([rule, ', '.join(judge), *map(_limit, limits), *cells, *ends])} |"
    for title, by_group in (("best on all other data sets", False), ("best on the other groups", True)):
        found = held_out(records, grouped, by_group)
        lows = [row[0] for row in found.values()]
        cells = [
            _means([found[name] for name in dict.fromkeys(record["set"] for record in part)])
            for part in (*parts.values(), records)
        ]
        ends = [str(sum(low < -1 for low in lows)), f"{min(lows):+.1f}"]
        yield f"| **{title}** | | | | {' | '.join([*cells, *ends])} |"


def held_out(
    records: Sequence[Mapping[str, Any]], grouped: Mapping[str, str], by_group: bool
) -> dict[str, list[float]]:
    """What each data set gains by the rule with the best mean of all metrics without it, or its group."""
    names = list(dict.fromkeys(record["set"] for record in records))
    rules = [dict(zip(names, gains(records, *rule), strict=True)) for rule in product(RULES, JUDGES, LIMITS)]
    found = {}
    for name in names:
        others = [one for one in names if one != name]
        if by_group:
            others = [one for one in others if grouped.get(one) != grouped.get(name)]
        best = max(rules, key=lambda rule: statistics.fmean(sum(rule[one]) for one in others))
        found[name] = best[name]
    return found


def _means(rows: Sequence[Sequence[float]]) -> str:
    return ", ".join(f"{statistics.fmean(column):+.1f}" for column in zip(*rows, strict=True))


def _limit(limit: float) -> str:
    return {-NEVER: "always", NEVER: "never"}.get(limit, f"{limit:g}")


def main() -> None:
    """Look at runs, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run").add_argument("folders", nargs="+", type=Path)
    commands.add_parser("table")
    options = parser.parse_args()
    if options.command == "run":
        run_all(options.folders)
    else:
        print("\n".join(table()))


if __name__ == "__main__":
    main()
