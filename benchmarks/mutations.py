"""Does a mutation of a valid table or recipe end in a traceback, or in a label that the table does not have?

The cases are those of `tests/table_mutations.py`: cells, rows and bytes of tables in all formats, and keys,
values and bytes of recipes. Each is refused with a message, or read. What is read is compared with the labels
that a plain reading gives, and no split of it leaks; rows to score get the inputs that their cells say; and
a recipe that is not refused is trained, if it is short.

    python benchmarks/mutations.py --cases 5000
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from _cases import case_options, report_cases

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from table_mutations import Mutations


def main() -> None:
    options = case_options(__doc__, 5000)
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
    title = f"{options.cases:,} mutations, {time.monotonic() - start:.0f} s"
    report_cases(title, options, mutations.outcomes, failures)


if __name__ == "__main__":
    main()
