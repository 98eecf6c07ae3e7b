"""Feeds every objective random batches with bad values, and checks what must hold afterwards.

The cases are those of `tests/bad_batches.py`: scores and weights that are NaN, infinite, huge or negative, at
labeled and at missing entries, dense and task-sampled, in both precisions, and inputs that make a network
return NaN. Whatever is fed, all state is finite afterwards; it does not depend on values at missing labels;
and it is unchanged, bit for bit, if the batch was refused.

    python benchmarks/fuzz.py --cases 100000
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from _cases import case_options, report_cases

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bad_batches import NAMES, Fuzz


def main() -> None:
    options = case_options(__doc__, 100_000)
    fuzz, failures, start = Fuzz(), [], time.monotonic()
    for number in range(options.start, options.start + options.cases):
        try:
            fuzz.run(number)
        except Exception as error:  # every failure is of interest, not only the first
            failures.append(f"{type(error).__name__}: {error}")
            fuzz.forget()
    title = f"{options.cases:,} cases, {len(NAMES)} objectives, {time.monotonic() - start:.0f} s"
    report_cases(title, options, fuzz.outcomes, failures)


if __name__ == "__main__":
    main()
