"""Which guard keeps a greedy average of branches from following noise in few validation rows?

From one start by cross-entropy, eight branches are trained for different objectives (`_soup_pools.py`), and
averaged by rules that see the validation rows, or a quarter of them. Differences in test metrics from the
average of five branches by cross-entropy, which costs nearly as much, are paired by seed.

    python benchmarks/soup_guard.py --root FOLDER-OF-DATA [--pools FOLDER] [--seeds 8] [--sets wine digits]
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor, nn

from _soup_pools import BRANCHES, SETS, Pool, State, kept
from _timing import machine, print_json, print_table
from mmb import metrics, soup

MAX_FPR = 0.1
GUARDS = (0.5, 1.0, 2.0)
PARTS = (1.0, 0.25)  # of the validation rows
RESAMPLES = 30
FALLBACK = "ce"
partial_auc = partial(metrics.roc_auc, max_fpr=MAX_FPR)


class Judge:
    """Validation values and test metrics of averages of the branches of a pool, each computed once."""

    def __init__(self, pool: Pool, part: float, seed: int) -> None:
        self.data, self.branches = pool.data, pool.branches
        valid, generator = pool.data.split["valid"], torch.Generator().manual_seed(seed)
        self.valid = valid[torch.randperm(len(valid), generator=generator)[: round(part * len(valid))]]
        self.labels = pool.data.labels[self.valid]
        self.resamples = [
            torch.randint(len(self.valid), (len(self.valid),), generator=generator) for _ in range(RESAMPLES)
        ]
        self.found: dict[tuple[object, ...], Tensor] = {}

    def scores(self, rows: Tensor, weights: dict[str, float]) -> Tensor:
        """Logits of an average."""
        states = [self.branches[name] for name in weights]
        self.data.network.load_state_dict(soup.average(states, list(weights.values())))
        self.data.network.eval()
        with torch.no_grad():
            return self.data.network(self.data.inputs[rows])

    def once(self, kind: str, members: Sequence[str], compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Something about the validation scores of a uniform average."""
        key = (kind, *sorted(members))
        if key not in self.found:
            self.found[key] = compute(self.scores(self.valid, equal(members)))
        return self.found[key]

    def tasks(self, members: Sequence[str]) -> Tensor:
        """The value of each task."""
        return self.once("tasks", members, lambda scores: partial_auc(scores, self.labels))

    def rows(self, members: Sequence[str]) -> Tensor:
        """A value for each fold of the rows."""
        return self.once("rows", members, lambda scores: soup.jackknife(partial_auc, scores, self.labels))

    def resampled(self, members: Sequence[str]) -> Tensor:
        """The value on each resample of the rows."""

        def values(scores: Tensor) -> Tensor:
            return torch.stack(
                [partial_auc(scores[rows], self.labels[rows]).nanmean() for rows in self.resamples]
            )

        return self.once("resampled", members, values)

    def test(self, weights: dict[str, float]) -> list[float]:
        """Partial AUC, average precision and AUC of the test rows, the means over tasks."""
        rows = self.data.split["test"]
        scores, labels = self.scores(rows, weights), self.data.labels[rows]
        kinds = (partial_auc, metrics.average_precision, metrics.roc_auc)
        return [round(float(metric(scores, labels).nanmean()), 5) for metric in kinds]


def equal(members: Sequence[str]) -> dict[str, float]:
    return {name: 1 / len(members) for name in members}


def passes(new: Tensor, old: Tensor, guard: float) -> bool:
    gains = (new - old)[(new - old).isfinite()]
    error = float(gains.std()) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return float(gains.mean()) > guard * error


def guarded_steps(values: Callable[[Sequence[str]], Tensor], guard: float) -> list[str]:
    """Greedy, every model that is added must pass the guard; no comparison with the fallback."""
    ranked = sorted(BRANCHES, key=lambda name: -float(values([name]).nanmean()))
    members = ranked[:1]
    for name in ranked[1:]:
        if passes(values([*members, name]), values(members), guard):
            members.append(name)
    return members


def repeated(judge: Judge) -> dict[str, float]:
    """Greedy on every resample of the rows; shares are averaged."""
    shares: Counter[str] = Counter()
    for number in range(RESAMPLES):
        members = guarded_steps(lambda members, k=number: judge.resampled(members)[k : k + 1], 0.0)
        shares.update(equal(members))
    return {name: share / RESAMPLES for name, share in shares.items()}


