"""Does `mmb.auto` need no tuning? Its steps to a goal against those of the best of 50 hand-set step sizes.

    python benchmarks/auto.py --jobs 16 --log auto_log            # all problems, 16 at a time
    python benchmarks/auto.py --only saddle thresholds            # problems whose name starts so

Needs torch and mmb alone (`PYTHONPATH=src`). The problems are drawn by `--seed` (`_auto_problems.py`), and
their gradients are known. The constants of `auto` were chosen on seeds below 100; later changes were kept
or dropped by their effect on seed 100, so that problems nobody has tuned on have seeds above 100.
A run is over when the mean of the gradient's norm over three looks
has fallen to the goal, a tenth of the start mostly. The grid has 10 step sizes of x (from 2 down to 2e-4 over
the curvature that the probe found) times 5 of duals, lower variables and estimator (from 1.8 down to 0.03
over theirs), constant, with the estimator and `beta` that `auto` takes. It is tuned on one seed of batches;
the best of it and `auto` run with three others. A point is given up once it needs more steps than a better
one, or twice those of `auto`. After `--limit` seconds on a problem no more points are tried: likely good
ones come first, and the table says how many there were. The probe, which looks at four draws of batches, is
not counted. Where `auto` updates blocks several times at a visit, or at their first, each step costs as many
of the grid's; the table says how many updates a step made on average, and the ratio if each counted as a
step.

Every finished run is a line in `--log`, one file per problem, so a killed command continues where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import mmb
from _auto_problems import Case, draw_cases, gradient_norm
from _timing import machine, print_json, print_table
from mmb.automatic import AdaptiveSolver
from mmb.problems import KnownProblem

LR = [2 * 10 ** (-4 * place / 9) for place in range(10)]  # times the curvature of F
LR_INNER = (1.8, 0.9, 0.3, 0.1, 0.03)  # times that of duals and lower variables
TUNING_SEED, SEEDS = 1, (2, 3, 4)
LOOKS = 3
CAP = 10_000  # steps


def steps_to_goal(
    known: KnownProblem, case: Case, make: Callable[[Any], tuple[mmb.Solver, mmb.State]], seed: int, cap: int
) -> int | None:
    """Steps until the gradient has fallen to the goal; None if that takes more than `cap`, or breaks.

    The gradient is looked at after every step at first, and after every fiftieth of the run later.
    """
    batches = known.batches(case.batch_size, torch.Generator().manual_seed(seed))
    solver, state = make(batches)
    goal = case.goal * gradient_norm(known, state.x)
    sampler = iter(mmb.BlockSampler(case.num_blocks, case.blocks_per_step, seed))
    made, looks = 0, [math.inf] * LOOKS
    while made < cap:
        some = max(1, made // 50)
        try:
            mmb.solve(solver, state, sampler=sampler, batches=batches, steps=some)
        except mmb.BrokenStepError:
            return None
        made += some
        looks = [*looks[1:], gradient_norm(known, state.x)]
        if statistics.mean(looks) <= goal:
            return made
        if not looks[-1] < 1e3 * goal / case.goal:
            return None
    return None


def automatic(known: KnownProblem, case: Case) -> Callable[[Any], tuple[AdaptiveSolver, mmb.State]]:
    """`mmb.auto` on the problem."""

    def make(batches: Any) -> tuple[AdaptiveSolver, mmb.State]:
        return mmb.auto(
            known.problem,
            known.x0,
            dual=known.dual0,
            lower=known.lower0,
            batches=batches,
            blocks_per_step=case.blocks_per_step,
            print=None,
        )

    return make


def by_hand(
    known: KnownProblem, like: AdaptiveSolver, curvature: float, lr: float, inner: float
) -> Callable[[Any], tuple[mmb.Solver, mmb.State]]:
    """A plain solver with step sizes of the grid."""

    def make(batches: Any) -> tuple[mmb.Solver, mmb.State]:
        scaled = inner / 0.9  # auto takes 0.9 over the curvature
        estimator = like.hypergradient
        if isinstance(estimator, mmb.QuadraticSGD):
            assert isinstance(estimator.lr, float)
            estimator = mmb.QuadraticSGD(scaled * estimator.lr)
        rates = {
            name: None if rate is None else scaled * rate
            for name, rate in (("lr_dual", like.lr_dual), ("lr_lower", like.lr_lower))
        }
        solver = mmb.Solver(
            known.problem, estimator, lr=lr / curvature, beta=like.beta, z_start="estimate", **rates
        )
        return solver, solver.init(known.x0, dual=known.dual0, lower=known.lower0)

    return make


class Log:
    """Runs that were made, as lines of JSON; a run that is there is not made again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.runs = {tuple(run["key"]): run["steps"] for run in map(json.loads, lines)}

    def run(self, key: tuple[Any, ...], run: Callable[[], int | None]) -> int | None:
        """Steps of a run, made if it is not there."""
        if key[0] == "grid" and key not in self.runs:
            for (*point, cap), steps in self.runs.items():  # a run with a larger cap serves as well
                if tuple(point) == key[:-1] and (cap >= key[-1] or (steps or math.inf) <= key[-1]):
                    return steps if (steps or math.inf) <= key[-1] else None
        if key not in self.runs:
            start = time.perf_counter()
            self.runs[key] = run()
            line = {"key": key, "steps": self.runs[key], "seconds": round(time.perf_counter() - start, 2)}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        steps: int | None = self.runs[key]
        return steps


