"""Feeds every objective random batches with bad values, and checks what must hold afterwards.

The cases are those of `tests/bad_batches.py`: scores and weights that are NaN, infinite, huge or negative, at
labeled and at missing entries, dense and task-sampled, in both precisions, and inputs that make a network
return NaN. Whatever is fed, all state is finite afterwards; it does not depend on values at missing labels;
and it is unchanged, bit for bit, if the batch was refused.

    python benchmarks/fuzz.py --cases 100000
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from _timing import print_json, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bad_batches import NAMES, Fuzz


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    fuzz, failures, start = Fuzz(), [], time.monotonic()
    for number in range(options.start, options.start + options.cases):
        try:
            fuzz.run(number)
        except Exception as error:  # every failure is of interest, not only the first
            failures.append(f"{type(error).__name__}: {error}")
            fuzz.forget()
    counts = {**fuzz.outcomes, "failed": len(failures)}
    title = f"{options.cases:,} cases, {len(NAMES)} objectives, {time.monotonic() - start:.0f} s"
    print_table(title, ["what happened", "cases"], [(name, f"{count:,}") for name, count in counts.items()])
    for failure in failures[:20]:
        print(failure)
    print_json({"cases": options.cases, "start": options.start, "outcomes": counts})
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
