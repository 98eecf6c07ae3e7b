"""What does a large table cost: to prepare, to start again, to train on, to predict for?

    python benchmarks/tables.py                          # 2 million rows x 30 columns, beside polars
    python benchmarks/tables.py --rows 20000000 --skip polars,train --folder /somewhere/large

A CSV file is written: 25 numbers, two columns of names, three label columns with gaps. Each part runs in a
process of its own, whose time, processor time and peak of memory (files mapped into it count) are measured.
Training is the same loop, on rows from disk and on a tensor in memory, in turns. Linux and macOS.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from _timing import lap, machine, print_json, print_table

FEATURES, TASKS, BLOCK = 24, 3, 250_000
PARTS = ("polars", "prepare", "start", "train", "predict")
BATCH, STEPS = 512, 200


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


def load(folder: Path):
    import mmb.data

    labels = [f"y{task}" for task in range(TASKS)]
    return mmb.data.load("table", folder / "root", path=folder / "table.csv", labels=labels)


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


def predict_all(folder: Path) -> dict:
    from mmb.training import Run, predict_file

    run = Run.open(folder / "run")
    return {"lap": lap(lambda: predict_file(run, folder / "table.csv", folder / "scores.csv") and None)}


RUNS = {
    "polars": read_by_polars,
    "prepare": prepare_and_load,
    "start": prepare_and_load,
    "train": train_in_turns,
    "predict": predict_all,
}


def measure(part: str, folder: Path) -> dict:
    """Run a part in a process of its own: what it returns, time of the whole process, peak of memory."""
    start = time.perf_counter()
    words = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - start}


def train_a_run(folder: Path) -> None:
    """A run to predict with, on the first rows of the table."""
    head = folder / "head.csv"
    with (folder / "table.csv").open() as table, head.open("w") as file:
        file.writelines(line for line, _ in zip(table, range(5000), strict=False))
    from mmb.training import Run, resolve, train

    data = {"name": "table", "path": str(head), "labels": [f"y{task}" for task in range(TASKS)]}
    training = {"steps": 20, "tensorboard": False, "device": "cpu"}
    train(Run.create(folder / "run", resolve({"method": "ce", "data": data, "training": training})))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary one")
    parser.add_argument("--skip", default="", help="parts to leave out, with commas")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        found = RUNS[options.part](options.folder)
        unit = 1 if sys.platform == "darwin" else 1024
        found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = Path(place)
        write_table(folder / "table.csv", options.rows)
        size = (folder / "table.csv").stat().st_size / 1e6
        results = {}
        for part in (part for part in PARTS if part not in options.skip.split(",")):
            if part == "predict":
                train_a_run(folder)
            results[part] = measure(part, folder)
    rows = [
        (part, *(f"{one['lap'][k]:.1f}" for k in (0, 1)), f"{one['process']:.1f}", f"{one['peak']:,.0f}")
        for part, one in results.items()
    ]
    if "train" in results:
        wall, cpu, _ = results["train"]["memory"]
        rows.insert(-1, ("train in memory", f"{wall:.1f}", f"{cpu:.1f}", "", ""))
    title = f"{options.rows:,} rows x 30 columns, {size:,.0f} MB of CSV; load {os.getloadavg()[0]:.1f}"
    print_table(title, ["part", "s", "processor s", "whole process s", "peak MB"], rows)
    print_json({"rows": options.rows, "megabytes": size, "machine": machine(), "results": results})


if __name__ == "__main__":
    main()
