"""Methods by name, and defaults that work untuned: for each method, and for each data set.

A recipe is put together from fragments, later ones winning: `DATA` of its data set, `METHODS` of its method,
the recipe's own file, and the command line. The same data set gives every method the same network, number of
rows per step and number of steps, so comparisons are fair as they come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Fragment = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """What to train for.

    Attributes:
        title: Name in tables.
        objective: Name of the class in `mmb.auc`.
        defaults: Fragment of a recipe.
        own_weights: Whether every task is evaluated with weights of its own (compositional training). Then
            task-sampled batches keep tasks apart, and have a second, independent set of rows for the lower
            level.
    """

    title: str
    objective: str
    defaults: Fragment = field(default_factory=dict)
    own_weights: bool = False


METHODS: dict[str, Method] = {
    "ce": Method("CE", "CrossEntropy"),
    "focal": Method("Focal", "Focal"),
    "auc": Method("mAUC", "MinMaxAUC"),
    "auc-ct": Method("mAUC-CT", "CompositionalAUC", {"sampler": {"kind": "tasks"}}, own_weights=True),
    "pauc": Method("MMB-pAUC", "PartialAUC"),
    "pauc-pairwise": Method("pairwise pAUC", "PairwisePartialAUC"),
    "mb": Method("MB", "MiniBatchPartialAUC"),
    "sopa": Method("SOPA", "SOPA"),
    "sopa-s": Method("SOPA-s", "SOPAs"),
}

DATA: dict[str, Fragment] = {
    "digits": {"model": {"name": "mlp", "hidden": [64]}, "training": {"epochs": 40}},
    "synthetic": {"model": {"name": "mlp", "hidden": [64]}},
}

ANY_DATA: Fragment = {"model": {"name": "mlp"}}
"""For data sets that have no entry in `DATA`."""
