"""Chest X-rays: DenseNet121 on CheXpert, trained with cross-entropy first and then for partial AUC.

Get CheXpert from its publisher. Say once where it is, and train:

    mmb data get chexpert --from FOLDER
    python examples/chest_xrays.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mmb.auc
import mmb.data
import mmb.metrics


def epoch(
    model: nn.Module,
    objective: mmb.auc.Objective,
    optimizer: torch.optim.Optimizer,
    dataset: mmb.data.Dataset,
    sampler: mmb.auc.RichRowSampler,
    generator: torch.Generator,
) -> dict[str, float]:
    """One pass over the training rows; worker processes decode images in advance."""
    model.train()
    numbers: dict[str, Tensor] = {}
    draws = list(sampler)  # which rows, and how much they count
    batches = (dataset.split["train"][draw.rows] for draw in draws)
    for draw, (rows, images) in zip(draws, dataset.stream(batches, generator), strict=True):
        optimizer.zero_grad()
        labels = dataset.labels[rows]
        numbers = objective.backward(model, mmb.auc.DenseBatch(images, labels, draw.weights))
        optimizer.step()
    return {name: float(value) for name, value in numbers.items()}


@torch.no_grad()
def score(model: nn.Module, dataset: mmb.data.Dataset, part: str, batch_size: int) -> tuple[Tensor, Tensor]:
    """Logits and labels of one part of the data."""
    model.eval()
    batches = torch.split(dataset.split[part], batch_size)
    logits = [model(images).float().cpu() for _, images in dataset.stream(batches)]
    return torch.cat(logits), dataset.labels[dataset.split[part]].cpu()


def main(
    root: Path | None = None,
    *,
    network: str = "densenet121",
    batch_size: int = 32,
    epochs: tuple[int, int] = (1, 2),
    device: str = "cuda" if torch.cuda.is_available() else "cpu",
    **options: Any,
) -> dict[str, dict[str, float]]:
    """Train, and return AUC, partial AUC and false positive rate of each observation on the test images.

    Args:
        root: The folder of the data; `$MMB_DATA` or `~/.cache/mmb` by default.
        network: `"densenet121"` or `"resnet18"`.
        batch_size: Images per step.
        epochs: Number of passes with cross-entropy, and then for partial AUC.
        device: The device to compute on.
        **options: Options of the data set, such as `size` or `uncertain`.
    """
    dataset = mmb.data.load("chexpert", root, **options).to(device)
    model = mmb.models.build(network, dataset, seed=0).to(device)
    labels = dataset.labels[dataset.split["train"]]
    sampler = mmb.auc.RichRowSampler(labels.cpu(), batch_size, rich_fraction=0)  # plain shuffled passes
    generator = torch.Generator(device).manual_seed(0)  # for the augmentation

    first, second = (mmb.auc.CrossEntropy(labels), mmb.auc.PartialAUC(labels, max_fpr=0.1))
    for objective, passes, lr in ((first, epochs[0], 1e-4), (second, epochs[1], 3e-5)):
        objective.to(device)
        if objective is second:  # thresholds, means and duals start where the scores are now
            second.warm_start(*(part.to(device) for part in score(model, dataset, "valid", batch_size)))
        optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=lr)
        for _ in range(passes):
            print(type(objective).__name__, epoch(model, objective, optimizer, dataset, sampler, generator))

    thresholds = second.cpu().thresholds(*score(model, dataset, "valid", batch_size))
    logits, truth = score(model, dataset, "test", batch_size)
    found = mmb.metrics.evaluate(logits, truth, max_fpr=0.1)
    found["fpr"] = ((logits > thresholds) & (truth == 0)).sum(0) / (truth == 0).sum(0)
    return {name: dict(zip(dataset.task_names, one.tolist(), strict=True)) for name, one in found.items()}


if __name__ == "__main__":
    print(main())
