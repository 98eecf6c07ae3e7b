"""When is it too early to branch? Soups and longer cross-entropy after first phases of different lengths.

    python benchmarks/still_rising.py run [--lengths 100 300] [--sets ...]
    python benchmarks/still_rising.py table
    python benchmarks/still_rising.py run --look --log results/transfer/still_gaining.jsonl
    python benchmarks/still_rising.py table --look --log results/transfer/still_gaining.jsonl

`run` trains cross-entropy for a number of steps, and from there the default soup, which here always branches,
and cross-entropy for as many steps again as all branches together. `table` shows the difference by how much
partial AUC on the validation rows rose in the last fifth of the first phase: what `soup.still_rising` is
compared with. The soup that does not branch is cross-entropy that trains longer, with the same weights.

With `--look`, `run` also trains a soup that looks at the gain of its first branch alone
(`soup.still_gaining`). Where that trains on, its step size falls twice, but once where cross-entropy trains
longer: `table` compares both.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from _transfer_sets import ALL_SETS
from from_scratch import METRICS, read
from mmb.training import Run, merge, resolve, train
from mmb.training.loop.branches import jitter, rise_at_the_end

LOG = Path(__file__).parents[1] / "results/transfer/still_rising.jsonl"
LENGTHS = (100, 300, 700)
SETS = (
    *("digits", "synthetic, rare", "synthetic, many tasks", "Tox21", "ToxCast", "KEEL letter"),
    *("KEEL letter, rare", "KEEL magic", "KEEL marketing", "KEEL movement_libras", "KEEL optdigits, rare"),
    *("KEEL penbased, rare", "KEEL phoneme", "KEEL ring", "KEEL satimage", "KEEL segment", "KEEL spambase"),
    *("KEEL splice", "KEEL texture, rare", "KEEL vowel", "R churn", "R churn, phones", "R DNA"),
    *("R jobs on a cluster", "R loans", "R shuttle", "R soybean"),
)
LIMITS = (0.0, 0.0025, 0.005, 0.01, 0.02)


def measure(name: str, seed: int, steps: int, folder: Path, look: bool) -> dict[str, Any]:
    """Rises at the end of the first phase, and test metrics of what follows it."""
    training = {"steps": steps, "evaluate_every": steps // 10, "tensorboard": False, "device": "cpu"}
    shared = merge(ALL_SETS[name](seed, folder), {"seed": seed, "training": training})
    start = Run.create(folder / "start", resolve({**shared, "method": "ce"}))
    rows = {"start": train(start)["test"]}
    gained = {}
    for title, changes in {
        "longer": {"method": "ce-longer"},
        "soup": {"method": "soup", "soup": {"still_rising": 1, "still_gaining": 1}},
        **({"looking": {"method": "soup", "soup": {"still_rising": 1}}} if look else {}),
    }.items():
        recipe = resolve(merge(shared, {**changes, "init_from": str(start.path)}))
        result = train(Run.create(folder / title, recipe))
        rows[title] = result["test"]
        if title == "looking":
            gained = {"gained": result.get("still_gaining", 0.0)}  # as far as it is over the limit
    return {"set": name, "seed": seed, "steps": steps, **end_of(start), **gained, "rows": rows}


def end_of(start: Run) -> dict[str, dict[str, float]]:
    """How a first phase ends, and how noisy its metrics are."""
    metrics = ("pauc", "auc")
    rises = {metric: rise_at_the_end(start, metric) for metric in metrics}
    return {"rises": rises, "jitter": {metric: jitter(start, metric) for metric in metrics}}


def gains(records: Sequence[Mapping[str, Any]], limit: float) -> list[float]:
    """What each metric gains, on the mean of all runs, if those whose rise exceeds a limit do not branch."""
    found = [difference(one) if _rise(one) > limit else [0.0] * len(METRICS) for one in records]
    return [statistics.fmean(column) for column in zip(*found, strict=True)]


def difference(record: Mapping[str, Any]) -> list[float]:
    """Metrics of longer cross-entropy minus those of the soup."""
    rows = record["rows"]
    return [rows["longer"][metric] - rows["soup"][metric] for metric in METRICS]


def table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: longer cross-entropy minus the soup, x 1,000, by the rise; and what limits give."""

    def line(cells: Sequence[float]) -> str:
        return " | ".join(f"{1000 * cell:+.1f}" for cell in cells)

    heads = "pAUC | AP | AUC"
    yield f"| rise at the end, beyond noise | runs | longer CE is better | longer CE minus soup: {heads} |"
    yield "|---|---|---|---|---|---|"
    edges = (-1.0, *LIMITS, 1.0)
    for low, high in pairwise(edges):
        inside = [difference(one) for one in records if low < _rise(one) <= high]
        if inside:
            gaining = sum(cells[0] > 0 for cells in inside)
            label = f"up to {high:g}" if low < 0 else f"{low:g} to {high:g}" if high < 1 else f"over {low:g}"
            means = [statistics.fmean(column) for column in zip(*inside, strict=True)]
            yield f"| {label} | {len(inside)} | {gaining} | {line(means)} |"
    yield ""
    yield f"| `soup.still_rising` | runs that do not branch | gain over always branching: {heads} |"
    yield "|---|---|---|---|---|"
    for limit in LIMITS:
        count = sum(_rise(one) > limit for one in records)
        yield f"| {limit:g} | {count} of {len(records)} | {line(gains(records, limit))} |"


