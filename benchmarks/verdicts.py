"""Are the verdicts of reports right? Trains runs made to be good, overfit, broken and so on, and counts.

The runs are those of `tests/made_runs.py`. A verdict counts as right if its status, its words and its advice
are those of the way the run was made.

    python benchmarks/verdicts.py --repeats 5
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from _timing import print_json, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from made_runs import bank, judge


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    right, total, start = Counter(), Counter(), time.monotonic()
    for made, seed in bank(range(options.start, options.start + options.repeats)):
        with tempfile.TemporaryDirectory() as folder:
            found, is_right = judge(Path(folder), made, seed)
        total[made.kind] += 1
        right[made.kind] += is_right
        mark = "" if is_right else "WRONG: "
        print(
            f"{mark}{made.kind}, {made.method}, seed {seed}: {found['verdict']} {found['advice']}", flush=True
        )
    rows = [(kind, str(right[kind]), str(total[kind])) for kind in total]
    rows.append(("all", str(right.total()), str(total.total())))
    title = f"verdicts of {total.total()} runs, {time.monotonic() - start:.0f} s"
    print_table(title, ["made to be", "right", "of"], rows)
    print_json({"right": right.total(), "of": total.total(), "kinds": dict(right)})


if __name__ == "__main__":
    main()
