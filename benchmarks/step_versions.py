"""Cost of an uncompiled step of the solver in several versions of this library, in turns.

    git worktree add /tmp/before ea851dd
    python benchmarks/step_versions.py before=/tmp/before/src now=src

Each version runs in a process of its own, on the blocks of `block_scaling.py`: 100 of them, of which a step
samples 10. Processes take turns, so that a busy spell of the machine falls on all versions. Figures are
milliseconds of processor time, sampling and batches included, and what they are of the first version's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from _block_methods import V1, V2
from _block_quadratics import Gather, make_blocks
from _timing import lap, machine, median_ms, print_json, print_table

NUM_BLOCKS, WARM_UP, STEPS = 100, 30, 300


def measure() -> dict[str, float]:
    """Milliseconds per step of the version that this process imports."""
    torch.set_num_threads(1)
    found = {}
    for method in (V1, V2):
        generator = torch.Generator().manual_seed(NUM_BLOCKS)
        gather = Gather(make_blocks(NUM_BLOCKS, generator), 0.0, generator)
        step = method.make(gather, lambda step: 1e-3).step
        laps = [lap(step) for _ in range(WARM_UP + STEPS)]
        found[method.name] = median_ms(one.cpu for one in laps[WARM_UP:])
    return found


def measure_in(source: Path) -> dict[str, float]:
    """The same of the version in a folder."""
    command = [sys.executable, __file__, "--alone"]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", help="NAME=FOLDER of sources, the one to compare with first")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="measure the version that is imported")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure()))
        return
    sources = {name: Path(folder) for name, folder in (given.split("=", 1) for given in options.versions)}
    rounds = [{name: measure_in(source) for name, source in sources.items()} for _ in range(options.rounds)]
    first = next(iter(sources))
    rows = []
    for method in (V1.name, V2.name):
        for name in sources:
            ms = [one[name][method] for one in rounds]
            shares = [one[name][method] / one[first][method] for one in rounds]
            rows.append([f"{method}: {name}", *(f"{of(ms):.2f}" for of in (statistics.median, min, max))])
            rows[-1].append(f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})")
    print_table(
        f"Milliseconds of processor time per step, {options.rounds} rounds",
        ["", "median", "least", "most", f"of {first}"],
        rows,
    )
    print_json({"benchmark": "step_versions", "machine": machine(), "rounds": rounds})


if __name__ == "__main__":
    main()
