"""Does each objective win its own metric, against cross-entropy and against the others?

    python benchmarks/own_metric.py run --sets Tox21 MUV --log results/own_metric/runs.jsonl
    python benchmarks/own_metric.py run --sets molpcba --device cuda --log results/own_metric/runs.jsonl
    python benchmarks/own_metric.py table results/own_metric/runs.jsonl

`run` trains every method with the same network, rows and steps, and measures all metrics on the test rows:
Tox21 and MUV from random weights, molpcba from one start by cross-entropy per seed, as the tables of
`recipes/reproduce` do. All weights are selected by partial AUC on validation rows. It continues where it
stopped.

The defaults of `RecallAtFPR` were chosen on the test rows of Tox21 and MUV, which flatters its gains there;
molpcba had no part in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from _transfer_sets import SETS
from mmb import metrics
from mmb.training import Run, merge, resolve, train
from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.selected_weights import load_weights
from mmb.training.loop.setup import find_device, make_setup
from mmb.training.runs.provenance import commit


class Row(NamedTuple):
    """A method, and the metric it is for."""

    method: str
    objective: dict[str, Any]
    own: str | None


ROWS: dict[str, Row] = {
    "CE": Row("ce", {}, None),
    "MinMaxAUC": Row("auc", {}, "AUC"),
    "PartialAUC": Row("pauc", {}, "pAUC"),
    "PairwisePartialAUC": Row("pauc-pairwise", {}, "pAUC"),
    "SOPAs": Row("sopa-s", {}, "pAUC"),
    "PAUCI": Row("pauci", {}, "pAUC"),
    "AveragePrecision": Row("ap", {}, "AP"),
    "TwoWayPartialAUC": Row("two-way", {}, "two-way pAUC"),
    "STACO": Row("staco", {}, "two-way pAUC"),
    "RecallAtFPR": Row("recall", {"fpr": 0.01}, "TPR at FPR 0.01"),
    "ConstrainedRecall": Row("recall-constrained", {"fpr": 0.01}, "TPR at FPR 0.01"),
    "FPRAtRecall": Row("fpr", {"recall": 0.8}, "FPR at TPR 0.8"),
    "NDCG": Row("ndcg", {}, "nDCG"),
}
COLUMNS = ("AUC", "pAUC", "AP", "two-way pAUC", "TPR at FPR 0.01", "FPR at TPR 0.8", "nDCG")
LOWER_IS_BETTER = "FPR at TPR 0.8"
# After cross-entropy, ranking objectives start at its optimum, with task weights as in the tables. Those that
# compare probabilities recenter them, as in the tables.
AFTER_CE: dict[str, Any] = {"objective": {"task_weighting": -0.5}, "training": {"warm_start": True}}
COMPARE_PROBABILITIES = ("auc", "pauc", "sopa-s", "pauci", "two-way", "staco")


# -- Training ------------------------------------------------------------------------------------------------


def measure(name: str, seed: int, title: str, folder: Path, device: str) -> dict[str, Any]:
    """Test metrics of one method on one data set."""
    folder = folder / name / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    row = ROWS[title]
    fragment = {key: value for key, value in SETS[name](seed, folder).items() if key != "soup"}
    if "pretrain" in fragment and row.own is not None:
        fragment = merge(fragment, AFTER_CE)
        if row.method in COMPARE_PROBABILITIES:
            fragment = merge(fragment, {"objective": {"transform": "recentered"}})
    fragment = merge(fragment, {"seed": seed, "training": {"tensorboard": False, "device": device}})
    recipe = resolve(merge(fragment, {"method": row.method, "objective": row.objective}))
    if recipe.pretrain is not None:
        start = Run.find(folder / "start", recipe.pretrain)
        train(start)
        recipe = replace(recipe, pretrain=None, init_from=str(start.path.resolve()))
    run = Run.find(folder / title, recipe)
    result = train(run)
    with own_randomness(seed, find_device(device)):
        setup = make_setup(recipe)
    load_weights(setup, run.best_checkpoint())
    facts = {key: result[key] for key in ("steps", "seconds")}
    found = test_metrics(*part_logits(setup, "test"))
    return {"set": name, "seed": seed, "row": title, "test": found, **facts, "commit": commit()}


def test_metrics(scores: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Means over tasks, by the names of `COLUMNS`."""
    wide = metrics.evaluate(scores, labels, 0.1, also=["two_way_pauc", "fpr_at_tpr", "ndcg"])
    narrow = metrics.evaluate(scores, labels, 0.01, also=["tpr_at_fpr"])
    per_task = (
        wide["roc_auc"],
        wide["partial_auc"],
        wide["average_precision"],
        wide["two_way_pauc"],
        narrow["tpr_at_fpr"],
        wide["fpr_at_tpr"],
        wide["ndcg"],
    )
    means = (float(values.double().nanmean()) for values in per_task)
    return {name: round(mean, 6) for name, mean in zip(COLUMNS, means, strict=True)}


