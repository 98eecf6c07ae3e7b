"""What processes that train together must agree on."""

from __future__ import annotations

import platform
from dataclasses import asdict

import torch

import mmb
from mmb.data import Dataset
from mmb.training.processes.group import Ranks
from mmb.training.processes.rendezvous import ProcessError
from mmb.training.recipes.nested import difference, flatten
from mmb.training.recipes.recipe import Recipe
from mmb.training.runs.fingerprints import data_facts, fingerprint
from mmb.trees import tensors

_SAMPLE = 16  # rows of the data whose inputs are compared


def check_agreement(ranks: Ranks, recipe: Recipe, dataset: Dataset) -> None:
    """Stop unless all processes have the same recipe, data and versions.

    Raises:
        ProcessError: Naming what differs, and what the processes have.
    """
    if ranks.size == 1:
        return
    rows = torch.linspace(0, len(dataset) - 1, min(_SAMPLE, len(dataset))).long()
    facts = {**flatten(asdict(recipe)), **data_facts(dataset)}
    facts["the inputs"] = fingerprint(list(tensors(dataset.batch(rows))))
    facts |= {"mmb version": mmb.__version__, "torch version": torch.__version__}
    facts["python version"] = platform.python_version()
    everyone = ranks.gather(facts)
    for rank, other in enumerate(everyone):
        for key, (mine, others) in difference(everyone[0], other).items():
            raise ProcessError(
                f"processes disagree on {key}: process 0 has {mine}, process {rank} has {others}; "
                "start all with the same recipe, data and versions"
            )