def rules(judge: Judge, network: nn.Module) -> dict[str, dict[str, float]]:
    """What each rule makes of the pool: shares by name."""
    control = [name for name in judge.branches if name == "ce" or name.removeprefix("ce ").isdigit()]
    best = max(BRANCHES, key=lambda name: float(judge.tasks([name]).nanmean()))
    found = {
        "control: ce": {FALLBACK: 1.0},
        "control: five ce": equal(control),
        "uniform": equal(list(BRANCHES)),
        "best": {best: 1.0},
        "greedy, no guard": equal(guarded_steps(judge.tasks, 0.0)),
        "greedy on resamples": repeated(judge),
    }
    for kind, values in {"tasks": judge.tasks, "rows": judge.rows}.items():
        for guard in GUARDS:
            found[f"guard {guard:g} by {kind}, every step"] = equal(guarded_steps(values, guard))
        for guard in GUARDS:
            found[f"guard {guard:g} by {kind}, at the end"] = by_soup(judge, network, kind, guard)
    return found


def by_soup(judge: Judge, network: nn.Module, kind: str, guard: float) -> dict[str, float]:
    """`mmb.soup.greedy`."""
    inputs = judge.data.inputs[judge.valid]

    @torch.no_grad()
    def evaluate(model: nn.Module) -> Tensor:
        scores = model(inputs)
        return (
            partial_auc(scores, judge.labels)
            if kind == "tasks"
            else soup.jackknife(partial_auc, scores, judge.labels)
        )

    branches = {name: judge.branches[name] for name in BRANCHES}
    found = soup.greedy(branches, evaluate, guard=guard, fallback=FALLBACK, like=network)
    return {str(name): share for name, share in found.weights.items() if share > 0}


def cosine(one: State, other: State) -> float:
    """Between the weights of the layers of two networks, as `mmb.soup` compares them."""
    pairs = [(one[name].double(), other[name].double()) for name in one if one[name].ndim >= 2]
    inner, first, second = (
        sum(float((a * b).sum()) for a, b in products)
        for products in (pairs, [(a, a) for a, _ in pairs], [(b, b) for _, b in pairs])
    )
    return inner / math.sqrt(first * second)


def print_cosines(pools: dict[str, list[Pool]]) -> None:
    """How alike branches of one start are, and starts of different seeds."""
    rows = []
    for name, made in pools.items():
        together = min(
            cosine(one, other) for pool in made for one, other in combinations(pool.branches.values(), 2)
        )
        apart = max(cosine(one.start, other.start) for one, other in combinations(made, 2))
        rows.append([name, f"{together:.2f}", f"{apart:.2f}"])
    print_table("cosine of weights", ["", "least, one start", "largest, two starts"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="where the molecules lie")
    parser.add_argument(
        "--pools", type=Path, default=None, help="where trained pools are kept for the next time"
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cosines", action="store_true", help="only compare the directions of weights")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cosines:
        seeds = range(options.seeds)
        print_cosines(
            {name: [kept(name, k, options.root, options.pools) for k in seeds] for name in options.sets}
        )
        return
    warnings.filterwarnings("ignore", message="evaluate: no model has a value")
    found: dict[float, dict[str, dict[str, list[list[float]]]]] = {part: {} for part in PARTS}
    for name in options.sets:
        for seed in range(options.seeds):
            pool = kept(name, seed, options.root, options.pools)
            for part in PARTS:
                judge = Judge(pool, part, seed)
                for rule, shares in rules(judge, pool.data.network).items():
                    found[part].setdefault(rule, {}).setdefault(name, []).append(judge.test(shares))
        print(f"{name}: done", flush=True)
    for part, by_rule in found.items():
        base = by_rule["control: five ce"]
        table = []
        for rule, by_set in by_rule.items():
            gains = {name: torch.tensor(by_set[name]) - torch.tensor(base[name]) for name in by_set}
            means = torch.stack([gain.mean(0) for gain in gains.values()])
            errors = [float(gain[:, 0].std() / math.sqrt(len(gain))) for gain in gains.values()]
            cells = [
                f"{1e3 * mean:+.1f} ({1e3 * error:.1f})"
                for mean, error in zip(means[:, 0], errors, strict=True)
            ]
            overall = [f"{1e3 * value:+.2f}" for value in (*means.mean(0), means[:, 0].min())]
            table.append([rule, *overall, *cells])
        print_table(
            f"test metrics less those of five ce, in thousandths, {options.seeds} seeds; by data set partial "
            f"AUC with its standard error; choice by {part:.0%} of the validation rows",
            ["", "pAUC", "AP", "AUC", "worst pAUC", *by_rule["uniform"]],
            table,
        )
    print_json({"benchmark": "soup_guard", "max_fpr": MAX_FPR, "machine": machine(), "test": found})


if __name__ == "__main__":
    main()
