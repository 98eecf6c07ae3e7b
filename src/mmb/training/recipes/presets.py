"""Methods by name, defaults that work untuned for each method and data set, and values to try when tuning.

A recipe is put together from fragments, later ones winning: `NETWORKS` of its network, `for_inputs` of its
kind of inputs, `for_data` of its data set, `METHODS` of its method, the recipe's own file, and the command
line. The same data set gives every method the same network, number of rows per step and number of steps, so
comparisons are fair by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmb.training.recipes.nested import Fragment
from mmb.training.recipes.recipe import Recipe


@dataclass(frozen=True)
class Method:
    """What to train for.

    Attributes:
        title: Name in tables.
        objective: Import path of its class, `"package.module:Class"`.
        defaults: Fragment of a recipe.
    """

    title: str
    objective: str
    defaults: Fragment = field(default_factory=dict)


CONTROL: Fragment = {"method": "ce", "training": {"stop_below": None}}
"""A branch that continues with cross-entropy and is never stopped early."""

METHODS: dict[str, Method] = {
    "ce": Method("CE", "mmb.auc:CrossEntropy"),
    "focal": Method("Focal", "mmb.auc:Focal"),
    "auc": Method("mAUC", "mmb.auc:MinMaxAUC"),
    # Task-sampled: a dense batch would evaluate every task's copy on all of its rows. Offsets: copies of
    # weights fall behind where tasks are many.
    "auc-ct": Method(
        "mAUC-CT",
        "mmb.auc:CompositionalAUC",
        {"sampler": {"kind": "tasks"}, "objective": {"copies_as": "offsets"}},
    ),
    "auc-ct-heads": Method("mAUC-CT, heads", "mmb.auc:HeadCompositionalAUC"),
    "pauc": Method("MMB-pAUC", "mmb.auc:PartialAUC", {"objective": {"gradient": "practical"}}),
    # From scratch, the selector must be soft enough to give all negatives a gradient.
    "pauc-full": Method(
        "MMB-pAUC, full",
        "mmb.auc:PartialAUC",
        {"objective": {"gradient": "full", "temperature": 0.2, "tau1": 0.2}},
    ),
    "pauc-pairwise": Method("pairwise pAUC", "mmb.auc:PairwisePartialAUC"),
    "two-way": Method("two-way pAUC", "mmb.auc:TwoWayPartialAUC"),
    "ap": Method("AP", "mmb.auc:AveragePrecision"),
    "ndcg": Method("nDCG", "mmb.auc:NDCG"),
    "recall": Method("recall at FPR", "mmb.auc:RecallAtFPR"),
    "fpr": Method("FPR at recall", "mmb.auc:FPRAtRecall"),
    "recall-constrained": Method("recall, constrained", "mmb.auc:ConstrainedRecall"),
    "mb": Method("MB", "mmb.auc:MiniBatchPartialAUC"),
    "sopa": Method("SOPA", "mmb.auc:SOPA"),
    "sopa-s": Method("SOPA-s", "mmb.auc:SOPAs"),
    "staco": Method("STACO", "mmb.auc:STACO"),
    "pauci": Method("PAUCI", "mmb.auc:PAUCI"),
    "sum": Method("Sum", "mmb.auc:Sum"),
    # One network from branches of one CE start; its controls have as many steps. Branches should differ, and
    # the average keeps them in check: none is anchored to cross-entropy.
    "soup": Method(
        "Soup",
        "mmb.auc:CrossEntropy",
        {
            "branches": {
                "ce": {},
                "auc": {"objective": {"anchor": 0.0}},
                "pauc": {"objective": {"max_fpr": 0.3, "anchor": 0.0}},
                "ap": {},
                "ndcg": {},
            }
        },
    ),
    "ce-average": Method(
        "CE, average",
        "mmb.auc:CrossEntropy",
        {
            "branches": {f"ce-{k}": CONTROL for k in range(1, 6)},
            "soup": {"share": 0.1},
        },
    ),
    "ce-longer": Method(
        "CE, longer", "mmb.auc:CrossEntropy", {"branches": {"ce": CONTROL}, "soup": {"share": 0.5}}
    ),
}


def method_of(name: str) -> Method:
    """The method of a name, or of the import path of a user's own objective."""
    return METHODS[name] if name in METHODS else Method(name.rpartition(":")[2], name)


DEFAULT_PARTS: Fragment = {"ce": {}, "auc": {}}
"""The parts of a sum for which a recipe states none, as `objective.parts`."""

# Of a few thousand molecules, too little can be learned from graphs.
_SOME_MOLECULES: Fragment = {"data": {"features": "descriptors", "bits": 1024}}

# Their activations are large, and every batch is decoded by one process.
_LARGE_IMAGES: Fragment = {"training": {"evaluation_batch_size": 256}}

