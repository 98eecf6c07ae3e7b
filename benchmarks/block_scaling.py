"""Cost of a step against the number of blocks, and time to a fixed accuracy, against Betty and TorchOpt.

    python benchmarks/block_scaling.py                  # both parts
    python benchmarks/block_scaling.py --part steps     # cost of a step alone
    python benchmarks/block_scaling.py --part steps --plain --blocks 100 1000000  # a million: 8 GiB

Blocks are quadratics with 20 lower variables each that share 50 (`_block_quadratics.py`); the methods are
in `_block_methods.py`. mmb samples 10 blocks per step and has a dual per block; the peers touch all blocks
at every step, and have the dual maximized by hand, because they solve no min-max problems.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import mmb
from _block_methods import BETTY_EACH, FLAT, RACED, SAMPLED, TIMED, V1, V2, Method
from _block_quadratics import DIM_X, DIM_Y, Blocks, Gather, Truth, make_blocks, truth
from _peers import version
from _timing import Lap, lap, machine, median_ms, print_json, print_table, round_robin

SKIP_ABOVE = 20.0  # seconds a step is expected to take, from the one with a tenth of the blocks
GOAL = 0.01  # of the gradient norm at the start
NOISES = {"noise-free": 0.0, "mild noise": 0.2, "strong noise": 0.5}
# Step size times the smoothness of F, and after how many visits to every block it is halved.
GRID = [(0.1, 20), (0.03, 200), (0.3, 200), (1.0, 200), (0.01, 200), (0.003, 200)]


def time_steps(sizes: list[int], rounds: int, methods: list[Method]) -> dict[str, Any]:
    """Part one: what a step costs."""
    steps: dict[tuple[str, int], Callable[[], float | None]] = {}
    expected: dict[str, float] = {}
    notes: dict[tuple[str, int], str] = {}
    for num_blocks in sizes:
        generator = torch.Generator().manual_seed(num_blocks)
        gather = Gather(make_blocks(num_blocks, generator), 0.0, generator)
        for method in methods:
            key = (method.name, num_blocks)
            if method.missing:
                notes[key] = "not installed"
            elif method.sampled is None and expected.get(method.name, 0.0) > SKIP_ABOVE:
                notes[key] = f">{SKIP_ABOVE:.0f} s"
            else:
                # The step size is small enough for all: this part is about cost.
                steps[key] = method.make(gather, lambda step: 1e-3).step
                expected[method.name] = 10 * min(lap(steps[key]).cpu for _ in range(2))
    keys = [(method.name, m) for method in methods for m in sizes]  # sizes of one method next to each other
    laps = round_robin({key: steps[key] for key in keys if key in steps}, rounds=rounds)
    return report_steps(sizes, laps, notes, methods)


def report_steps(
    sizes: list[int],
    laps: dict[tuple[str, int], list[Lap]],
    notes: dict[tuple[str, int], str],
    methods: list[Method],
) -> dict[str, Any]:
    """Print the tables of part one and judge them."""
    measures: dict[str, Callable[[Lap], float]] = {
        "wall": lambda lap: lap.wall,
        "step_alone": lambda lap: lap.wall - lap.aside,
        "cpu": lambda lap: lap.cpu,
    }
    titles = {
        "wall": "Milliseconds per step on the clock, sampling and batches included (median)",
        "step_alone": "Milliseconds per step, Solver.step alone (median)",
        "cpu": "Milliseconds per step of processor time, sampling and batches included (median)",
    }
    result: dict[str, Any] = {}
    for measure, of in measures.items():
        table: dict[str, dict[str, float | str]] = {}
        for method in methods if measure != "step_alone" else filter(FLAT.__contains__, methods):
            table[method.name] = {
                str(m): round(median_ms(map(of, laps[method.name, m])), 3)
                if (method.name, m) in laps
                else notes[method.name, m]
                for m in sizes
            }
        growth = {name: ratio(row[str(sizes[-1])], row[str(sizes[0])]) for name, row in table.items()}
        print_table(
            titles[measure],
            ["", *(f"m={m:,}" for m in sizes), "last/first"],
            [[name, *map(_cell, row.values()), _cell(growth[name])] for name, row in table.items()],
        )
        result[measure] = {"ms": table, "growth": growth}
    result["bars"] = judge_steps(sizes, result)
    return result


def judge_steps(sizes: list[int], result: dict[str, Any]) -> dict[str, Any]:
    """Flat in m, and cheaper than a Problem per block: by the clock and by processor time."""
    bars: dict[str, Any] = {}
    for measure in ("wall", "cpu"):
        table = result[measure]["ms"]
        flat = [method.name for method in FLAT if method.name in table]
        growth = {name: result[measure]["growth"][name] for name in flat}
        bars[f"growth_at_most_1.3_{measure}"] = {"measured": growth, "holds": max(growth.values()) <= 1.3}
        betty = table.get(BETTY_EACH.name, {}).get("1000")
        if isinstance(betty, float):
            times = {name: ratio(betty, table[name]["1000"]) for name in flat}
            holds = min(filter(None, times.values())) >= 100
            bars[f"betty_at_least_100_{measure}"] = {"measured": times, "holds": holds}
    print(
        f"\nBars: m={sizes[-1]:,} costs at most 1.3 times m={sizes[0]:,}; at m=1,000 a step is at least 100"
    )
    print(f"times cheaper than {BETTY_EACH.name}. In order of the rows:")
    for name, bar in bars.items():
        figures = ", ".join(f"{value:,g}" for value in bar["measured"].values())
        print(f"  {name}: {'holds' if bar['holds'] else 'MISSED'} ({figures})")
    return bars


def ratio(large: float | str, small: float | str) -> float | None:
    return round(large / small, 2) if isinstance(large, float) and isinstance(small, float) else None


def _cell(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


@dataclass(frozen=True)
class Race:
    """One problem on which the methods run to the goal."""

    blocks: Blocks
    known: Truth
    noise: float
    cap: float  # seconds of processor time

    def run(
        self, method: Method, scale: float, decay: float, seed: int, cap: float
    ) -> tuple[float, int] | None:
        """Processor seconds and steps to the goal; None if it was not reached within the cap.

        The step size is `scale / smoothness of F`, halved after `decay` visits to every block. The true
        gradient is looked at every 10 steps, off the clock.
        """
        num_blocks = len(self.blocks.offset)
        visits_per_step = 1 if method.sampled is None else method.sampled / num_blocks

        def lr(step: int) -> float:
            return scale / self.known.smoothness / (1 + step * visits_per_step / decay)

        gather = Gather(self.blocks, self.noise, torch.Generator().manual_seed(seed))
        method.make(gather, lr).step()  # warms up
        contestant = method.make(gather, lr)
        start = self.known.gradient_norm(contestant.x)
        spent, steps = 0.0, 0
        while spent < cap:
            before = time.process_time()
            try:
                for _ in range(10):
                    contestant.step()
            except mmb.BrokenStepError:
                return None
            spent += time.process_time() - before
            steps += 10
            now = self.known.gradient_norm(contestant.x) / start
            if now <= GOAL:
                return spent, steps
            if not now < 1e3:
                return None
        return None

    def tuned(self, method: Method) -> dict[str, Any] | None:
        """The fastest setting of the grid, run again with two more seeds; medians."""
        best, setting = self.cap, None
        for scale, decay in GRID:
            got = self.run(method, scale, decay, seed=1, cap=best)  # no use in going on beyond the best
            if got is not None:
                best, setting, first = got[0], (scale, decay), got
        if setting is None:
            return None
        runs = [first, *(self.run(method, *setting, seed=seed, cap=self.cap) for seed in (2, 3))]
        reached = [run for run in runs if run is not None]
        return {
            "seconds": round(statistics.median(run[0] for run in reached), 3),
            "steps": int(statistics.median(run[1] for run in reached)),
            "reached": f"{len(reached)}/3",
            "scale": setting[0],
            "decay": setting[1],
        }


def race(sizes: list[int], cap_at_100: float) -> Iterator[dict[str, Any]]:
    """Part two: time to one percent of the gradient at the start."""
    for num_blocks in sizes:
        cap = round(cap_at_100 * (num_blocks / 100) ** 0.5, 1)
        blocks = make_blocks(num_blocks, torch.Generator().manual_seed(num_blocks))
        for level, noise in NOISES.items():
            contest = Race(blocks, truth(blocks), noise, cap)
            rows = {}
            for method in RACED:
                if method.sampled is None or method.sampled < num_blocks:
                    rows[method.name] = "not installed" if method.missing else contest.tuned(method)
            print_table(
                f"Processor seconds to {GOAL:.0%} of the start gradient, m={num_blocks:,}, "
                f"{level} (best of {len(GRID)} step sizes, median of 3 seeds)",
                ["", "seconds", "steps", "reached", "step size x L", "halved after visits"],
                [[name, *_race_cells(row, cap)] for name, row in rows.items()],
            )
            yield {"m": num_blocks, "noise": noise, "cap": cap, "goal": GOAL, "methods": rows}


def _race_cells(row: dict[str, Any] | str | None, cap: float) -> list[str]:
    if not isinstance(row, dict):
        return [row or f"not within {cap:g} s", "", "", "", ""]
    return [
        f"{row['seconds']:.2f}",
        f"{row['steps']:,}",
        row["reached"],
        f"{row['scale']}",
        f"{row['decay']}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["steps", "accuracy", "both"], default="both")
    parser.add_argument("--blocks", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--accuracy-blocks", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--plain", action="store_true", help="time mmb on sampled blocks alone, not compiled")
    parser.add_argument(
        "--cap",
        type=float,
        default=5.0,
        help="processor seconds a run to the goal may take at m=100, growing as the root of m",
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {
        "benchmark": "block_scaling",
        "dim_x": DIM_X,
        "dim_y": DIM_Y,
        "blocks_per_step": SAMPLED,
        "machine": machine(),
        "peers": {name: version(name) for name in ("betty-ml", "torchopt")},
    }
    if options.part != "accuracy":
        result["steps"] = time_steps(options.blocks, options.rounds, [V1, V2] if options.plain else TIMED)
    if options.part != "steps":
        result["accuracy"] = list(race(options.accuracy_blocks, options.cap))
    print_json(result)


if __name__ == "__main__":
    main()
