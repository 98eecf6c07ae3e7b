"""What ranges of numbers gain on tables: cross-entropy with them, as by default, beside a plain perceptron.

    python benchmarks/ranges.py run --log results/tables/ranges.jsonl
    python benchmarks/ranges.py table results/tables/ranges.jsonl

The ranges and the step size were chosen on twelve tables of the group KEEL, on none of UNSEEN, which
`transfer.py` describes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _transfer_sets import GROUPS, named
from from_scratch import read, run_all, table

METHODS: dict[str, dict[str, Any]] = {
    "plain": {"method": "ce", "model": {"ranges": 0}, "optimizer": {"lr": 3e-3}},
    "ranges": {"method": "ce"},
}


def tables(logs: Sequence[Path]) -> Iterator[str]:
    """A table for each group of data sets, with its title, as Markdown."""
    for group in GROUPS:
        records = [record for record in read(logs) if record["set"] in named([group])]
        yield f"## {group}\n\n" + "\n".join(table(METHODS, records))


def main() -> None:
    """Run, or print a table for each group."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--log", type=Path, default=Path("results/tables/ranges.jsonl"))
    run.add_argument("--sets", nargs="*", default=list(GROUPS))
    run.add_argument("--seeds", type=int, default=2)
    commands.add_parser("table").add_argument("logs", nargs="+", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run_all(METHODS, named(options.sets), options.seeds, options.log)
        return
    print("\n\n".join(tables(options.logs)))


if __name__ == "__main__":
    main()
