"""Your own network on your own images: from a table of file names to scores for new images.

The table has a column `file` and a column per task: 1, 0, or blank if it is not known.

    python examples/own_images.py labels.csv pictures new.csv

The same network by its import path, on the command line, in this folder:

    mmb train --data images data.path=labels.csv data.root=pictures data.size=64 model.name=own_images:network
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import mmb.data
from mmb.training import Run, fit, predict_file


def network(num_tasks: int, channels: int = 3, width: int = 32) -> nn.Module:
    """A small convolutional network: any module from images to logits `[n, num_tasks]` will do.

    Args:
        num_tasks: Outputs per image.
        channels: Channels of the images.
        width: Channels of the first layer.
    """
    layers: list[nn.Module] = []
    for out in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_tasks))


def main(
    table: Path, pictures: Path, new: Path, output: Path = Path("runs/own_images"), **changes: Any
) -> dict[str, Any]:
    """Train for partial AUC, and score new images.

    Args:
        table: A CSV file with a column `file`. All other columns are tasks.
        pictures: The folder that file names start from.
        new: A CSV file with a column `file`: the images to score.
        output: The folder of the run.
        **changes: Sections of the recipe that differ from those below.

    Returns:
        The test metrics, means over tasks, and the number of new images called positive for each task.
    """
    # Decoded once, by a process per core; later starts open the cache.
    dataset = mmb.data.load("images", path=table, root=pictures, size=64, augment="shift,flip,brightness")
    torch.manual_seed(0)
    model = network(len(dataset.task_names))
    sections: dict[str, Any] = {
        "sampler": {"batch_size": 128, "rich_fraction": 0.5},  # half of the rows are rare positives
        "training": {"epochs": 30, "select": "pauc", "max_fpr": 0.1, "batch_norm": "recalibrate"},
        **changes,
    }
    result = fit(model, dataset, "pauc", folder=output, **sections)
    called = predict_file(Run.open(output), new, output / "scores.csv")
    return {"test": result["test"], "called positive": called["positive"]}


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:4])))