def looking_table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: soups that look at their first branch, where that trains on, x 1,000."""
    found = [record for record in records if record["gained"] > 0]
    heads = "pAUC | AP | AUC"
    over = " | ".join(f"over {other}: {heads}" for other in ("always branching", "longer CE"))
    yield f"| first phase | runs | first branch trains on | {over} |"
    yield f"|---|{'---|' * 8}"
    for steps in sorted({record["steps"] for record in records}):
        inside = [record for record in found if record["steps"] == steps]
        count = sum(record["steps"] == steps for record in records)
        cells = [_over(inside, other) for other in ("soup", "longer")] if inside else [" | | "] * 2
        yield f"| {steps} steps | {count} | {len(inside)} | {' | '.join(cells)} |"


def _over(records: Sequence[Mapping[str, Any]], other: str) -> str:
    """Means of what looking gains over another row, and their standard errors."""
    columns = [
        [1000 * (one["rows"]["looking"][metric] - one["rows"][other][metric]) for one in records]
        for metric in METRICS
    ]
    errors = [
        statistics.stdev(column) / math.sqrt(len(column)) if len(column) > 1 else math.nan
        for column in columns
    ]
    means = [statistics.fmean(column) for column in columns]
    return " | ".join(f"{mean:+.1f} ({error:.1f})" for mean, error in zip(means, errors, strict=True))


def _rise(record: Mapping[str, Any]) -> float:
    """The rise of partial AUC, or none where it or AUC does not rise beyond noise."""
    rises, noise = record["rises"], record["jitter"]
    beyond = all(rises[metric] > 2 * noise[metric] for metric in rises)
    return rises["pauc"] if beyond else min(0.0, rises["pauc"])


def main() -> None:
    """Run, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--sets", nargs="*", choices=list(ALL_SETS), default=SETS)
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument(
        "--look", action="store_true", help="also soups that look at their first branch alone"
    )
    options = parser.parse_args()
    if options.command == "table":
        records = read([options.log])
        if options.look:
            print(*looking_table(records), sep="\n")
            return
        for steps in sorted({record["steps"] for record in records}):
            chosen = [record for record in records if record["steps"] == steps]
            print(f"## {steps} steps", "", *table(chosen), "", sep="\n")
        print("## All", "", *table(records), sep="\n")
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for steps in options.lengths:
        for seed in options.seeds:
            for name in options.sets:
                with tempfile.TemporaryDirectory() as folder:
                    found = measure(name, seed, steps, Path(folder), options.look)
                with options.log.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(name, seed, steps, found["rises"], flush=True)


if __name__ == "__main__":
    main()
