"""A data set, networks and an objective that the library has not heard of, for tests by import path."""

import torch
from torch import nn

from mmb.auc import CrossEntropy, Labels, RowDraw, Sampler
from mmb.data import Dataset
from mmb.data.splits import random_split
from toy_objective import CenteredLogistic

__version__ = "7.1"
NOT_CALLABLE = 3


def load(rows: int = 240, noise: float = 0.3, seed: int = 0) -> Dataset:
    """Rows of five numbers and two tasks.

    Args:
        rows: Number of rows.
        noise: Added to the scores.
        seed: Of everything random.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 5, generator=generator)
    scores = inputs[:, :2] + noise * torch.randn(rows, 2, generator=generator)
    split = random_split(rows, (0.6, 0.2, 0.2), generator)
    return Dataset("own", inputs, (scores > 1).to(torch.int8), split, task_names=("a", "b"))


def load_nothing() -> str:
    """Not a data set."""
    return "nothing"


def build(num_inputs: int, num_tasks: int, width: int = 6) -> nn.Module:
    """A plain network, which is not a `MultiTask`.

    Args:
        num_inputs: Numbers per row.
        num_tasks: Outputs per row.
        width: Of the hidden layer.
    """
    return nn.Sequential(nn.Linear(num_inputs, width), nn.Tanh(), nn.Linear(width, num_tasks))


class Waiting(nn.Linear):
    """A network that looks at a value, for which a GPU has to be waited."""

    def forward(self, rows):
        return super().forward(rows * (1.0 if float(rows.sum()) > 0 else 0.5))


def waiting(num_inputs: int, num_tasks: int) -> nn.Module:
    """A network that cannot be captured.

    Args:
        num_inputs: Numbers per row.
        num_tasks: Outputs per row.
    """
    return Waiting(num_inputs, num_tasks)


def small_cnn(num_tasks: int, channels: int, width: int = 4) -> nn.Module:
    """A network for images of any size.

    Args:
        num_tasks: Outputs per image.
        channels: Of the images.
        width: Of the hidden layer.
    """
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(channels, width, 3), nn.ReLU(), *pool, nn.Linear(width, num_tasks))


class HalfCrossEntropy(CrossEntropy):
    """Half of it."""

    def loss(self, entries):
        return 0.5 * super().loss(entries)


class EveryRow(Sampler[RowDraw]):
    """Draws of neighboring rows.

    Args:
        labels: Of all rows.
        width: Rows in a draw.
        order: Where to begin: "first" or "last".
        generator: Seed.
    """

    def __init__(self, labels: Labels, width: int = 16, order: str = "first", generator: int = 0) -> None:
        super().__init__(labels.device, labels.num_rows // width, generator)
        self.width, self.order = width, order

    def _draw(self) -> RowDraw:
        step = self.step if self.order == "first" else self.steps_per_epoch - 1 - self.step
        return RowDraw(torch.arange(step * self.width, (step + 1) * self.width))


__all__ = ["CenteredLogistic", "EveryRow", "HalfCrossEntropy", "build", "load", "load_nothing", "small_cnn"]
