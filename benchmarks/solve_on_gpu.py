"""Steps per second of the whole loop: `mmb.solve`, compiled, and captured as a graph.

    python benchmarks/solve_on_gpu.py                # on a GPU if there is one
    python benchmarks/solve_on_gpu.py --device cpu   # the same loops without capture, as a check

The problem is that of `block_scaling.py`: 10 of m quadratic blocks in a step, 50 shared and 20 lower
variables. All loops draw the same blocks; where they end is compared first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import mmb
from _block_methods import LR_LOWER, SAMPLED
from _block_quadratics import DIM_X, DIM_Y, Blocks, make_blocks, problem
from _timing import machine, print_json, print_table

ESTIMATORS: dict[str, Callable[[], mmb.Hypergradient]] = {
    "v1": lambda: mmb.MomentumHessian(beta=0.9),
    "v2": lambda: mmb.QuadraticSGD(lr=LR_LOWER),
}
LOOPS = ("plain", "compiled", "captured", "compiled, captured")


def run(blocks: Blocks, name: str, loop: str, steps: int) -> tuple[float, torch.Tensor]:
    """Steps per second after some to warm up, and where `x` ends."""
    num_blocks, device = len(blocks.offset), blocks.offset.device
    solver = mmb.Solver(
        problem(num_blocks),
        ESTIMATORS[name](),
        lr=1e-3,
        lr_dual=0.5,
        lr_lower=LR_LOWER,
        check_every=0,
        compile="compiled" in loop,
    )
    state = solver.init(
        torch.zeros(DIM_X, device=device),
        dual=torch.zeros(num_blocks, device=device),
        lower=torch.zeros(num_blocks, DIM_Y, device=device),
    )

    def batches(chosen: torch.Tensor) -> tuple[Blocks, Blocks]:
        batch = Blocks(*(part.index_select(0, chosen) for part in blocks))
        return batch, batch

    arguments: dict[str, Any] = {"sampler": iter(mmb.BlockSampler(num_blocks, SAMPLED)), "batches": batches}
    solve: Any = mmb.solve_captured if "captured" in loop else mmb.solve
    if "captured" not in loop:
        draws = arguments["sampler"]
        arguments["sampler"] = (chosen.to(device) for chosen in draws)
    solve(solver, state, steps=20, **arguments)
    end = state.x.clone()
    _wait(device)
    start = time.perf_counter()
    solve(solver, state, steps=steps, **arguments)
    _wait(device)
    return steps / (time.perf_counter() - start), end


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--blocks", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--loops", nargs="+", default=LOOPS, choices=LOOPS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for num_blocks in options.blocks:
        made = make_blocks(num_blocks, torch.Generator().manual_seed(0))
        blocks = Blocks(*(part.to(options.device) for part in made))
        for name in ESTIMATORS:
            ends = []
            for loop in options.loops:
                torch.compiler.reset()
                speed, end = run(blocks, name, loop, options.steps)
                ends.append(end)
                apart = float((end - ends[0]).abs().max())
                rows.append(
                    {"m": num_blocks, "estimator": name, "loop": loop, "speed": speed, "apart": apart}
                )
    print_table(
        f"Steps per second on {options.device}, and how far x is from that of the first loop after 20 steps",
        ["", "blocks", "loop", "steps/s", "apart"],
        [
            [row["estimator"], f"{row['m']:,}", row["loop"], f"{row['speed']:,.0f}", f"{row['apart']:.1e}"]
            for row in rows
        ],
    )
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print_json({"benchmark": "solve_on_gpu", "machine": machine(), "device": device, "rows": rows})


if __name__ == "__main__":
    main()