def run_all(options: argparse.Namespace) -> None:
    """Measure what the log does not have yet, and append a line for each run."""
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    options.log.parent.mkdir(parents=True, exist_ok=True)
    known = read([options.log]) if options.log.exists() else []
    done = {(record["set"], record["seed"], record["row"]) for record in known}
    for seed in range(options.seeds):
        for name in options.sets:
            for title in options.rows:
                if (name, seed, title) in done:
                    continue
                record = measure(name, seed, title, options.output, options.device)
                with options.log.open("a") as log:
                    log.write(json.dumps(record) + "\n")
                print(f"{name}, seed {seed}, {title}: {record['test']}", flush=True)


# -- Tables --------------------------------------------------------------------------------------------------


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The records of some logs."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def table(records: Sequence[Mapping[str, Any]], name: str) -> Iterator[str]:
    """Lines of Markdown for one data set: gains over cross-entropy with the same seed, times 1,000.

    The gain in an objective's own metric is bold, and has a star if no other row has more. Standard errors
    are over seeds.
    """
    runs = {(*_start(record), record["row"]): record["test"] for record in records if record["set"] == name}
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (*start, title), test in runs.items():
        base = runs.get((*start, "CE"))
        for column in COLUMNS if base else ():
            gain = 1000 * (test[column] - base[column])
            gains[title, column].append(-gain if column == LOWER_IS_BETTER else gain)
    titles = [title for title in ROWS if gains[title, COLUMNS[0]]]
    means = {key: statistics.fmean(values) for key, values in gains.items() if values}
    yield f"| {name} | seeds | {' | '.join(COLUMNS)} |"
    yield f"|---|---|{'---|' * len(COLUMNS)}"
    for title in titles:
        cells = []
        for column in COLUMNS:
            values = gains[title, column]
            if title == "CE":
                level = statistics.fmean(test[column] for key, test in runs.items() if key[-1] == "CE")
                cells.append(f"{level:.4f}")
                continue
            error = f" ({statistics.stdev(values) / len(values) ** 0.5:.1f})" if len(values) > 1 else ""
            best = means[title, column] >= max(means[other, column] for other in titles)
            cell = f"{means[title, column]:+.1f}{error}"
            cells.append(f"**{cell}**{' *' if best else ''}" if ROWS[title].own == column else cell)
        yield f"| {title} | {len(gains[title, COLUMNS[0]])} | {' | '.join(cells)} |"


def _start(record: Mapping[str, Any]) -> tuple[int, str]:
    """What runs start from: weights by a seed and, on a GPU, where sums differ, at an occasion."""
    return record["seed"], record.get("occasion", "")


def main() -> None:
    """Run, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--log", type=Path, default=Path("results/own_metric/runs.jsonl"))
    run.add_argument("--output", type=Path, default=Path("runs/own_metric"))
    run.add_argument("--sets", nargs="+", choices=list(SETS), default=["Tox21", "MUV"])
    run.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    run.add_argument("--seeds", type=int, default=3)
    run.add_argument("--device", default="cpu")
    run.add_argument("--threads", type=int, default=1)
    commands.add_parser("table").add_argument("logs", nargs="+", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
        return
    records = read(options.logs)
    for name in dict.fromkeys(record["set"] for record in records):
        print("\n".join(table(records, name)) + "\n")


if __name__ == "__main__":
    main()
