"""What benchmarks that run numbered cases share: their options, and what they print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import torch

from _timing import print_json, print_table


def case_options(description, cases):
    """The options `--cases` and `--start`; computes with one thread from now on."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    torch.set_num_threads(1)
    return parser.parse_args()


def report_cases(title, options, outcomes: Mapping[str, int], failures: Sequence[str]) -> None:
    """Print how many cases ended how, and the first failures; end with status 1 if there are any."""
    counts = {**outcomes, "failed": len(failures)}
    print_table(title, ["what happened", "cases"], [(name, f"{count:,}") for name, count in counts.items()])
    for failure in failures[:20]:
        print(failure)
    print_json({"cases": options.cases, "start": options.start, "outcomes": counts})
    sys.exit(bool(failures))
