"""A data set, networks and an objective that the library has not heard of, for tests by import path."""

import torch
from torch import nn

from mmb.auc import CrossEntropy, Labels, RowDraw, Sampler
from mmb.data import Dataset, NewRows
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


class PlaceEncoder:
    """Lines of numbers."""

    def __init__(self, sign: str = ",") -> None:
        self.sign = sign

    def batches(self, path):
        lines = path.read_text().splitlines()
        numbers = [[float(cell) for cell in line.split(self.sign)] for line in lines]
        yield NewRows({"line": lines}, torch.tensor(numbers), [""] * len(lines))

    def to_json(self):
        return {"kind": "own_parts:PlaceEncoder", "sign": self.sign}

    @staticmethod
    def from_json(data):
        return PlaceEncoder(data["sign"])


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


class Base(nn.Module):
    """A network as a class.

    Args:
        num_inputs: Numbers per row.
        num_tasks: Outputs per row.
        width: Of the hidden layer.
    """

    def __init__(self, num_inputs: int, num_tasks: int, width: int = 6) -> None:
        super().__init__()
        self.layers = build(num_inputs, num_tasks, width)

    def forward(self, rows):
        return self.layers(rows)


class Child(Base):
    """One that has the arguments of its base class, too.

    Args:
        scale: Of the logits.
    """

    def __init__(self, scale: float = 2.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def forward(self, rows):
        return self.scale * super().forward(rows)


def build_child(**options) -> nn.Module:
    """A function that passes on what it gets."""
    return Child(**options)


def build_hidden(**options) -> nn.Module:
    """A function of which nobody knows what it takes."""
    given = {"width": 3}
    given.update(options)
    return build(**given)


def build_untyped(num_inputs, num_tasks, depth):
    """A function without types."""
    return build(num_inputs, num_tasks, depth)


def build_data(num_tasks: int) -> Dataset:
    """Not a network."""
    return load()


class Listed(nn.Module):
    """A network whose layers are in a plain list."""

    def __init__(self, num_inputs: int, num_tasks: int) -> None:
        super().__init__()
        self.layers = [nn.Linear(num_inputs, num_tasks)]


def load_more(**options) -> Dataset:
    """A function that passes on what it gets."""
    return load(**options)


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

    def draw(self) -> RowDraw:
        step = self.step if self.order == "first" else self.steps_per_epoch - 1 - self.step
        return RowDraw(torch.arange(step * self.width, (step + 1) * self.width))


__all__ = ["CenteredLogistic", "EveryRow", "HalfCrossEntropy", "build", "load", "load_nothing", "small_cnn"]
