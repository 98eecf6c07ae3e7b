"""Iterations to a given accuracy, against batch size, blocks per step, and the accuracy itself.

    python benchmarks/speedup_figure.py

The paper has T = O(max{m / (|I| B eps^4), 1 / (min{|I|, B} eps^4)}). Here both algorithms solve a noisy
quadratic whose gradient is known. T is the first step at which the mean of |grad F|^2 over x_0, ..., x_T is
at most eps^2, as in the theorems. Step sizes are tied together as there (lr ~ beta ~ block rate *
|I|/m), so that one number is left. It is tuned at every point: neighbors a factor 1.5 apart are tried until
none is better. So the figure shows what the best constant step size needs, not what the theorems' much
smaller ones need. T is the median over three seeds, tuned on the first. Writes PNG and CSV.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import mmb
from _timing import machine, print_json, print_table
from mmb._extras import require
from mmb.problems import Quadratic

BLOCKS = 64
FACTOR = 1.5  # between the step sizes tried
FASTER = 10.0  # how much faster everything moves that follows x
LONGEST = 0.5  # step size of a block; the curvatures are up to about 1.3
PATIENCE = 4.0  # a run is given up after so many times the steps it would need without noise
SEEDS = (0, 1, 2)


class Point(NamedTuple):
    """One place of the figure."""

    algorithm: int
    batch_size: int = 2
    blocks_per_step: int = 8
    accuracy: float = 0.1  # eps / |grad F(x_0)|


AXES = {
    "batch_size": ("batch size B", (1, 2, 4, 8, 16)),
    "blocks_per_step": ("blocks per step |I|", (4, 8, 16, 32, 64)),
    "accuracy": ("accuracy eps / |grad F(x0)|", (0.2, 0.14, 0.1, 0.07)),
}
EXPECTED = {"batch_size": -1, "blocks_per_step": -1, "accuracy": -4}


class Crossing:
    """Callback that ends a run once the mean of |grad F|^2 over x_0, ..., x_T is this share of the first."""

    def __init__(self, known: Quadratic, share: float) -> None:
        self.known = known
        self.total = float(known.gradient(known.x0).square().sum())
        self.goal = share * self.total
        self.steps, self.reached = 0, False

    def __call__(self, state: mmb.State, info: mmb.Info) -> bool:
        """Take in one step."""
        self.total += float(self.known.gradient(state.x).square().sum())
        self.steps += 1
        self.reached = self.total <= self.goal * (self.steps + 1)
        return self.reached or not math.isfinite(self.total)


def iterations(known: Quadratic, point: Point, lr: float, limit: float, seed: int) -> float:
    """Steps to the accuracy with a given step size; infinite if it takes longer than the limit."""
    k = point.blocks_per_step
    # The gradient falls as exp(-lr * curvature * t), and with it the mean of its square over the run.
    curvature = float(torch.linalg.eigvalsh(known.second_derivative)[0])
    limit = min(limit, 100 + PATIENCE / (2 * lr * curvature * point.accuracy**2))
    follow = min(LONGEST, FASTER * lr * BLOCKS / k)
    estimator = mmb.MomentumHessian(beta=follow) if point.algorithm == 1 else mmb.QuadraticSGD(lr=follow)
    solver = mmb.Solver(
        known.problem,
        estimator,
        lr=lr,
        lr_dual=follow,
        lr_lower=follow,
        beta=min(1.0, FASTER * lr),
        z_start="estimate",
        check_every=0,
        compile=True,
    )
    x0 = known.x0
    state = solver.init(x0, dual=known.dual_star(x0), lower=known.lower_star(x0))
    crossing = Crossing(known, point.accuracy**2)
    mmb.solve(
        solver,
        state,
        sampler=mmb.BlockSampler(BLOCKS, k, torch.Generator().manual_seed(2 * seed)),
        batches=known.batches(point.batch_size, torch.Generator().manual_seed(2 * seed + 1)),
        steps=int(limit),
        callbacks=[crossing],
    )
    return crossing.steps if crossing.reached else math.inf


def tune(known: Quadratic, point: Point, guess: float) -> tuple[float, float]:
    """The best step size near a guess, and the steps it needs on the first seed."""
    lr, best = guess, iterations(known, point, guess, math.inf, SEEDS[0])
    while math.isinf(best):
        lr /= FACTOR**2
        best = iterations(known, point, lr, math.inf, SEEDS[0])
    for factor in (FACTOR, 1 / FACTOR):
        while (better := iterations(known, point, lr * factor, best - 1, SEEDS[0])) < best:
            lr, best = lr * factor, better
    return lr, best


def measure(known: Quadratic) -> list[dict[str, Any]]:
    """All points of both algorithms, each tuned from the step size the theory expects it to scale to."""
    rows = []
    for algorithm in (1, 2):
        base = Point(algorithm)
        base_lr, _ = tune(known, base, 0.05)
        for axis, (_, values) in AXES.items():
            torch.compiler.reset()  # torch gives up compiling after too many variants of one function
            for value in values:
                changed: dict[str, Any] = {axis: value}
                point = base._replace(**changed)
                scale = (value / getattr(base, axis)) ** (2 if axis == "accuracy" else 1)
                lr, best = tune(known, point, min(1.0, base_lr * scale))
                others = [iterations(known, point, lr, math.inf, seed) for seed in SEEDS[1:]]
                steps = int(statistics.median([best, *others]))
                rows.append({"axis": axis, **point._asdict(), "lr": lr, "steps": steps})
                print(rows[-1], file=sys.stderr)
    return rows


def slope(rows: list[dict[str, Any]], axis: str) -> float:
    """Least-squares slope of log T in the log of what the axis varies."""
    x = torch.tensor([row[axis] for row in rows], dtype=torch.float64).log()
    y = torch.tensor([row["steps"] for row in rows], dtype=torch.float64).log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def draw(rows: list[dict[str, Any]], slopes: dict[str, float], path: Path) -> None:
    """One panel per axis, log-log, with the slope the theory expects for comparison."""
    matplotlib = require("matplotlib", extra="bench")
    matplotlib.use("Agg")
    pyplot = require("matplotlib.pyplot", extra="bench")
    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for panel, (axis, (label, values)) in zip(panels, AXES.items(), strict=True):
        for algorithm, marker in ((1, "o"), (2, "s")):
            chosen = [row for row in rows if row["axis"] == axis and row["algorithm"] == algorithm]
            text = f"Algorithm {algorithm}, slope {slopes[f'{axis}, algorithm {algorithm}']:.2f}"
            panel.loglog(values, [row["steps"] for row in chosen], marker=marker, label=text)
        middle = values[len(values) // 2]
        anchor = statistics.median(r["steps"] for r in rows if r["axis"] == axis and r[axis] == middle)
        power = EXPECTED[axis]
        line = [anchor * (value / middle) ** power for value in values]
        panel.loglog(values, line, color="gray", linestyle="--", label=f"slope {power}")
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.set_xticks([], minor=True)
        panel.grid(alpha=0.3)
        panel.set_xlabel(label)
        panel.set_ylabel("iterations")
        panel.legend()
    figure.suptitle(
        f"Iterations to mean |grad F|² ≤ eps², noisy quadratic with {BLOCKS} blocks, tuned step size"
    )
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/solver"), help="folder for PNG and CSV")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    start = time.perf_counter()
    known = Quadratic(
        BLOCKS, torch.Generator().manual_seed(0), d_x=20, d_dual=3, d_lower=3, spread=0.3, noise=5.0
    )
    rows = measure(known)
    slopes = {
        f"{axis}, algorithm {algorithm}": slope(
            [row for row in rows if row["axis"] == axis and row["algorithm"] == algorithm], axis
        )
        for algorithm in (1, 2)
        for axis in AXES
    }
    with (folder / "speedup.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, slopes, folder / "speedup.png")
    header = ["varied", "algorithm", "B", "|I|", "eps", "lr", "steps"]
    cells = [
        [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows
    ]
    print_table(f"Iterations to the accuracy, {BLOCKS} blocks", header, cells)
    print_table(
        "Slopes of log T", ["varied", "slope"], [[name, f"{value:.2f}"] for name, value in slopes.items()]
    )
    seconds = round(time.perf_counter() - start, 1)
    print_json(
        {
            "benchmark": "speedup_figure",
            "slopes": slopes,
            "seconds": seconds,
            "machine": machine(),
            "points": rows,
        }
    )


if __name__ == "__main__":
    main()
