"""Untuned: the estimator beside cross-entropy, logistic regression, boosting and a random forest.

Every method has its defaults, on every data set. Seeds split the data again and seed the methods; differences
are paired by seed. Metrics are of rows that were held out of everything, the mean over the tasks; partial AUC
is McClish's, up to a false positive rate of 0.1. Logistic regression (on standardized columns), gradient
boosting and the random forest are fitted task by task on the rows that have a label.

    python benchmarks/estimator.py [--root FOLDER-OF-DATA] [--seeds 5] [--sets wine digits] [--jobs 4]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from _keel import one_task_per_class, read_keel
from _made_sets import MADE_CHECK, MADE_CHOICE, MADE_LARGE
from _timing import machine, print_json, print_table
from mmb import metrics
from mmb.data.sets import bbbp, clintox, digits, hiv, sider, synthetic, tox21
from mmb.estimators import MultiTaskAUCClassifier
from mmb.estimators.ensemble import assign_folds

MAX_FPR = 0.1


class Split(NamedTuple):
    """Rows to fit on and rows to test on; labels int8 [n, m] with -1 for missing."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def split(x: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """Hold out 30 % at random, stratified."""
    fold = assign_folds(torch.as_tensor(y), 10, torch.Generator().manual_seed(seed)).numpy()
    test = (fold >= 0) & (fold < 3)
    return Split(x[~test], y[~test], x[test], y[test])


def one_hot(classes: np.ndarray) -> np.ndarray:
    return (classes[:, None] == np.unique(classes)).astype(np.int8)


def breast_cancer(seed: int, root: Path | None) -> Split:
    """569 tumours, 30 measurements; of the malignant ones every fifth is kept, 11 % of the rows."""
    x, benign = datasets.load_breast_cancer(return_X_y=True)
    malignant = np.flatnonzero(benign == 0)
    kept = np.sort(np.concatenate([np.flatnonzero(benign), malignant[seed % 5 :: 5]]))
    return split(x[kept], (1 - benign[kept, None]).astype(np.int8), seed)


def wine(seed: int, root: Path | None) -> Split:
    """178 wines of 3 growers, 13 measurements; a task for each grower."""
    x, grower = datasets.load_wine(return_X_y=True)
    return split(x, one_hot(grower), seed)


def diabetes(seed: int, root: Path | None) -> Split:
    """442 patients, 10 measurements; positive is the tenth whose illness progressed most."""
    x, progress = datasets.load_diabetes(return_X_y=True)
    return split(x, (progress >= np.quantile(progress, 0.9))[:, None].astype(np.int8), seed)


def rare_digits(seed: int, root: Path | None) -> Split:
    """1,797 images of 8 x 8; ten tasks, four fifths of the positives to fit on are gaps."""
    data = digits.load(seed=seed)
    fit, test = data.split["train"], torch.cat([data.split["valid"], data.split["test"]])
    x, y = data.inputs.double().numpy(), data.labels.numpy()
    return Split(x[fit], y[fit], x[test], y[test])


def made_up(seed: int, root: Path | None) -> Split:
    """2,000 rows, 20 columns, 10 related tasks with 5 % positives and 20 % gaps."""
    data = synthetic.load(rows=4000, tasks=10, missing_rate=0.2, seed=seed)
    x, y = data.inputs.double().numpy(), data.labels.numpy()
    return Split(x[:2000], y[:2000], x[2000:], y[2000:])


def hypercubes(seed: int, root: Path | None) -> Split:
    """5,000 rows, 30 columns of which 10 matter; one task, 2 % positives in several clusters."""
    x, y = datasets.make_classification(
        10_000, 30, n_informative=10, n_clusters_per_class=4, weights=[0.98], flip_y=0.005, random_state=seed
    )
    return split(x, y[:, None].astype(np.int8), seed)


def rare(seed: int, root: Path | None) -> Split:
    """2,800 rows, 20 columns, 4 related tasks with 1.5 % positives."""
    data = synthetic.load(rows=4000, tasks=4, positive_rate=0.015, seed=seed)
    return split(data.inputs.double().numpy(), data.labels.numpy(), seed)


def noisy(seed: int, root: Path | None) -> Split:
    """1,750 rows, 20 columns, 8 related tasks with 10 % positives, most of which are noise."""
    data = synthetic.load(rows=2500, tasks=8, positive_rate=0.1, noise=1.0, seed=seed)
    return split(data.inputs.double().numpy(), data.labels.numpy(), seed)


def noisy_cubes(seed: int, root: Path | None) -> Split:
    """2,100 rows, 60 columns of which 6 matter; one task, 6 % positives, some labels wrong."""
    x, y = datasets.make_classification(
        3000, 60, n_informative=6, weights=[0.95], flip_y=0.03, class_sep=0.7, random_state=seed
    )
    return split(x, y[:, None].astype(np.int8), seed)


def molecules(
    module: Any, rows: int | None = None, flip: bool = False
) -> Callable[[int, Path | None], Split]:
    """Fingerprints of 1,024 bits, of rows drawn by the seed; with `flip`, negatives are the positives."""

    def load(seed: int, root: Path | None) -> Split:
        data = module.load(root, features="fingerprint", bits=1024)
        chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:rows]
        labels = data.labels[chosen]
        labels = torch.where(labels >= 0, 1 - labels, labels) if flip else labels
        return split(data.inputs[chosen].double().numpy(), labels.numpy(), seed)

    return load


def keel(name: str) -> Callable[[int, Path | None], Split]:
    """A table of numbers, one task per class."""

    def load(seed: int, root: Path | None) -> Split:
        cells, classes = read_keel(name)
        return split(cells.astype(np.float64), one_task_per_class(classes), seed)

    return load


def made(name: str) -> Callable[[int, Path | None], Split]:
    """A table of `_made_sets.py`."""

    def load(seed: int, root: Path | None) -> Split:
        return split(*MADE[name](np.random.default_rng(seed)), seed)

    return load


MADE = {**MADE_CHOICE, **MADE_CHECK, **MADE_LARGE}
_KEEL = (
    *("contraceptive", "movement_libras", "page-blocks0", "phoneme", "satimage", "segment"),
    *("spambase", "texture", "vehicle", "vowel", "winequality-red-4", "winequality-white-3-9_vs_5"),
    *("yeast1", "yeast4"),
)
_MORE_KEEL = (  # on which nothing was chosen
    *("banana", "ionosphere", "led7digit", "magic", "pima", "ring", "sonar", "twonorm", "vehicle1", "wdbc"),
    *("winequality-red-8_vs_6", "winequality-white-3_vs_7", "yeast3", "yeast5"),
)
GROUPS = {
    "KEEL": [f"KEEL {name}" for name in _KEEL],
    "UNSEEN": [f"KEEL {name}" for name in _MORE_KEEL],
    "MADE_CHOICE": list(MADE_CHOICE),
    "MADE_CHECK": list(MADE_CHECK),
}
SETS: dict[str, Callable[[int, Path | None], Split]] = {
    "breast cancer": breast_cancer,
    "wine": wine,
    "diabetes": diabetes,
    "digits": rare_digits,
    "synthetic": made_up,
    "hypercubes": hypercubes,
    "synthetic, rare": rare,
    "synthetic, noisy": noisy,
    "hypercubes, noisy": noisy_cubes,
    "tox21": molecules(tox21),
    "sider": molecules(sider),
    "bbbp": molecules(bbbp, flip=True),
    "clintox": molecules(clintox),
    "hiv": molecules(hiv, rows=5000),
    **{f"KEEL {name}": keel(name) for name in (*_KEEL, *_MORE_KEEL)},
    **{name: made(name) for name in MADE},
}
MOLECULES = ("tox21", "sider", "bbbp", "clintox", "hiv")


def by_network(objective: str, trees: bool = True) -> Callable[[Split, int], np.ndarray]:
    def scores(data: Split, seed: int) -> np.ndarray:
        model = MultiTaskAUCClassifier(objective, max_fpr=MAX_FPR, trees=trees, random_state=seed)
        labels = data.y if data.y.shape[1] > 1 else data.y[:, 0]
        return model.fit(data.x, labels).decision_function(data.test_x).reshape(len(data.test_x), -1)

    return scores


def by_task(make: Callable[[int], Any]) -> Callable[[Split, int], np.ndarray]:
    def column(data: Split, seed: int, task: int) -> np.ndarray:
        there = data.y[:, task] >= 0
        if len(np.unique(data.y[there, task])) < 2:
            return np.zeros(len(data.test_x))
        model = make(seed).fit(data.x[there], data.y[there, task])
        if hasattr(model, "decision_function"):
            return np.asarray(model.decision_function(data.test_x))
        return np.asarray(model.predict_proba(data.test_x)[:, 1])

    return lambda data, seed: np.column_stack([column(data, seed, k) for k in range(data.y.shape[1])])


METHODS: dict[str, Callable[[Split, int], np.ndarray]] = {
    "soup": by_network("soup"),
    "pauc": by_network("pauc"),
    "pauc-pairwise": by_network("pauc-pairwise"),
    "auc": by_network("auc"),
    "ce": by_network("ce"),
    "networks": by_network("soup", trees=False),
    "logistic": by_task(lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))),
    "boosting": by_task(lambda seed: HistGradientBoostingClassifier(random_state=seed)),
    "forest": by_task(lambda seed: RandomForestClassifier(random_state=seed)),
}


NETWORKS = ("soup", "pauc", "pauc-pairwise", "auc", "ce", "networks")
METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    f"partial AUC up to {MAX_FPR}": lambda scores, labels: metrics.roc_auc(scores, labels, MAX_FPR),
    "average precision": metrics.average_precision,
    "AUC": metrics.roc_auc,
}
RATE, SECONDS = "false positive rate of predict", "processor seconds of a fit and its predictions"


def measure(name: str, seed: int, root: Path | None, methods: Sequence[str]) -> dict[str, dict[str, float]]:
    """Of each method the metrics on test rows, its false positive rate, and the seconds it takes."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="sklearn")
    data, found = SETS[name](seed, root), {}
    for method in methods:
        started = time.process_time()
        scores, labels = torch.as_tensor(METHODS[method](data, seed)), torch.as_tensor(data.test_y)
        seconds = time.process_time() - started
        negative = labels == 0  # `predict` calls positive what has a decision above zero
        rate = ((negative & (scores > 0)).sum(0) / negative.sum(0)).mean()
        values = {title: float(metric(scores, labels).nanmean()) for title, metric in METRICS.items()}
        found[method] = {**values, RATE: float(rate), SECONDS: seconds}
    return found


