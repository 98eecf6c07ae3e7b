"""chemprop's message-passing network, trained with these objectives and with chemprop's own loss.

The file has a column of SMILES and a column per task: 1, 0, or blank if it was not measured. Every objective
has the same network, rows, steps and split by scaffold, so the results can be compared.

    python examples/chemprop_molecules.py assays.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chemprop
import torch
from rdkit import Chem
from torch import Tensor, nn

import mmb.data
from mmb.auc import Objective, WeightedScores
from mmb.training import fit

CONTROL = "chemprop_molecules:ChempropLoss"  # by its import path: this file
ARRAYS = ("V", "E", "edge_index", "rev_edge_index", "batch")


class Network(nn.Module):
    """chemprop's network as it is, from a dict of arrays to logits `[n, num_tasks]`."""

    def __init__(self, num_tasks: int, width: int = 300, depth: int = 3) -> None:
        super().__init__()
        self.network = chemprop.models.MPNN(
            chemprop.nn.BondMessagePassing(d_h=width, depth=depth),
            chemprop.nn.MeanAggregation(),
            chemprop.nn.BinaryClassificationFFN(num_tasks, input_dim=width, hidden_dim=width),
            batch_norm=True,
        )

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Logits; chemprop gives them in training alone, and probabilities otherwise."""
        features = self.network.fingerprint(SimpleNamespace(**inputs))
        return self.network.predictor.train_step(features)


class ChempropLoss(Objective):
    """The control: chemprop's loss for classification, the mean cross-entropy of all known labels."""

    def loss(self, entries: WeightedScores) -> Tensor:
        """Chemprop's value for a batch."""
        targets, known = entries.positive.sign(), entries.positive + entries.negative > 0
        return chemprop.nn.BCELoss().to(targets.device)(entries.logits, targets, known)


def load(table: Path) -> mmb.data.Dataset:
    """Labels, tasks and scaffold split of a table, with the graphs that chemprop makes of its molecules."""
    known = mmb.data.load("molecules", path=table, features="fingerprint", bits=8)
    with table.open(newline="", encoding="utf-8") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    featurize = chemprop.featurizers.SimpleMoleculeMolGraphFeaturizer()
    unreadable = {*known.details["unusable_rows"]}  # in no part of the split
    graphs = [featurize(Chem.MolFromSmiles("C" if k in unreadable else s)) for k, s in enumerate(smiles)]

    def batch(rows: Tensor) -> dict[str, Tensor]:
        joined = chemprop.data.BatchMolGraph([graphs[row] for row in rows.tolist()])
        return {name: getattr(joined, name) for name in ARRAYS}

    return mmb.data.make_dataset(batch, known.labels, split=known.split, task_names=known.task_names)


def main(
    table: Path, methods: tuple[str, ...] = (CONTROL, "pauc", "soup"), width: int = 300, **sections: Any
) -> dict[str, dict[str, float]]:
    """Test metrics, means over tasks, of each method.

    Args:
        table: A CSV file with a column `smiles`. All other columns are tasks.
        methods: What to train for.
        width: Of the network.
        **sections: Sections of the recipe, such as `training={"epochs": 50}`.
    """
    dataset = load(table)
    results = {}
    for method in methods:
        torch.manual_seed(0)  # the same initial weights
        model = Network(len(dataset.task_names), width)
        results[method] = fit(model, dataset, method, **sections)["test"]
        print(method, results[method])
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1]))
