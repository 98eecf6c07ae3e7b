"""What networks see by default, and what it gains over plainer inputs, with cross-entropy.

    python benchmarks/inputs.py run tables
    python benchmarks/inputs.py table tables

Ranges of numbers for tables are compared with a plain perceptron. They and the step size were chosen on
twelve tables of the group KEEL and on none of UNSEEN, which `transfer.py` describes. Columns with long tails
are scaled by their quartiles, or by their standard deviation. Descriptors of molecules are compared with
fingerprints alone, and with graphs, which take a hundred times as long.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _transfer_sets import MOLECULES, named
from from_scratch import Methods, read, run_all, table

RESULTS = Path(__file__).parents[1] / "results"
DEFAULT: dict[str, Any] = {"method": "ce"}
SMALL_MOLECULES = ("BBBP", "ClinTox", "SIDER", "Tox21")


@dataclass(frozen=True)
class Comparison:
    """Kinds of inputs, the groups of data sets to train them on, and the log of it."""

    methods: Methods
    groups: dict[str, Sequence[str]]
    log: Path

    def tables(self) -> Iterator[str]:
        """A table for each group of data sets, with its title, as Markdown."""
        for group, names in self.groups.items():
            records = [record for record in read([self.log]) if record["set"] in names]
            yield f"## {group}\n\n" + "\n".join(table(self.methods, records))


COMPARISONS = {
    "tables": Comparison(
        {"plain": {**DEFAULT, "model": {"ranges": 0}, "optimizer": {"lr": 3e-3}}, "ranges": DEFAULT},
        {group: named([group]) for group in ("KEEL", "UNSEEN")},
        RESULTS / "tables/ranges.jsonl",
    ),
    "tails": Comparison(
        {"deviation": {**DEFAULT, "data": {"spread": "deviation"}}, "quartiles": DEFAULT},
        {group: named([group]) for group in ("KEEL", "UNSEEN")},
        RESULTS / "tables/tails.jsonl",
    ),
    "molecules": Comparison(
        {"fingerprint": {**DEFAULT, "data": {"features": "fingerprint"}}, "descriptors": DEFAULT},
        {
            "Compared with fingerprints alone": [*SMALL_MOLECULES, "ToxCast", "HIV", "MUV"],
            "Compared with fingerprints alone, on data not used to choose": list(MOLECULES),
        },
        RESULTS / "molecules/descriptors.jsonl",
    ),
    "graphs": Comparison(
        {"graph": {**DEFAULT, "data": {"features": "graph"}}, "descriptors": DEFAULT},
        {"Compared with graphs": SMALL_MOLECULES},
        RESULTS / "molecules/graphs.jsonl",
    ),
}


def main() -> None:
    """Run a comparison, or print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("comparison", choices=list(COMPARISONS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--groups", nargs="*", help="titles of some of its groups of data sets")
    options = parser.parse_args()
    chosen = COMPARISONS[options.comparison]
    if options.command == "run":
        groups = options.groups or chosen.groups
        names = [name for group in groups for name in chosen.groups[group]]
        run_all(chosen.methods, names, options.seeds, chosen.log)
    else:
        print("\n\n".join(chosen.tables()))


if __name__ == "__main__":
    main()
