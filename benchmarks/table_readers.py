"""Which library reads a large table at the least cost: polars or pyarrow?

    pip install pyarrow    # beside what the extra `table` installs
    python benchmarks/table_readers.py [--rows 2000000] [--folder /somewhere/large]

The CSV file of `tables.py`, and the same as Parquet, are read whole, and in batches that are let go.
Libraries take turns, and each read has a process of its own, whose imports are not timed. The fastest of
three turns counts, and the greatest peak of memory, without what was there before and without mapped files.
"""

import argparse
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

from _timing import lap, machine, print_json, print_table
from tables import OwnMemory, write_table

TURNS = 3
COLUMNS = ["read", "by", "s", "processor s", "MB"]
MODULES = {"polars": ["polars"], "pyarrow": ["pyarrow", "pyarrow.csv", "pyarrow.dataset", "pyarrow.parquet"]}
READERS = {
    ("csv, whole", "polars"): lambda pl, path: pl.read_csv(path),
    ("csv, whole", "pyarrow"): lambda pa, path: pa.csv.read_csv(path),
    ("csv, in batches", "polars"): lambda pl, path: count(pl.scan_csv(path).collect_batches()),
    ("csv, in batches", "pyarrow"): lambda pa, path: count(pa.csv.open_csv(path)),
    ("parquet, whole", "polars"): lambda pl, path: pl.read_parquet(path),
    ("parquet, whole", "pyarrow"): lambda pa, path: pa.parquet.read_table(path),
    ("parquet, in batches", "polars"): lambda pl, path: count(pl.scan_parquet(path).collect_batches()),
    ("parquet, in batches", "pyarrow"): lambda pa, path: count(pa.parquet.ParquetFile(path).iter_batches()),
}


def count(batches) -> int:
    return sum(map(len, batches))


def read(what: str, library: str, folder: str) -> list[float]:
    """Seconds, processor seconds and megabytes of one read."""
    module, *_ = map(import_module, MODULES[library])
    memory, kept, path = OwnMemory(), [], f"{folder}/table.{what.split(',')[0]}"
    time.sleep(0.2)  # memory is looked at now and then
    before, taken = memory.peak, lap(lambda: kept.append(READERS[what, library](module, path)))
    time.sleep(0.2)
    return [taken.wall, taken.cpu, memory.peak - before]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary one")
    options = parser.parse_args()
    found = {case: [] for case in READERS}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write_table(Path(folder) / "table.csv", options.rows)
        import_module("polars").read_csv(f"{folder}/table.csv").write_parquet(f"{folder}/table.parquet")
        for case in [*READERS] * TURNS:
            with get_context("spawn").Pool(1) as process:
                found[case].append(process.apply(read, (*case, folder)))
    best = {c: [*map(min, zip(*turns, strict=True)), max(t[2] for t in turns)] for c, turns in found.items()}
    rows = [(*c, f"{wall:.2f}", f"{cpu:.2f}", f"{peak:,.0f}") for c, (wall, cpu, _, peak) in best.items()]
    versions = ", ".join(f"{name} {version(name)}" for name in MODULES)
    print_table(f"{options.rows:,} rows x 30 columns; {versions}", COLUMNS, rows)
    print_json({"rows": options.rows, "versions": versions, "machine": machine(), "results": rows})


if __name__ == "__main__":
    main()
