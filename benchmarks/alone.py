"""Each objective alone after cross-entropy, compared with continued cross-entropy: does it do harm?

    python benchmarks/alone.py run --log results/transfer/alone.jsonl [--sets ...] [--jobs 16]
    python benchmarks/alone.py run --log results/transfer/alone_unseen.jsonl --sets KEEL --anchors 2 4 8 16
    python benchmarks/alone.py table results/transfer/alone.jsonl

`run` trains, for each data set of `transfer.py` and seed, a start by cross-entropy, and from it a branch for
each objective and every anchor, for a tenth of its steps. `table` shows test metrics at the end of
branches, minus those by cross-entropy: with the defaults, and with what is best on the other data sets.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from _transfer_sets import ALL_SETS, GROUPS, SETS, named
from mmb.training import Run, merge, resolve, train
from mmb.training.loop.branch_average import branch_weights
from mmb.training.loop.evaluate import recalibrate
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import find_device, make_setup
from mmb.training.runs.provenance import commit
from transfer import METRICS, Differences, _cell, folder_of, metrics_of, read

ANCHORS = (0.0, 1.0, 2.0, 4.0)  # weights of cross-entropy
METHODS = {"auc": 2.0, "auc-ct-heads": 2.0, "pauc": 4.0, "pauc-pairwise": 4.0, "sopa-s": 4.0}  # the defaults
CONTROL = "ce"
BEFORE = {"auc-ct-heads, anchor 2.0, inner_lr 0.02": ("auc-ct-heads", {"anchor": 2.0, "inner_lr": 0.02})}
"""Earlier defaults, not among the settings to choose from."""


def branches(methods: Sequence[str], anchors: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The control, and each objective with every anchor: `METHOD, anchor A`."""
    whole = {"training": {"stop_below": None, "capture": False}}
    found: dict[str, dict[str, Any]] = {CONTROL: {"method": "ce", **whole}}
    for method in methods:
        for anchor in anchors:
            found[f"{method}, anchor {anchor}"] = {"method": method, "objective": {"anchor": anchor}, **whole}
    for title, (method, options) in BEFORE.items():
        if method in methods:
            found[title] = {"method": method, "objective": options, **whole}
    return found


def measure(
    name: str,
    seed: int,
    folder: Path,
    device: str,
    share: float,
    methods: Sequence[str],
    anchors: Sequence[float],
) -> dict[str, Any]:
    """Metrics of the start and of every branch of a data set and a seed."""
    began = time.perf_counter()
    folder = folder / folder_of(name) / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    training = {"tensorboard": False, "device": device}
    shared = merge(ALL_SETS[name](seed, folder), {"seed": seed, "training": training})
    titles = branches(methods, anchors)
    # all with the same seed, so the same batches: their noise cancels
    made = {folder_of(title): {**branch, "seed": 1000 * seed} for title, branch in titles.items()}
    soup = {
        "rule": "uniform",
        "still_rising": 1,
        "still_gaining": 1,
        "share": share,
    }  # the average is not used
    recipe = resolve(merge(shared, {"method": "soup", "branches": made, "soup": soup}))
    assert recipe.pretrain is not None
    start = Run.find(folder / "start", recipe.pretrain)
    train(start)
    run = Run.find(folder / "alone", replace(recipe, pretrain=None, init_from=str(start.path.resolve())))
    train(run)
    trained = {name: Run.open(run.path / "branches" / name) for name in recipe.branches}
    with own_randomness(seed, find_device(device)):
        setup = make_setup(recipe)
    rows = {"start": {part: start.result()[part] for part in ("valid", "test")}}
    for title in titles:
        setup.model.load_state_dict(branch_weights(trained[folder_of(title)], setup))
        if recipe.training.batch_norm == "recalibrate":
            recalibrate(setup)
        rows[title] = metrics_of(setup)
    facts = {"set": name, "seed": seed, "commit": commit(), "share": share}
    return {**facts, "seconds": round(time.perf_counter() - began, 1), "rows": rows}


def _work(task: tuple[str, int, Path, str, float, list[str], list[float]]) -> str:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return json.dumps(measure(*task))


