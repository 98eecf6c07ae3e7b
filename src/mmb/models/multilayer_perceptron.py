"""Multi-layer perceptron."""

from collections.abc import Sequence

from torch import nn

from mmb.models.multitask import MultiTask


def mlp(num_inputs: int, hidden: Sequence[int], num_tasks: int, dropout: float = 0.0) -> MultiTask:
    """Fully connected layers with ReLU, and one head per task.

    Args:
        num_inputs: Width of the input `[n, num_inputs]`.
        hidden: Widths of the hidden layers; empty for a linear model.
        num_tasks: Number of heads.
        dropout: Share of the hidden units dropped in training.

    Returns:
        A `MultiTask` model: logits `[n, num_tasks]`.

    Raises:
        ValueError: If a width is not positive.
    """
    if num_inputs < 1 or any(size < 1 for size in hidden):
        raise ValueError(f"widths must be positive, got num_inputs {num_inputs} and hidden {list(hidden)}")
    layers: list[nn.Module] = []
    width = num_inputs
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(inplace=True)]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        width = size
    return MultiTask(nn.Sequential(*layers), width, num_tasks)
