"""Iterations to a given accuracy with and without STORM: slopes near -3 and -4.

    python benchmarks/storm_slope.py

Algorithm 2 solves a noisy quadratic of eight blocks, all in every step, whose gradient is known. As in
`speedup_figure.py`, T is the first step at which the mean of |grad F|^2 over x_0, ..., x_T is at most eps^2,
and the step size of x is tuned at every accuracy, with all others tied to it. STORM's beta is tied to its
square, as in the theory: with it the best step size falls as eps, without it as eps^2. An iteration with
STORM makes twice the oracle calls, which does not change the slope.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any

import torch

import mmb
from _timing import machine, print_json, print_table
from mmb.problems import Quadratic
from speedup_figure import FACTOR, FASTER, LONGEST, SEEDS, Crossing, slope

BLOCKS, BATCH = 8, 4
ACCURACIES = (0.2, 0.14, 0.1, 0.07)
STORM = 1.0  # its beta over the square of the step size of x


def iterations(known: Quadratic, accuracy: float, storm: bool, lr: float, limit: float, seed: int) -> float:
    """Steps to the accuracy with a given step size; infinite if it takes longer than the limit."""
    follow = min(LONGEST, FASTER * lr)
    solver = mmb.Solver(
        known.problem,
        mmb.QuadraticSGD(lr=follow),
        lr=lr,
        lr_dual=follow,
        lr_lower=follow,
        beta=1.0 if storm else min(1.0, FASTER * lr),
        z_start="estimate",
        variance_reduction=mmb.Storm(min(1.0, STORM * lr**2)) if storm else None,
        check_every=0,
    )
    x0 = known.x0
    state = solver.init(x0, dual=known.dual_star(x0), lower=known.lower_star(x0))
    crossing = Crossing(known, accuracy**2)
    mmb.solve(
        solver,
        state,
        sampler=mmb.BlockSampler(BLOCKS, BLOCKS),
        batches=known.batches(BATCH, torch.Generator().manual_seed(seed)),
        steps=int(min(limit, 20_000)),
        callbacks=[crossing],
    )
    return crossing.steps if crossing.reached else math.inf


def tune(known: Quadratic, accuracy: float, storm: bool, guess: float) -> tuple[float, float]:
    """The best step size near a guess, and the steps it needs on the first seed."""

    def steps(lr: float, limit: float) -> float:
        return iterations(known, accuracy, storm, lr, limit, SEEDS[0])

    lr, best = guess, steps(guess, math.inf)
    while math.isinf(best):
        lr /= FACTOR
        best = steps(lr, math.inf)
    for factor in (FACTOR, 1 / FACTOR):
        while lr * factor < 1 and (better := steps(lr * factor, best - 1)) < best:
            lr, best = lr * factor, better
    return lr, best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--noise", type=float, default=5.0)
    parser.add_argument("--accuracies", type=float, nargs="+", default=ACCURACIES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {"d_x": 20, "d_dual": 3, "d_lower": 3}
    known = Quadratic(BLOCKS, torch.Generator().manual_seed(0), **sizes, spread=0.3, noise=options.noise)
    rows: list[dict[str, Any]] = []
    for storm in (False, True):
        lr = 0.1
        for accuracy in options.accuracies:
            lr, best = tune(known, accuracy, storm, lr)
            others = [iterations(known, accuracy, storm, lr, math.inf, seed) for seed in SEEDS[1:]]
            row = {"storm": storm, "accuracy": accuracy, "lr": lr}
            rows.append({**row, "steps": statistics.median([best, *others])})
            print(rows[-1], flush=True)
    slopes = {
        name: slope([row for row in rows if row["storm"] == storm], "accuracy")
        for name, storm in (("without", False), ("with STORM", True))
    }
    print_table(
        "Iterations to the accuracy",
        ["", "eps", "lr", "steps"],
        [
            [
                "STORM" if row["storm"] else "plain",
                f"{row['accuracy']:g}",
                f"{row['lr']:.3g}",
                f"{row['steps']:.0f}",
            ]
            for row in rows
        ],
    )
    print_table("Slopes of log T in log eps", ["", "slope"], [[k, f"{v:.2f}"] for k, v in slopes.items()])
    print_json({"benchmark": "storm_slope", "machine": machine(), "slopes": slopes, "rows": rows})


if __name__ == "__main__":
    main()