def compare(name: str, bank: int, folder: Path, points: int, limit: float) -> dict[str, Any]:
    """All runs of one problem."""
    torch.set_num_threads(1)
    case, log = draw_cases(bank)[name], Log(folder / (re.sub(r"\W+", "-", f"{bank} {name}") + ".jsonl"))
    began = time.perf_counter()
    known = case.problem()
    make = automatic(known, case)
    auto = [
        log.run(("auto", seed), lambda seed=seed: steps_to_goal(known, case, make, seed, CAP))
        for seed in SEEDS
    ]
    batches = known.batches(case.batch_size, torch.Generator().manual_seed(0))
    like, _ = make(batches)
    assert like.findings is not None
    curvature = like.findings.smoothness
    middle = _median(auto)
    best, setting, tried = CAP if middle is None else min(CAP, 2 * int(middle)), None, 0
    for lr, inner in _spread(points):
        if time.perf_counter() > began + limit:
            break
        tried += 1
        hand = by_hand(known, like, curvature, lr, inner)
        key = ("grid", round(lr, 6), inner, best)
        # no use in going on beyond the best
        steps = log.run(key, lambda hand=hand, cap=best: steps_to_goal(known, case, hand, TUNING_SEED, cap))
        if steps is not None and steps < best:
            best, setting = steps, (lr, inner)
    hand_runs: list[int | None] = []
    if setting is not None:
        hand = by_hand(known, like, curvature, *setting)
        hand_runs = [
            log.run(("best", *setting, seed), lambda seed=seed: steps_to_goal(known, case, hand, seed, CAP))
            for seed in SEEDS
        ]
    found = {"auto": middle, "grid": _median(hand_runs), "setting": setting, "points": tried}
    made = [updates(like, case, seed, run) for seed, run in zip(SEEDS, auto, strict=True) if run is not None]
    found["updates"] = round(statistics.median(made), 2) if made else like.usual_inner_steps
    ratio = None if None in (found["auto"], found["grid"]) else found["auto"] / found["grid"]
    return {"problem": name, **found, "ratio": ratio, "reached": sum(run is not None for run in auto)}