def mean_and_error(values: list[float]) -> tuple[float, float]:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), error


def compare(
    found: dict[str, list[dict[str, dict[str, float]]]], title: str, other: str
) -> Iterator[tuple[str, float, float]]:
    """How much better `soup` is than another method on each data set, paired by seed, and overall."""
    means = []
    for name, seeds in found.items():
        mean, error = mean_and_error([one["soup"][title] - one[other][title] for one in seeds])
        means.append(mean)
        yield name, mean, error
    if len(means) > 1:
        yield "mean of the sets", *mean_and_error(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=None, help="where the molecules lie; left out without")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--sets",
        nargs="+",
        default=[one for one in SETS if not one.startswith("KEEL") and one not in MADE],
        choices=[*SETS, *GROUPS],
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if options.root is None:
        options.sets = [name for name in options.sets if name not in MOLECULES]
    options.sets = [name for one in options.sets for name in GROUPS.get(one, [one])]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = [(name, seed, options.root, options.methods) for name in options.sets for seed in seeds]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        records = pool.starmap(measure, tasks, chunksize=1)
    found: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in options.sets}
    for (name, *_), record in zip(tasks, records, strict=True):
        found[name].append(record)

    def show(title: str, methods: Sequence[str], digits: int) -> None:
        rows = []
        for name, ones in found.items():
            cells = (mean_and_error([one[method][title] for one in ones]) for method in methods)
            rows.append([name, *(f"{mean:.{digits}f} ({error:.{digits}f})" for mean, error in cells)])
        print_table(f"{title}, mean (standard error) of {options.seeds} seeds", ["", *methods], rows)

    others = [m for m in options.methods if m != "soup"] if "soup" in options.methods else []
    for title in METRICS:
        show(title, options.methods, 4)
        if others:
            lines = zip(*(compare(found, title, other) for other in others), strict=True)
            print_table(
                f"{title}: soup minus the others, paired by seed: mean (standard error)",
                ["", *others],
                [[line[0][0], *(f"{mean:+.4f} ({error:.4f})" for _, mean, error in line)] for line in lines],
            )
    show(RATE, [method for method in options.methods if method in NETWORKS], 3)
    show(SECONDS, options.methods, 1)
    settings = {"benchmark": "estimator", "max_fpr": MAX_FPR, "seeds": list(seeds), "machine": machine()}
    print_json({**settings, "found": found})


if __name__ == "__main__":
    main()
