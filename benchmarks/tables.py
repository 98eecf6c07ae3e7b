"""What does a large table cost: to prepare, to start again, to train on, to predict for?

    python benchmarks/tables.py                          # 2 million rows x 30 columns, beside polars
    python benchmarks/tables.py --rows 20000000 --skip polars,train --folder /somewhere/large
    python benchmarks/tables.py --processes 1,2,3 --rows 2000000 # a folder of Parquet files, divided

A CSV file is written: 25 numbers, two columns of names, three label columns with gaps. Each part runs in a
process of its own, whose time, processor time and peak of memory (files mapped into it count) are measured.
`steps` is a run of the library on the whole table, and `predict` writes Parquet.
Preparing and polars' own read of the file take turns, and the fastest of three counts. Training is the same
loop, on rows from disk and on a tensor in memory, in turns. With `--processes`, a folder of Parquet files is
divided among processes of `torchrun`, which train a run together. Linux and macOS.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import torch

from _timing import lap, machine, print_json, print_table

FEATURES, TASKS, BLOCK = 24, 3, 250_000
PARTS = ("polars", "prepare", "start", "train", "steps", "predict")
BATCH, STEPS = 512, 200
FILES = 12  # of a folder of Parquet files
TURNS = 3  # of preparing and of polars' own read


def write_table(path: Path, rows: int) -> None:
    import numpy as np
    import polars as pl

    cities, kinds = np.array([f"city{k}" for k in range(40)]), np.array(list("abcdef"))
    with path.open("wb") as file:
        for start in range(0, rows, BLOCK):
            n, draw = min(BLOCK, rows - start), np.random.default_rng(start)
            x = draw.standard_normal((n, FEATURES)).round(5)
            columns = {f"x{k}": pl.Series(x[:, k]) for k in range(FEATURES)}
            columns["x3"] = pl.Series(np.where(draw.random(n) < 0.02, np.nan, x[:, 3])).fill_nan(None)
            columns["count"] = pl.Series(draw.integers(0, 1000, n))
            columns["city"] = pl.Series(cities[draw.integers(0, 40, n)])
            columns["kind"] = pl.Series(kinds[draw.integers(0, 6, n)])
            for task in range(TASKS):
                slope = np.random.default_rng(task).standard_normal(FEATURES)
                positive = draw.random(n) < 1 / (1 + np.exp(3.5 - 0.5 * x @ slope))
                known = pl.Series(draw.random(n) > 0.1)
                columns[f"y{task}"] = pl.select(
                    pl.when(known).then(pl.Series(positive).cast(pl.Int8))
                ).to_series()
            pl.DataFrame(columns).write_csv(file, include_header=start == 0)


def write_parts(folder: Path, rows: int) -> None:
    """The same table as Parquet files."""
    import polars as pl

    write_table(folder / "table.csv", rows)
    (folder / "parts").mkdir()
    for number, frame in enumerate(pl.read_csv(folder / "table.csv").iter_slices(-(-rows // FILES))):
        frame.write_parquet(folder / "parts" / f"{number:02d}.parquet")


def data_of(path: Path) -> dict:
    return {"path": path, "labels": [f"y{task}" for task in range(TASKS)]}


def load(folder: Path):
    import mmb.data

    return mmb.data.load("table", folder / "root", **data_of(folder / "table.csv"))


def read_by_polars(folder: Path) -> dict:
    import polars

    return {"lap": lap(lambda: len(polars.read_csv(folder / "table.csv")) and None)}


def prepare_and_load(folder: Path) -> dict:
    import polars

    assert polars  # imported in advance, as for polars' own read
    return {"lap": lap(lambda: len(load(folder)) and None)}


def train_in_turns(folder: Path) -> dict:
    from mmb.auc import Labels, RichRowSampler
    from mmb.auc.baselines import CrossEntropy
    from mmb.models import build

    torch.set_num_threads(1)
    dataset = load(folder)
    rows = dataset.split["train"]
    labels = Labels(dataset.labels[rows])
    chunks = torch.split(torch.arange(len(dataset)), 100_000)
    memory = torch.cat([dataset.batch(chunk) for chunk in chunks])
    laps = {"disk": [], "memory": []}
    sampler = RichRowSampler(labels, BATCH, 0.5, generator=0)
    for _ in range(3):
        for name, inputs in (("disk", dataset.inputs), ("memory", memory)):
            model = build("mlp", dataset, seed=0, hidden=[256, 256])
            objective = CrossEntropy(labels)
            optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()])
            draws = (draw for _ in range(100) for draw in sampler)

            def loop(inputs=inputs, model=model, objective=objective, optimizer=optimizer, draws=draws):
                for _ in range(STEPS):
                    draw = next(draws)
                    chosen = rows[draw.rows]
                    optimizer.zero_grad()
                    objective.backward(model, draw.with_inputs(inputs[chosen], dataset.labels[chosen]))
                    optimizer.step()

            laps[name].append(lap(loop))
    best = {name: min(laps[name], key=lambda one: one.cpu) for name in laps}
    return {"lap": best["disk"], "memory": best["memory"]}


def train_some_steps(folder: Path) -> dict:
    """A run on the whole table, with its validation and test rows."""
    from mmb.training import Run, resolve, train

    os.environ["MMB_DATA"] = str(folder / "root")
    data = {"name": "table", **data_of(folder / "table.csv")} | {"path": str(folder / "table.csv")}
    training = {"steps": STEPS, "evaluate_every": STEPS, "tensorboard": False, "device": "cpu"}
    recipe = resolve({"method": "pauc", "data": data, "training": training, "sampler": {"batch_size": BATCH}})
    run = Run.create(folder / "whole", recipe)
    return {"lap": lap(lambda: train(run) and None)}


def predict_all(folder: Path) -> dict:
    from mmb.training import Run, predict_file

    run = Run.open(folder / "run")
    return {"lap": lap(lambda: predict_file(run, folder / "table.csv", folder / "scores.parquet") and None)}


def train_divided(folder: Path) -> dict:
    """Load a folder of Parquet files and train on it, together with the other processes."""
    import torch.distributed as dist

    from mmb.data.inputs.divided_rows import own_files
    from mmb.training import Run, train

    os.environ["MMB_DATA"] = str(folder / "root")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    start = time.perf_counter()
    rows = len(load_divided(folder).inputs.own)
    loaded = time.perf_counter() - start
    found = {}
    taken = lap(lambda: found.update(train(Run.open(folder / f"run-{dist.get_world_size()}"))))
    result = {"load": loaded, "lap": taken, "files": len(own_files(folder / "parts")), "rows": rows}
    result |= {"auc": found["test"]["auc"], "peak": peak_megabytes()}
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(result))
    dist.destroy_process_group()
    return result


def load_divided(folder: Path):
    import mmb.data

    return mmb.data.load("table", folder / "root", **data_of(folder / "parts"), divide=True)


def measure_divided(folder: Path, counts: list[int]) -> list[tuple]:
    """Rows of a table: for each number of processes, what each of them opened and needed."""
    from mmb.training import Run, resolve

    rows = []
    for count in counts:
        shutil.rmtree(folder / "root", ignore_errors=True)
        data = {"name": "table", "divide": True, **data_of(folder / "parts")}
        training = {"steps": STEPS, "evaluate_every": STEPS, "tensorboard": False, "device": "cpu"}
        parts = {"data": data | {"path": str(data["path"])}, "training": training}
        parts |= {"sampler": {"batch_size": BATCH}, "model": {"hidden": [256, 256]}}
        Run.create(folder / f"run-{count}", resolve({"method": "pauc", **parts}))
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), __file__]
        subprocess.run([sys.executable, *words, "--part", "divided", "--folder", str(folder)], check=True)
        for rank in range(count):
            one = json.loads((folder / f"rank-{rank}.json").read_text())
            shown = (f"{one['load']:.1f}", f"{one['lap'][0]:.1f}", f"{one['peak']:,.0f}", f"{one['auc']:.4f}")
            rows.append((str(count), str(rank), str(one["files"]), f"{one['rows']:,}", *shown))
    return rows


RUNS = {
    "polars": read_by_polars,
    "prepare": prepare_and_load,
    "start": prepare_and_load,
    "train": train_in_turns,
    "steps": train_some_steps,
    "predict": predict_all,
    "divided": train_divided,
}


class OwnMemory(Thread):
    """The peak of this process's own memory in megabytes, without the files that are mapped into it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.ended = 0.0, Event()
        self.start()

    def run(self) -> None:
        """Look now and then."""
        status = Path("/proc/self/status")
        while status.exists() and not self.ended.wait(0.05):
            found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text())
            self.peak = max(self.peak, int(found[1]) * 1024 / 1e6 if found else 0.0)