def run_all(options: argparse.Namespace) -> None:
    """Measure data sets, several at a time, and append a line for each to the log."""
    known = {(one["set"], one["seed"]) for one in read([options.log])} if options.log.exists() else set()
    names = named(options.sets) or list(SETS)[12::-1]  # those for a CPU, the long ones first
    tasks = [
        (name, seed, options.output, options.device, options.share, options.methods, options.anchors)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for name in names
        if (name, seed) not in known
    ]
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        for line in pool.imap_unordered(_work, tasks):
            with options.log.open("a") as log:
                log.write(line + "\n")
            record = json.loads(line)
            print(f"{record['set']}, seed {record['seed']}: {record['seconds']:.0f} s", flush=True)


def tables(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown."""
    against = Differences(records, CONTROL)
    settings = {
        method: [row for row in against.rows if row.split(",")[0] == method and row not in BEFORE]
        for method in METHODS
    }
    yield (
        "Test rows, minus a branch that goes on with cross-entropy, x 1,000: mean over seeds (standard "
        "error), paired by seed. Partial AUC of each objective by default.\n"
    )
    yield f"| data set | seeds | CE | {' | '.join(METHODS)} |"
    yield f"|---|---|---|{'---|' * len(METHODS)}"
    rows = [f"{method}, anchor {anchor}" for method, anchor in METHODS.items()]
    for name in against.sets:
        own = [record for record in records if record["set"] == name]
        level = statistics.fmean(record["rows"][CONTROL]["test"]["pauc"] for record in own)
        cells = " | ".join(_cell(against, name, row, "pauc") for row in rows)
        yield f"| {name} | {len(own)} | {level:.3f} | {cells} |"
    for metric in METRICS:
        means = [f"{1000 * against.over_sets(row, metric):+.1f}" for row in rows]
        yield f"| **mean, {metric}** | | | {' | '.join(means)} |"
    yield "\nAll settings: means over the data sets, and the worst of them in partial AUC.\n"
    yield "| setting | pAUC | AP | AUC | worst pAUC | below CE by more than 0.001 and a standard error |"
    yield "|---|---|---|---|---|---|"
    before = [row for row in BEFORE if row in against.rows]
    for row in ("start", *(row for own in settings.values() for row in own), *before):
        means = [f"{1000 * against.over_sets(row, metric):+.1f}" for metric in METRICS]
        worst = min(against.whole, key=lambda name, row=row: against.mean(name, row, "pauc"))
        below = [name for name in against.whole if _surely(against, name, row) < -0.001]
        cells = [*means, f"{_cell(against, worst, row, 'pauc')} {worst}", ", ".join(below) or "none"]
        yield f"| {row} | {' | '.join(cells)} |"
    if len(against.whole) == 1:
        return
    yield "\nThe setting with the largest partial AUC on the other data sets, measured on the one left out.\n"
    yield f"| data set | {' | '.join(METHODS)} |"
    yield f"|---|{'---|' * len(METHODS)}"
    for name in against.whole:
        chosen = [against.best(own, without=name) for own in settings.values()]
        cells = [f"{_cell(against, name, row, 'pauc')} {row.partition(', ')[2]}" for row in chosen]
        yield f"| {name} | {' | '.join(cells)} |"


def _surely(against: Differences, name: str, row: str) -> float:
    """A standard error above the mean; of a single seed, that seed."""
    error = against.error(name, row, "pauc")
    return against.mean(name, row, "pauc") + (0.0 if math.isnan(error) else error)


def main() -> None:
    """Run, or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--output", type=Path, default=Path("runs/alone"))
    run.add_argument("--log", type=Path, default=Path("results/transfer/alone.jsonl"))
    run.add_argument("--sets", nargs="*", choices=[*ALL_SETS, *GROUPS], default=[])
    run.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    run.add_argument("--anchors", nargs="*", type=float, default=list(ANCHORS))
    run.add_argument("--first-seed", type=int, default=0)
    run.add_argument("--seeds", type=int, default=3)
    run.add_argument("--share", type=float, default=0.1, help="steps of a branch, of those of the start")
    run.add_argument("--jobs", type=int, default=2)
    run.add_argument("--device", default="cpu")
    commands.add_parser("table").add_argument("logs", nargs="+", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
    else:
        print("\n".join(tables(read(options.logs))))


if __name__ == "__main__":
    main()
