"""The data sets of `transfer.py`, as fragments of recipes: what a user would type, and no more."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn import datasets

from _keel import one_task_per_class, read_keel
from _molecule_samples import SAMPLES, write_sample
from _r_tables import TABLES as R_TABLES
from _r_tables import read_r_table
from mmb.data.splits import stratified_split
from mmb.training import merge, read_recipe
from mmb.training.recipes.adapted import adapted

_RECIPES = Path(__file__).parents[1] / "recipes" / "reproduce"


def _synthetic(**options: Any) -> Callable[[int, Path], dict[str, Any]]:
    return lambda seed, folder: {"data": {"name": "synthetic", **options, "seed": seed}}


def _named(name: str) -> Callable[[int, Path], dict[str, Any]]:
    return lambda seed, folder: {"data": {"name": name}}


def _digits(seed: int, folder: Path) -> dict[str, Any]:
    return {"data": {"name": "digits", "seed": seed}}


def _rare_table(load: Callable[[], Any], target: Callable[[Any], Any], keep: float) -> Any:
    """A table of scikit-learn as a CSV file, in which most training positives of each task are gaps."""

    def fragment(seed: int, folder: Path) -> dict[str, Any]:
        bunch = load()
        labels = target(bunch.target)
        generator = torch.Generator().manual_seed(seed)
        split = stratified_split(torch.as_tensor(bunch.target), (0.5, 0.2, 0.3), generator)
        part = np.empty(len(labels), dtype=object)
        for name, rows in split.items():
            part[rows.numpy()] = name
        cells = labels.astype(object)
        for task in range(labels.shape[1]):
            positives = torch.as_tensor((labels[:, task] == 1) & (part == "train")).nonzero().squeeze(1)
            shuffled = positives[torch.randperm(len(positives), generator=generator)]
            cells[shuffled[max(6, round(keep * len(shuffled))) :].numpy(), task] = ""
        tasks = [f"task_{task}" for task in range(labels.shape[1])]
        path = folder / "table.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{column}" for column in range(bunch.data.shape[1])), *tasks, "part"])
            writer.writerows([*x, *y, p] for x, y, p in zip(bunch.data, cells, part, strict=True))
        names = {"labels": ",".join(tasks), "split_column": "part"}
        return {"data": {"name": "csv", "path": str(path), **names}}

    return fragment


def _own_table(
    read: Callable[[str], tuple[np.ndarray, np.ndarray]], name: str, keep: float = 1.0
) -> Callable[[int, Path], dict[str, Any]]:
    """A table, one task per class, or the rare class alone, with what the command line adds to it."""

    def fragment(seed: int, folder: Path) -> dict[str, Any]:
        found = _rare_table(lambda: _bunch(*read(name)), one_task_per_class, keep)(seed, folder)
        return merge(adapted({"method": "ce", **found}), found)

    return fragment


def _own_molecules(title: str) -> Callable[[int, Path], dict[str, Any]]:
    """A file of molecules, split by scaffold, with what the command line adds to it."""

    def fragment(seed: int, folder: Path) -> dict[str, Any]:
        path = folder / "molecules.csv"
        write_sample(title, path)
        found = {"data": {"name": "molecules", "path": str(path)}}
        return merge(adapted({"method": "ce", **found}), found)

    return fragment


def _bunch(data: np.ndarray, target: np.ndarray) -> SimpleNamespace:
    return SimpleNamespace(data=data, target=target)


def _cifar(**options: Any) -> Callable[[int, Path], dict[str, Any]]:
    """Half as many epochs as by default, in large batches, so that a run takes a minute or two on a GPU."""
    training = {"epochs": 15, "precision": "bfloat16"}
    fragment = {
        "data": {"name": "cifar10", **options},
        "sampler": {"batch_size": 512},
        "training": training,
    }
    return lambda seed, folder: fragment


def _reproduced(name: str) -> Callable[[int, Path], dict[str, Any]]:
    """A study of recipes/reproduce: its first phase, and branches that train as its rows do."""

    def fragment(seed: int, folder: Path) -> dict[str, Any]:
        rows = read_recipe(_RECIPES / name / "rows.yaml")
        first, then = rows["pretrain"]["training"], rows["training"]
        length = "steps" if "steps" in then else "epochs"
        share = 0.1 * first[length] / then[length]  # of the first phase, not of a row
        alike = {"pretrain": {"training": {"batch_norm": then["batch_norm"]}}}
        rows = merge(rows, {"soup": {"share": share}, **alike})
        return {key: value for key, value in rows.items() if key != "method"}

    return fragment


SETS: dict[str, Callable[[int, Path], dict[str, Any]]] = {
    "digits": _digits,
    "synthetic, rare": _synthetic(rows=8000, tasks=20, features=30, positive_rate=0.01, noise=0.5),
    "synthetic, noisy": _synthetic(rows=6000, tasks=10, features=20, positive_rate=0.05, noise=2.0),
    "synthetic, many tasks": _synthetic(
        rows=6000, tasks=200, features=40, positive_rate=0.02, noise=0.7, missing_rate=0.5
    ),
    "breast cancer, rare": _rare_table(
        datasets.load_breast_cancer, lambda y: (y == 0).astype(int)[:, None], keep=0.1
    ),
    "wine, rare": _rare_table(
        datasets.load_wine, lambda y: np.stack([y == k for k in range(3)], 1).astype(int), keep=0.2
    ),
    "Tox21": _named("tox21"),
    "SIDER": _named("sider"),
    "BBBP": _named("bbbp"),
    "ClinTox": _named("clintox"),
    "HIV": _named("hiv"),
    "MUV": _named("muv"),
    "ToxCast": _named("toxcast"),
    "CIFAR-10": _cifar(),
    "CIFAR-10, rare": _cifar(positive_rate=0.01),
    "molpcba": _reproduced("molpcba"),
}

# Tables of KEEL, on which nothing was chosen, trained as `mmb train TABLE` does.
_KEEL = (
    *("abalone19", "abalone-17_vs_7-8-9-10", "contraceptive", "flare-F", "german", "letter", "marketing"),
    *("movement_libras", "page-blocks0", "phoneme", "satimage", "segment", "spambase", "texture", "vowel"),
    *("winequality-red-4", "winequality-white-3-9_vs_5", "yeast1", "yeast4"),
)
KEEL = {f"KEEL {name}": _own_table(read_keel, name) for name in _KEEL}
KEEL |= {
    f"KEEL {name}, rare": _own_table(read_keel, name, 0.1)
    for name in ("letter", "optdigits", "penbased", "texture")
}

# Tables on which the network for tables was not chosen either: more of KEEL, and of R with names and gaps.
_MORE = (
    *("abalone9-18", "banana", "bands", "car-good", "car-vgood", "chess", "crx", "kr-vs-k-three_vs_eleven"),
    *("kr-vs-k-zero_vs_fifteen", "led7digit", "magic", "mammographic", "mushroom", "poker-8-9_vs_6", "ring"),
    *("saheart", "splice", "tic-tac-toe", "twonorm", "vehicle1", "winequality-red-8_vs_6"),
    *("winequality-white-3_vs_7", "yeast3", "yeast5"),
)
UNSEEN = {f"KEEL {name}": _own_table(read_keel, name) for name in _MORE}
UNSEEN |= {f"R {name}": _own_table(read_r_table, name) for name in R_TABLES}
# Molecules on which neither inputs nor rules were chosen.
MOLECULES = {title: _own_molecules(title) for title in SAMPLES}
ALL_SETS = {**SETS, **KEEL, **UNSEEN, **MOLECULES}
GROUPS = {"KEEL": KEEL, "UNSEEN": UNSEEN, "MOLECULES": MOLECULES}
"""Data sets that may be named together."""


def named(chosen: Sequence[str]) -> list[str]:
    """The data sets of some names, which may be those of groups."""
    return [name for name in ALL_SETS if name in chosen or any(name in GROUPS.get(one, {}) for one in chosen)]