def peak_megabytes() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(part: str, folder: Path) -> dict:
    """Run a part in a process of its own: what it returns, time of the whole process, peak of memory."""
    start = time.perf_counter()
    words = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - start}


def measure_in_turns(parts: list[str], folder: Path) -> dict[str, dict]:
    """The fastest of several turns of each part, each from the start; the greatest peak of memory."""
    found = {part: [] for part in parts}
    for _ in range(TURNS if len(parts) > 1 else 1):
        shutil.rmtree(folder / "root", ignore_errors=True)
        for part in parts:
            found[part].append(measure(part, folder))
    best = {part: min(turns, key=lambda one: one["lap"][0]) for part, turns in found.items()}
    return {part: one | {"peak": max(turn["peak"] for turn in found[part])} for part, one in best.items()}


def train_a_run(folder: Path) -> None:
    """A run to predict with, on the first rows of the table."""
    head = folder / "head.csv"
    with (folder / "table.csv").open() as table, head.open("w") as file:
        file.writelines(line for line, _ in zip(table, range(5000), strict=False))
    from mmb.training import Run, resolve, train

    data = {"name": "table", **data_of(head)} | {"path": str(head)}
    training = {"steps": 20, "tensorboard": False, "device": "cpu"}
    train(Run.create(folder / "run", resolve({"method": "ce", "data": data, "training": training})))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary one")
    parser.add_argument("--skip", default="", help="parts to leave out, with commas")
    parser.add_argument("--part", choices=[*RUNS], help=argparse.SUPPRESS)
    parser.add_argument("--processes", help="numbers of processes, with commas, to divide a folder among")
    options = parser.parse_args()
    if options.part:
        memory = OwnMemory()
        found = RUNS[options.part](options.folder)
        print(json.dumps(found | {"peak": peak_megabytes(), "own": memory.peak}))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = Path(place)
        if options.processes:
            write_parts(folder, options.rows)
            rows = measure_divided(folder, [int(count) for count in options.processes.split(",")])
            title = (
                f"{options.rows:,} rows x 30 columns in {FILES} Parquet files; load {os.getloadavg()[0]:.1f}"
            )
            columns = ["processes", "process", "files", "rows", "load s", "train s", "peak MB", "AUC"]
            print_table(title, columns, rows)
            print_json({"rows": options.rows, "machine": machine(), "results": rows})
            return
        write_table(folder / "table.csv", options.rows)
        size = (folder / "table.csv").stat().st_size / 1e6
        chosen = [part for part in PARTS if part not in options.skip.split(",")]
        results = measure_in_turns([part for part in chosen if part in ("polars", "prepare")], folder)
        for part in (part for part in chosen if part not in results):
            if part == "predict":
                train_a_run(folder)
            results[part] = measure(part, folder)
    rows = [
        (
            part,
            *(f"{one['lap'][k]:.1f}" for k in (0, 1)),
            *(f"{one['process']:.1f}", f"{one['peak']:,.0f}", f"{one['own']:,.0f}"),
        )
        for part, one in results.items()
    ]
    if "train" in results:
        wall, cpu, _ = results["train"]["memory"]
        rows.insert(
            list(results).index("train") + 1, ("train in memory", f"{wall:.1f}", f"{cpu:.1f}", "", "", "")
        )
    title = f"{options.rows:,} rows x 30 columns, {size:,.0f} MB of CSV; load {os.getloadavg()[0]:.1f}"
    print_table(title, ["part", "s", "processor s", "whole process s", "peak MB", "without files"], rows)
    print_json({"rows": options.rows, "megabytes": size, "machine": machine(), "results": results})


if __name__ == "__main__":
    main()
