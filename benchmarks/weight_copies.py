"""Compositional training with weight copies, with offsets and with neither: memory and accuracy.

    python benchmarks/weight_copies.py

The bundled digits, made imbalanced: ten tasks, a small network. All rows of the table start from the same
200 steps of cross-entropy, then make the same steps of `CompositionalAUC` on the same tasks and rows,
with and without rows of their own for the lower level. AUC is the mean over tasks on test rows.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from typing import Any

import torch

import mmb.data
from _timing import machine, print_json, print_table
from mmb.auc import CompositionalAUC, CrossEntropy, RichRowSampler, TaskSampler
from mmb.metrics import roc_auc
from mmb.models import MultiTask, mlp

SEEDS = (0, 1, 2)
KEPT = ("weights", "offsets", "none")


def pretrained(data: Any, steps: int, seed: int) -> MultiTask:
    """A network after some steps of cross-entropy."""
    rows = data.split["train"]
    inputs, labels = data.inputs[rows], data.labels[rows]
    torch.manual_seed(seed)
    model = mlp(inputs.shape[1], [64, 64], labels.shape[1])
    objective = CrossEntropy(labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampler = RichRowSampler(labels, batch_size=128, generator=seed)
    made = 0
    while made < steps:
        for draw in sampler:
            optimizer.zero_grad()
            objective.backward(model, draw.batch(inputs, labels))
            optimizer.step()
            made += 1
    return model


def train(data: Any, model: MultiTask, kept: str, lower: bool, steps: int, seed: int) -> tuple[float, int]:
    """Test AUC after compositional training, and the bytes of the copies."""
    rows = data.split["train"]
    inputs, labels = data.inputs[rows], data.labels[rows]
    objective = CompositionalAUC(labels, model, copies_as=kept, inner_lr=0.1)
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=5e-4)
    sampler = TaskSampler(labels, 4, 32, positive_fraction=0.5, independent_lower=lower, generator=seed)
    made = 0
    while made < steps:
        for draw in sampler:
            optimizer.zero_grad()
            objective.backward(model, draw.batch(inputs))
            optimizer.step()
            made += 1
            if made == steps:
                break
    model.eval()
    test = data.split["test"]
    with torch.no_grad():
        auc = roc_auc(model(data.inputs[test]), data.labels[test])
    return float(auc.nanmean()), objective.copies.footprint.bytes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = mmb.data.load("digits")
    starts = {seed: pretrained(data, 200, seed) for seed in SEEDS}
    found: list[dict[str, Any]] = []
    for lower in (True, False):
        for kept in KEPT:
            runs = [
                train(data, copy.deepcopy(starts[seed]), kept, lower, options.steps, seed) for seed in SEEDS
            ]
            aucs = [auc for auc, _ in runs]
            found.append({"kept": kept, "lower rows": lower, "auc": aucs, "bytes": runs[0][1]})
    print_table(
        f"Test AUC after {options.steps} steps, mean (standard deviation) over {len(SEEDS)} seeds",
        ["kept", "rows of the lower level", "memory of copies", "AUC"],
        [
            [
                row["kept"],
                "own" if row["lower rows"] else "the same",
                f"{row['bytes'] / 1024:,.0f} KiB",
                f"{statistics.mean(row['auc']):.4f} ({statistics.stdev(row['auc']):.4f})",
            ]
            for row in found
        ],
    )
    print_json({"benchmark": "weight_copies", "machine": machine(), "steps": options.steps, "rows": found})


if __name__ == "__main__":
    main()
