"""Small runs made to be good, to overfit, to be broken, underpowered, diverging or mislabeled."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from mmb.report.content import page_content
from mmb.training import Run, TrainingError, train
from tiny_runs import tiny_recipe

PARTS = ("train", "valid", "test")
METHODS = ("ce", "auc", "pauc")


@dataclass(frozen=True)
class MadeRun:
    """How a run is made, and what its verdict must say."""

    kind: str
    status: str  # or several, with spaces
    words: tuple[str, ...]  # one of them in the verdict
    advice: tuple[str, ...]  # one of them in the advice of what stands out
    rows: tuple[int, int, int] = (1500, 800, 800)  # of training, validation and test
    features: int = 12
    tasks: int = 4
    rate: float = 0.2  # share of positives
    positives: int | None = None  # of each task among some rows, if few; labels of the others are missing
    few_in: tuple[str, ...] = ("valid", "test")
    noise: float = 0.7  # of the labels, in units of the signal
    lr: float = 0.003
    steps: int = 240
    hidden: int = 16
    spoil: str | None = None  # what is done to the labels or inputs
    method: str = "ce"


def kinds():
    """The ways to make a run: name and changes, in the order of the bank."""
    good = {"status": "good", "words": ("Working: ",), "advice": ("",), "steps": 600}
    overfit = {
        "status": "remark",
        "words": ("overfits",),
        "advice": ("optimizer.weight_decay",),
        "rows": (120, 900, 900),
        "features": 40,
        "hidden": 64,
        "steps": 400,
        "lr": 0.01,
        "noise": 0.7,
    }
    broken = {"status": "bad", "words": ("does not learn",), "advice": ("optimizer.lr",)}
    few = {"status": "unknown", "words": ("Cannot tell: ",), "advice": ("positives",)}
    wild = {"words": ("diverge",), "advice": ("lower optimizer.lr",)}
    labels = {"status": "bad", "advice": ("labels",)}
    yield "good", good
    yield "good, weak signal", {**good, "noise": 1.6, "rows": (4000, 1500, 1500)}
    yield "good, rare positives", {**good, "rate": 0.05, "rows": (4000, 2500, 2500)}
    yield "good, few tasks", {**good, "tasks": 1}
    yield "good, negatives are rare", {**good, "rate": 0.85}
    yield (
        "good, many tasks with gaps",
        {**good, "tasks": 30, "features": 20, "spoil": "gaps", "rows": (6000, 1500, 1500)},
    )
    yield "overfit", overfit
    yield "overfit, many features", {**overfit, "rows": (200, 900, 900), "features": 100}
    yield "overfit, noisy labels", {**overfit, "rows": (300, 900, 900), "noise": 1.5, "steps": 600}
    yield "broken, tiny steps", {**broken, "advice": ("raise optimizer.lr",), "lr": 1e-7}
    yield "broken, inputs say nothing", {**broken, "spoil": "constant inputs"}
    yield (
        "broken, noise for inputs",
        {**broken, "spoil": "noise inputs", "rows": (3000, 800, 800), "hidden": 2, "steps": 60},
    )
    yield "underpowered, 2 positives a task", {**few, "positives": 2, "rows": (1500, 60, 60)}
    yield "underpowered, 4 positives in all", {**few, "positives": 4, "rows": (1500, 100, 100), "tasks": 1}
    yield "underpowered, weak signal", {**few, "positives": 3, "noise": 1.6}
    yield (
        "underpowered, few validation positives",
        {
            **good,
            "status": "remark",
            "words": ("selected by chance",),
            "advice": ("more positives",),
            "positives": 2,
            "few_in": ("valid",),
        },
    )
    yield "diverging", {**wild, "status": "bad", "lr": 1e6}
    yield "diverging, later", {**wild, "status": "bad", "lr": 1e3}
    yield (
        "diverging, Adam",
        {**wild, "status": "bad remark", "words": ("does not learn", "collapsed"), "lr": 3.0, "hidden": 64},
    )
    yield (
        "mislabeled, shuffled",
        {
            **labels,
            "words": ("carries over", "does not learn"),
            "spoil": "shuffled",
            "rows": (150, 900, 900),
            "hidden": 64,
            "lr": 0.01,
            "steps": 400,
        },
    )
    yield "mislabeled, flipped test rows", {**labels, "words": ("backwards",), "spoil": "flipped test"}
    yield "mislabeled, flipped validation rows", {**labels, "words": ("backwards",), "spoil": "flipped valid"}
    yield (
        "mislabeled, flipped validation and test rows",
        {**labels, "words": ("backwards",), "spoil": "all flipped"},
    )
    yield (
        "mislabeled, one task shuffled",
        {**labels, "status": "remark", "words": ("some tasks",), "spoil": "one shuffled"},
    )
    yield (
        "mislabeled, one task flipped",
        {**labels, "status": "remark", "words": ("some tasks",), "spoil": "one flipped"},
    )


def bank(seeds):
    """All kinds with several seeds, and with the methods in turn: pairs of a `MadeRun` and a seed."""
    for seed in seeds:
        for number, (name, changes) in enumerate(kinds()):
            method = METHODS[(seed + number) % len(METHODS)]
            yield MadeRun(name, method=method, **changes), seed


def make_table(made, seed):
    """Features, labels `[n, m]` and parts of the rows, as lists for a file."""
    draw = np.random.default_rng([seed, *made.kind.encode()])
    total = sum(made.rows)
    part = np.repeat(PARTS, made.rows)
    inputs = draw.normal(size=(total, made.features))
    signal = inputs @ draw.normal(size=(made.features, made.tasks)) / np.sqrt(made.features)
    signal += made.noise * draw.normal(size=signal.shape)
    labels = (signal > np.quantile(signal, 1 - made.rate, axis=0)).astype(int)
    if made.positives is not None:
        for name in made.few_in:
            for task in range(made.tasks):
                found = np.flatnonzero((part == name) & (labels[:, task] == 1))
                labels[found[made.positives :], task] = -1
    spoil = made.spoil or ""
    columns = slice(0, 1) if spoil.startswith("one") else slice(None)
    if "shuffled" in spoil:
        for name in PARTS:
            there = np.flatnonzero(part == name)
            labels[there, columns] = labels[draw.permutation(there), columns]
    if "flipped" in spoil:
        turned = part == spoil.split()[1] if spoil.startswith("flipped ") else part != "train"
        labels[turned, columns] = 1 - labels[turned, columns]
    if spoil == "gaps":
        labels[draw.random(labels.shape) < 0.5] = -1
    if spoil == "constant inputs":
        inputs[:] = 1.0
    if spoil == "noise inputs":
        inputs = draw.normal(size=inputs.shape)
    return inputs, labels, part


def make_run(folder, made, seed):
    """Train one; a run that diverges ends with its error."""
    inputs, labels, part = make_table(made, seed)
    tasks = [f"task {k}" for k in range(made.tasks)]
    names = [*tasks, *(f"x{k}" for k in range(made.features)), "part"]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        ",".join([*("" if label < 0 else str(label) for label in y), *(f"{value:.5g}" for value in x), p])
        for x, y, p in zip(inputs.tolist(), labels.tolist(), part.tolist(), strict=True)
    ]
    path = folder / "table.csv"
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    recipe = tiny_recipe(
        made.method,
        seed=seed,
        model={"hidden": [made.hidden], "dropout": 0.0},
        sampler={"batch_size": 64, "rich_fraction": 0.0},
        optimizer={"name": "adam" if made.lr < 10 else "sgd", "lr": made.lr, "weight_decay": 0.0},
        training={
            "steps": made.steps,
            "evaluate_every": made.steps // 8,
            "checkpoint_every": made.steps // 2,
        },
    )
    data = {"name": "csv", "path": str(path), "labels": tasks, "split_column": "part"}
    run = Run.create(folder / "run", type(recipe)(**{**vars(recipe), "data": data}))
    with suppress(TrainingError):
        train(run)
    return run


def judge(folder, made, seed):
    """Make a run: what a report says of it, and whether that is right."""
    run = make_run(folder, made, seed)
    (found,) = page_content([run], None, lambda _: None)["runs"]
    expected = (
        found["status"] in made.status.split(),
        any(words in found["verdict"] for words in made.words),
        any(words in found["advice"] for words in made.advice),
    )
    return found, all(expected)
