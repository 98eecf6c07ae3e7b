"""One block, no dual: estimators of mmb against methods of the bilevel literature, at equal oracle calls.

    python benchmarks/bilevel_quadratics.py

The problem is `_bilevel_data.py`. A call is a gradient of f, a gradient of g, a Hessian-vector product or a
cross product, of one sample; a full Hessian counts as one product per lower variable. What mmb computes for
diagnostics alone is not counted. SAGA takes its batches without replacement, and 16 samples of f. Every
method gets the same grid of step sizes, tuned on one seed and reported on others. mmb's QuadraticSGD without
projection and momentum IS SOBA: the paths are compared first.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import mmb
from _bilevel_data import DIM_X, DIM_Y, SAMPLES_LOWER, SAMPLES_UPPER, Bilevel, Oracle, Samples, value
from _bilevel_methods import INNER, Method, Schedule, amigo, fixed_batch, mrbo, saba, soba, stocbio
from _timing import machine, print_json, print_table

BATCH = 64
SAGA_UPPER = 16  # samples of f in a step of SAGA: f has few, and its memory is complete soon
UPPERS, LOWERS = SAMPLES_UPPER // SAGA_UPPER, SAMPLES_LOWER // BATCH  # fixed batches
TUNING_SEED = 1
LR = (0.05, 0.15, 0.5)  # of y and v; the lower Hessian has eigenvalues up to 1
LR_X = (0.01, 0.03, 0.1, 0.3, 1.0)  # the upper one up to about 1.1
DECAY = (0.0, 5.0, 30.0)  # step sizes are divided by 1 + decay * (fraction of the budget spent)
CHECKPOINTS = 40
SETTING = ("lr", "lr_x", "decay")
GOAL = 0.1  # of the gradient norm at the start

PROBLEM = mmb.Problem(
    upper=lambda x, dual, y, batch: value(x, y, Samples(**batch)),
    lower=lambda x, y, batch: value(x, y, Samples(**batch)),
    num_blocks=1,
)


class Run(NamedTuple):
    """Relative numbers at evenly spaced oracle calls."""

    gradient: list[float]  # |grad h| / its start
    gap: list[float]  # (h - min h) / its start

    def end(self) -> float:
        """Mean squared gradient over the last tenth of the budget."""
        last = self.gradient[-CHECKPOINTS // 10 :]
        return sum(g * g for g in last) / len(last)


def through_mmb(
    make: Callable[[float], mmb.Hypergradient],
    calls_per_sample: float,
    beta: float = 1.0,
    inner_steps: int = 1,
    compile: bool = True,
    reduction: mmb.Saga | mmb.Storm | None = None,
) -> Method:
    """A solver of mmb as a method; `make` gets the step size of `y`."""

    def method(oracle: Oracle, lr: Schedule, lr_x: Schedule) -> Iterator[Tensor]:
        problem, hypergradient = oracle.problem, make(lr(0))
        solver = mmb.Solver(
            PROBLEM,
            hypergradient,
            lr=lambda step: lr_x(oracle.calls),
            lr_lower=lambda step: lr(oracle.calls),
            beta=beta,
            z_start="estimate",
            inner_steps=inner_steps,
            variance_reduction=reduction,
            compile=compile,
        )
        state = solver.init(problem.x0, lower=problem.y0[None])
        block = torch.zeros(1, dtype=torch.long)
        orders: list[mmb.BatchOrder] = []
        if isinstance(reduction, mmb.Saga):
            orders = [mmb.BatchOrder(1, batches, oracle.generator) for batches in (UPPERS, LOWERS)]
        while True:
            samples = None
            if orders:
                samples = (orders[0](block), orders[1](block))
                upper = fixed_batch(problem.f, int(samples[0]), SAGA_UPPER)
                lower = fixed_batch(problem.g, int(samples[1]), BATCH)
            else:
                upper, lower = oracle.upper_batch(), oracle.lower_batch()
            if isinstance(hypergradient, mmb.QuadraticSGD | mmb.FirstOrder):
                hypergradient.lr = lr(oracle.calls)  # theirs is a number, so it is scheduled from here
            solver.step(state, block, _as_block(upper), _as_block(lower), samples=samples)
            oracle.count(calls_per_sample)
            yield state.x

    return method


def _as_block(batch: Samples) -> dict[str, Tensor]:
    return {name: part[None] for name, part in batch._asdict().items()}


# f, g, Hessian-vector and cross: 4 calls per sample and step, unless said otherwise.
MMB: dict[str, tuple[Method, str]] = {
    "mmb QuadraticSGD (= SOBA)": (through_mmb(mmb.QuadraticSGD, 4), "4"),
    "mmb QuadraticSGD, radius, momentum (v2)": (
        through_mmb(lambda lr: mmb.QuadraticSGD(lr, radius=5.0), 4, beta=0.1),
        "4",
    ),
    "mmb MomentumHessian, momentum (v1)": (
        through_mmb(lambda lr: mmb.MomentumHessian(beta=0.02), 3 + DIM_Y, beta=0.1),
        f"{3 + DIM_Y}",
    ),
    "  same, a Hessian counted as one call": (
        through_mmb(lambda lr: mmb.MomentumHessian(beta=0.02), 4, beta=0.1),
        "4",
    ),
    "mmb QuadraticSGD, SAGA": (
        through_mmb(mmb.QuadraticSGD, 3 + SAGA_UPPER / BATCH, reduction=mmb.Saga(UPPERS, LOWERS)),
        f"{3 + SAGA_UPPER / BATCH}",
    ),
    "mmb QuadraticSGD, STORM": (through_mmb(mmb.QuadraticSGD, 8, reduction=mmb.Storm(0.1)), "8"),
    "mmb FirstOrder, penalty 10": (through_mmb(lambda lr: mmb.FirstOrder(penalty=10, lr=lr), 3), "3"),
    "mmb ConjugateGradient, 10": (through_mmb(lambda lr: mmb.ConjugateGradient(10), 13), "13"),
    "mmb Neumann, 10 terms": (through_mmb(lambda lr: mmb.Neumann(INNER, 1 / lr, randomize=False), 12), "12"),
    "mmb QuadraticSGD, double loop of 10": (
        through_mmb(mmb.QuadraticSGD, 3 * INNER + 1, inner_steps=INNER),
        f"{3 * INNER + 1}",
    ),
}
LITERATURE: dict[str, tuple[Method, str]] = {
    "SABA": (saba, "4"),
    "AmIGO": (amigo, f"{2 * INNER + 2}"),
    "StocBiO": (stocbio, f"{2 * INNER + 2}"),
    "MRBO": (mrbo, f"{2 * (INNER + 3)}"),
}


def run(
    problem: Bilevel, method: Method, budget: int, lr: float, lr_x: float, decay: float, seed: int
) -> Run | None:
    """Run a method until the budget is spent; None if it breaks."""
    oracle = Oracle(problem, BATCH, torch.Generator().manual_seed(seed))
    gradient, gap = problem.gradient_norm(problem.x0), problem.suboptimality(problem.x0)
    result = Run([], [])

    def decayed(rate: float) -> Schedule:
        return lambda calls: rate / (1 + decay * calls / budget)

    steps = method(oracle, decayed(lr), decayed(lr_x))
    while len(result.gradient) < CHECKPOINTS:
        try:
            x = next(steps)
        except mmb.BrokenStepError:
            return None
        reached = min(CHECKPOINTS, oracle.calls * CHECKPOINTS // budget)
        new = reached - len(result.gradient)
        if new:
            now = problem.gradient_norm(x) / gradient
            if not now < 100:
                return None
            result.gradient.extend([now] * new)
            result.gap.extend([problem.suboptimality(x) / gap] * new)
    return result


def tune(problem: Bilevel, method: Method, budget: int) -> dict[str, float] | None:
    """The setting of the grid that ends best on the tuning seed."""
    best, setting = math.inf, None
    for lr, lr_x, decay in itertools.product(LR, LR_X, DECAY):
        got = run(problem, method, budget, lr=lr, lr_x=lr_x, decay=decay, seed=TUNING_SEED)
        if got is not None and got.end() < best:
            best, setting = got.end(), dict(zip(SETTING, (lr, lr_x, decay), strict=True))
    return setting


def measure(
    problem: Bilevel, method: Method, budget: int, seeds: int, setting: dict[str, float] | None
) -> dict[str, Any] | None:
    """Tune, unless a setting is given, then medians over the other seeds."""
    setting = setting or tune(problem, method, budget)
    if setting is None:
        return None
    others = range(TUNING_SEED + 1, TUNING_SEED + 1 + seeds)
    runs = [run(problem, method, budget, **setting, seed=seed) for seed in others]
    good = [one for one in runs if one is not None]
    if not good:
        return None

    def median(curve: str, fraction: float) -> float:
        place = round(fraction * CHECKPOINTS) - 1
        return float(statistics.median(getattr(one, curve)[place] for one in good))

    to_goal = [first_below(one.gradient, GOAL) for one in good]
    to_goal_median = statistics.median(math.inf if at is None else at for at in to_goal)
    return {
        "setting": setting,
        "gradient": {f"{fraction:.0%}": median("gradient", fraction) for fraction in (0.1, 0.25, 0.5, 1.0)},
        "gap": {"100%": median("gap", 1.0)},
        "calls_to_goal": None if math.isinf(to_goal_median) else round(to_goal_median * budget),
        "runs": len(good),
        "curve": [median("gradient", (place + 1) / CHECKPOINTS) for place in range(CHECKPOINTS)],
    }


def measure_one(name: str, budget: int, seeds: int, setting: dict[str, float] | None) -> dict[str, Any]:
    """The row of one method."""
    torch.set_num_threads(1)
    torch.compiler.reset()
    method, calls = (MMB | LITERATURE)[name]
    start = time.process_time()
    measured = measure(Bilevel(), method, budget, seeds, setting)
    spent = round(time.process_time() - start, 1)
    return {"calls_per_sample_and_step": calls, "seconds": spent, **(measured or {})}


def first_below(curve: list[float], goal: float) -> float | None:
    """Fraction of the budget after which a curve has first reached a goal."""
    return next(((place + 1) / CHECKPOINTS for place, number in enumerate(curve) if number <= goal), None)


def same_path(problem: Bilevel, steps: int = 200) -> float:
    """Largest difference between SOBA as written here and as a setting of mmb, on the same batches."""
    paths = []
    for method in (soba, through_mmb(mmb.QuadraticSGD, 4, compile=False)):
        oracle = Oracle(problem, BATCH, torch.Generator().manual_seed(0))
        walk = method(oracle, lambda calls: 0.1, lambda calls: 0.1)
        paths.append(torch.stack([x.clone() for x in itertools.islice(walk, steps)]))
    return float((paths[0] - paths[1]).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=int, default=256_000, help="oracle calls per run")
    parser.add_argument("--jobs", type=int, default=1, help="methods at a time, one thread each")
    parser.add_argument("--only", nargs="+", default=[""], help="methods whose names start so")
    parser.add_argument("--seeds", type=int, default=3, help="runs that are reported on")
    parser.add_argument(
        "--setting", type=float, nargs=3, metavar=SETTING, help="of all methods; none is tuned"
    )
    options = parser.parse_args()
    setting = None if options.setting is None else dict(zip(SETTING, options.setting, strict=True))
    torch.set_num_threads(1)
    problem = Bilevel()
    difference = same_path(problem)
    print(
        f"SOBA against mmb's QuadraticSGD without projection and momentum, 200 steps: {difference:.1e} apart"
    )
    result: dict[str, Any] = {
        "benchmark": "bilevel_quadratics",
        "dim_x": DIM_X,
        "dim_y": DIM_Y,
        "samples": {"lower": SAMPLES_LOWER, "upper": SAMPLES_UPPER},
        "batch": BATCH,
        "budget": options.budget,
        "condition_of_h": problem.largest / problem.smallest,
        "machine": machine(),
        "soba_difference": difference,
        "methods": {},
    }
    names = [name for name in MMB | LITERATURE if name.strip().startswith(tuple(options.only))]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        rows = pool.starmap(
            measure_one, [(name, options.budget, options.seeds, setting) for name in names], chunksize=1
        )
    result["methods"] = dict(zip((name.strip() for name in names), rows, strict=True))
    print_table(
        f"|grad h| relative to the start, after fractions of {options.budget:,} oracle calls "
        f"({'tuned on one seed' if setting is None else 'one setting'}, median of {options.seeds} others)",
        [
            "",
            "calls/step",
            "10%",
            "25%",
            "50%",
            "100%",
            "h - min h",
            f"calls to {GOAL:.0%}",
            "lr",
            "lr of x",
            "decay",
        ],
        [_cells(name, result["methods"][name.strip()]) for name in names],
    )
    print_json(result)


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    if "gradient" not in row:
        return [name, row["calls_per_sample_and_step"], "broke", *[""] * 8]
    goal = row["calls_to_goal"]
    return [
        name,
        row["calls_per_sample_and_step"],
        *(f"{number:.4f}" for number in row["gradient"].values()),
        f"{row['gap']['100%']:.1e}",
        "-" if goal is None else f"{goal:,}",
        *(f"{number:g}" for number in row["setting"].values()),
    ]


if __name__ == "__main__":
    main()