DATA: dict[str, Fragment] = {
    "digits": {
        "model": {"hidden": [64]},
        "training": {"steps": 1000, "evaluate_every": 50},
    },
    "synthetic": {"model": {"hidden": [64]}},
    **dict.fromkeys(("molecules", "tox21", "toxcast", "sider", "hiv", "bbbp", "clintox"), _SOME_MOLECULES),
    # Thirty positives among 75,000 rows: most uniform batches would have none of a task.
    "muv": {
        **_SOME_MOLECULES,
        "sampler": {"batch_size": 512, "rich_fraction": 0.5, "tasks_per_step": 4, "rows_per_task": 64},
        "training": {"epochs": 6},
    },
    "images": _LARGE_IMAGES,
    "celeba": _LARGE_IMAGES,
    "chexpert": _LARGE_IMAGES,
}

_OWN_TABLES = ("table", "csv")
_MOLECULES = ("molecules", "molpcba", "tox21", "toxcast", "muv", "sider", "hiv", "bbbp", "clintox")
_IMAGES = {
    **dict.fromkeys(("images", "cifar10", "cifar100", "celeba"), "resnet18"),
    "chexpert": "densenet121",
}


def for_data(name: str, network: str | None) -> Fragment:
    """The fragment of a data set; molecules are left as graphs for a network other than a perceptron."""
    found = DATA.get(name, {})
    if name in _MOLECULES and network not in (None, "mlp"):
        return {section: options for section, options in found.items() if section != "data"}
    return found


def for_inputs(data: Fragment) -> Fragment:
    """The network for the section `data` of a recipe, and how to train it, where that is not chosen."""
    name = data["name"]
    if name in _IMAGES:
        return {"model": {"name": _IMAGES[name]}}
    if name in _MOLECULES:
        if data.get("features", "graph") == "graph":
            return {"model": {"name": "gin"}}
        ranges = 8 if data["features"] == "descriptors" else 0
        model = {"name": "mlp", "hidden": [256], "dropout": 0.5, "ranges": ranges}
        return {"model": model, "optimizer": {"weight_decay": 1e-4}, "training": {"epochs": 15}}
    if name in _OWN_TABLES:  # their columns often act through thresholds
        return {"model": {"name": "mlp", "hidden": [256, 256], "ranges": 8}, "optimizer": {"lr": 1e-3}}
    return {"model": {"name": "mlp", "hidden": [256, 256], "ranges": 0}}


NETWORKS: dict[str, Fragment] = {
    "mlp": {"optimizer": {"lr": 3e-3}},  # small networks: 1e-3 takes them many epochs
}


Grid = Mapping[str, list[Any]]

_AUC_RATES = [0.01, 0.03, 0.05, 0.07, 0.1]  # of weights and of block variables
_AUC_MOMENTUM = {"optimizer.momentum": [0.9, 0.5, 0.1]}
_COMMON: Grid = {
    "optimizer.lr": [0.0001, 0.0005, 0.001, 0.005, 0.01],
    "optimizer.momentum": [0.1, 0.01],
}
_PARTIAL: Grid = {
    **_COMMON,
    "objective.lr_dual": [0.5, 0.1, 0.01],
    "objective.lr_threshold": [0.5, 0.1, 0.01],
    "objective.beta": [0.99, 0.9, 0.5, 0.1, 0.01],
}

GRIDS: dict[str, Grid] = {
    "auc": {"optimizer.lr objective.lr_dual": _AUC_RATES, **_AUC_MOMENTUM},
    "auc-ct": {
        "optimizer.lr objective.lr_dual objective.lr_lower": _AUC_RATES,
        **_AUC_MOMENTUM,
        "objective.inner_lr": [0.1, 0.5, 0.9],
    },
    "focal": {**_COMMON, "objective.gamma": [1, 2, 4], "objective.alpha": [0.25, 0.5, 0.75]},
    "pauc": _PARTIAL,
    "pauc-full": _PARTIAL,
    "sopa-s": {**_COMMON, "objective.beta": [0.9, 0.99], "objective.temperature": [0.1, 1, 10]},
}
"""The paper's grids of the methods that have more to tune than the optimizer."""


def grid_of(recipe: Recipe) -> Grid:
    """The values to try for a recipe: its own grid, or the paper's for its method.

    A key names one key of the recipe, or several, separated by spaces, that take the same value. Without
    momentum in the optimizer, the paper's grids leave it out.
    """
    if recipe.grid:
        return recipe.grid
    grid = GRIDS.get(recipe.method, _COMMON)
    if recipe.optimizer.name in ("momentum", "sgd"):
        return grid
    return {key: values for key, values in grid.items() if key != "optimizer.momentum"}
