"""Ranking objectives from random weights against cross-entropy: same network, rows, steps; many data sets.

python benchmarks/from_scratch.py run --log results/transfer/from_scratch.jsonl [--sets ...]
python benchmarks/from_scratch.py table results/transfer/from_scratch.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from _transfer_sets import ALL_SETS, SETS
from mmb.training import Run, merge, resolve, train

METHODS: dict[str, dict[str, Any]] = {
    "CE": {"method": "ce"},
    "pairwise 0.3": {"method": "pauc-pairwise", "objective": {"max_fpr": 0.3}},
    "MMB-pAUC 0.3": {"method": "pauc", "objective": {"max_fpr": 0.3}},
    "CE + pairwise 0.3": {
        "method": "sum",
        "objective": {"parts": {"ce": {}, "pauc-pairwise": {"max_fpr": 0.3}}},
    },
}
METRICS = ("pauc", "ap", "auc")


Methods = Mapping[str, dict[str, Any]]
"""Fragments of recipes by their titles; the first one is what the others are compared with."""


def run_all(methods: Methods, names: Sequence[str], seeds: int, log: Path) -> None:
    """Train every method on every data set, and append a line for each run to the log."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    log.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for name in names:
            for title, method in methods.items():
                with tempfile.TemporaryDirectory() as folder:
                    training = {"tensorboard": False, "device": "cpu"}
                    shared = merge(ALL_SETS[name](seed, Path(folder)), {"seed": seed, "training": training})
                    result = train(Run.create(Path(folder) / "run", resolve(merge(shared, method))))
                facts = {key: result[key] for key in ("valid", "test", "steps", "best_step", "seconds")}
                with log.open("a") as file:
                    file.write(json.dumps({"set": name, "seed": seed, "method": title, **facts}) + "\n")
                print(f"{name}, seed {seed}, {title}: {result['test']['pauc']:.4f}", flush=True)


def table(methods: Methods, records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: test metrics minus those of the first method with the same seed, x 1,000."""
    control, *titles = methods
    runs = {(record["set"], record["seed"], record["method"]): record["test"] for record in records}
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (name, seed, title), test in runs.items():
        base = runs.get((name, seed, control))
        for metric in METRICS:
            if base is not None:
                found[name, title, metric].append(1000 * (test[metric] - base[metric]))
    heads = " | ".join(f"{title}: pAUC, AP, AUC" for title in titles)
    yield f"| data set | seeds | {control}, pAUC | {heads} |"
    yield f"|---|---|---|{'---|' * len(titles)}"
    names = [name for name in ALL_SETS if found[name, titles[-1], "pauc"]]
    for name in names:
        level = statistics.fmean(
            test["pauc"] for (n, _, t), test in runs.items() if (n, t) == (name, control)
        )
        cells = [
            ", ".join(f"{statistics.fmean(found[name, title, metric]):+.1f}" for metric in METRICS)
            for title in titles
        ]
        yield f"| {name} | {len(found[name, titles[-1], 'pauc'])} | {level:.3f} | {' | '.join(cells)} |"
    means = [
        ", ".join(
            f"{statistics.fmean(statistics.fmean(found[name, title, metric]) for name in names):+.1f}"
            for metric in METRICS
        )
        for title in titles
    ]
    yield f"| **mean** | | | {' | '.join(means)} |"


def read(logs: Sequence[Path]) -> list[dict[str, Any]]:
    """The records of some logs."""
    return [json.loads(line) for path in logs for line in path.read_text().splitlines()]


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--log", type=Path, default=Path("results/transfer/from_scratch.jsonl"))
    run.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS)[:13])
    run.add_argument("--seeds", type=int, default=3)
    commands.add_parser("table").add_argument("logs", nargs="+", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run_all(METHODS, options.sets, options.seeds, options.log)
    else:
        print("\n".join(table(METHODS, read(options.logs))))


if __name__ == "__main__":
    main()
