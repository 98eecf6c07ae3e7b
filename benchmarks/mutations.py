"""Does a mutation of a valid table or recipe end in a traceback, or in a label that the table does not have?

The cases are those of `tests/table_mutations.py`: cells, rows and bytes of tables in all formats, and keys,
values and bytes of recipes. Each is refused with a message, or read; what is read is compared with the labels
that a plain reading gives.

    python benchmarks/mutations.py --cases 5000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from _timing import print_json, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from table_mutations import Mutations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failures, start = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        mutations = Mutations(Path(folder))
        for number in range(options.start, options.start + options.cases):
            try:
                mutations.run(number)
            except BaseException as error:  # polars may panic
                if isinstance(error, KeyboardInterrupt):
                    raise
                failures.append(f"case {number}: {type(error).__name__}: {str(error)[:300]}")
    counts = {**mutations.outcomes, "failed": len(failures)}
    title = f"{options.cases:,} mutations, {time.monotonic() - start:.0f} s"
    print_table(title, ["what happened", "cases"], [(name, f"{count:,}") for name, count in counts.items()])
    for failure in failures[:20]:
        print(failure)
    print_json({"cases": options.cases, "start": options.start, "outcomes": counts})
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
