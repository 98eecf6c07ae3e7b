"""Methods by name, and defaults that work untuned: for each method, and for each data set.

A recipe is put together from fragments, later ones winning: `DATA` of its data set, `METHODS` of its method,
the recipe's own file, and the command line. The same data set gives every method the same network, number of
rows per step and number of steps, so comparisons are fair as they come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mmb.training.recipes.nested import Fragment


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
    "mb": Method("MB", "mmb.auc:MiniBatchPartialAUC"),
    "sopa": Method("mmb.auc:SOPA", "mmb.auc:SOPA"),
    "sopa-s": Method("SOPA-s", "mmb.auc:SOPAs"),
}

_FINGERPRINTS: Fragment = {
    "data": {"features": "fingerprint", "bits": 1024},
    "optimizer": {"lr": 3e-3, "weight_decay": 1e-4},
    "training": {"epochs": 15},
}

# Their activations are large, and every batch is decoded by one process.
_LARGE_IMAGES: Fragment = {"training": {"evaluation_batch_size": 256}}

DATA: dict[str, Fragment] = {
    "digits": {
        "model": {"hidden": [64]},
        "optimizer": {"lr": 3e-3},
        "training": {"steps": 1000, "evaluate_every": 50},
    },
    "synthetic": {"model": {"hidden": [64]}},
    "tox21": _FINGERPRINTS,
    "toxcast": _FINGERPRINTS,
    # Thirty positives among 75,000 rows: most uniform batches would have none of a task.
    "muv": {
        **_FINGERPRINTS,
        "sampler": {"batch_size": 512, "rich_fraction": 0.5, "tasks_per_step": 4, "rows_per_task": 64},
        "training": {"epochs": 6},
    },
    "sider": _FINGERPRINTS,
    "celeba": _LARGE_IMAGES,
    "chexpert": _LARGE_IMAGES,
}

_MOLECULES = ("molecules", "molpcba", "tox21", "toxcast", "muv", "sider")
_IMAGES = {"cifar10": "resnet18", "cifar100": "resnet18", "celeba": "resnet18", "chexpert": "densenet121"}


def default_model(data: Fragment) -> Fragment:
    """The network for the section `data` of a recipe, where none is chosen."""
    if data["name"] in _IMAGES:
        return {"name": _IMAGES[data["name"]]}
    if data["name"] in _MOLECULES:
        fingerprint = data.get("features") == "fingerprint"
        return {"name": "mlp", "hidden": [256], "dropout": 0.5} if fingerprint else {"name": "gin"}
    return {"name": "mlp", "hidden": [256, 256]}