def updates(solver: AdaptiveSolver, case: Case, seed: int, steps: int) -> float:
    """Updates of a block at a visit, on average over a run: more if one of a step's blocks is new."""
    seen, new = torch.zeros(case.num_blocks, dtype=torch.bool), 0
    for blocks in itertools.islice(mmb.BlockSampler(case.num_blocks, case.blocks_per_step, seed), steps):
        new += not seen[blocks].all()
        seen[blocks] = True
    first, usual = solver.first_inner_steps, solver.usual_inner_steps
    return usual + (first - usual) * (new / steps if first > 1 else 0.0)


def _spread(points: int) -> Iterator[tuple[float, float]]:
    """The grid, likely good points first, so that others can be cut short."""
    grid = sorted(
        itertools.product(LR, LR_INNER),
        key=lambda point: abs(math.log(point[0] / 0.3)) + abs(math.log(point[1] / 0.9)),
    )
    yield from grid if points >= len(grid) else grid[:: max(1, len(grid) // points)][:points]


def _median(runs: list[int | None]) -> float | None:
    middle = statistics.median(math.inf if run is None else run for run in runs) if runs else math.inf
    return None if math.isinf(middle) else middle


def _ratio(row: dict[str, Any], cost: float = 1) -> str:
    """Steps of `auto` times their cost, over those of the grid if any point got there in twice as many."""
    if row["auto"] is None:
        return "not reached" if row["grid"] is not None else "neither"
    if row["ratio"] is None:
        return f"< {0.5 * cost:g}" if row["points"] else "-"
    return f"{cost * row['ratio']:.2f}"


def _task(arguments: tuple[str, int, Path, int, float]) -> dict[str, Any]:
    return compare(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time, one thread each")
    parser.add_argument(
        "--log", type=Path, default=Path("auto_log"), help="folder of the runs that were made"
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="problems whose names start like one of these"
    )
    parser.add_argument("--points", type=int, default=50, help="points of the grid")
    parser.add_argument("--seed", type=int, default=100, help="of the problems")
    parser.add_argument(
        "--limit", type=float, default=100.0, help="seconds for a problem, but for its last run"
    )
    options = parser.parse_args()
    options.log.mkdir(parents=True, exist_ok=True)
    cases = draw_cases(options.seed)
    names = [name for name in cases if name.startswith(tuple(options.only))]
    names.sort(key=lambda name: -cases[name].num_blocks)  # the most expensive first
    tasks = [(name, options.seed, options.log, options.points, options.limit) for name in names]
    rows = []
    with multiprocessing.get_context("spawn").Pool(min(options.jobs, len(tasks))) as pool:
        for row in pool.imap_unordered(_task, tasks):
            print(f"{row['problem']}: auto {row['auto']}, grid {row['grid']}", flush=True)
            rows.append(row)
    rows.sort(key=lambda row: list(cases).index(row["problem"]))
    print_table(
        f"Steps to the goal (median of {len(SEEDS)} seeds)",
        [
            "",
            "auto",
            "best of grid",
            "ratio",
            "reached",
            "updates",
            "ratio of updates",
            "points",
            "its lr x L",
            "inner lr x L",
        ],
        [
            [
                row["problem"],
                *("-" if row[name] is None else f"{row[name]:,.0f}" for name in ("auto", "grid")),
                _ratio(row),
                f"{row['reached']}/{len(SEEDS)}",
                f"{row['updates']:g}",
                _ratio(row, row["updates"]),
                f"{row['points']}",
                *(["-", "-"] if row["setting"] is None else [f"{number:.2g}" for number in row["setting"]]),
            ]
            for row in rows
        ],
    )
    counted = [row for row in rows if row["auto"] is not None and row["points"] > 0]
    good = sum((row["ratio"] or 0) <= 3 for row in counted)
    cheap = sum((row["ratio"] or 0.5) * row["updates"] <= 3 for row in counted)
    print(
        f"\n{good} of {len(rows)} within three times the steps of the best of the grid (bank of seed "
        f"{options.seed}); {cheap} if every update of a block counts as a step"
    )
    print_json({"benchmark": "auto", "machine": machine(), "cap": CAP, "seed": options.seed, "rows": rows})


if __name__ == "__main__":
    main()
