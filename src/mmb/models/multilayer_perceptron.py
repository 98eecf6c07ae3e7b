"""Multi-layer perceptron."""

from collections.abc import Sequence

from torch import nn

from mmb.models.multitask import MultiTask
from mmb.models.ranges import Ranges


def mlp(
    num_inputs: int,
    hidden: Sequence[int],
    num_tasks: int,
    dropout: float = 0.0,
    ranges: int = 0,
    columns: Sequence[int] | None = None,
) -> MultiTask:
    """Fully connected layers with ReLU, and one head per task.

    Args:
        num_inputs: Width of the input `[n, num_inputs]`.
        hidden: Widths of the hidden layers; empty for a linear model.
        num_tasks: Number of heads.
        dropout: Share of the hidden units dropped in training.
        ranges: Ranges of values between which the first layer can tell standardized numbers apart; 0 for
            none. For tables whose columns act through thresholds; see `mmb.models.Ranges`.
        columns: Which inputs are such numbers; all of them by default.

    Returns:
        A `MultiTask` model: logits `[n, num_tasks]`.

    Raises:
        ValueError: If a width is not positive, or a column is not among the inputs.
    """
    if num_inputs < 1 or any(size < 1 for size in hidden):
        raise ValueError(f"widths must be positive, got num_inputs {num_inputs} and hidden {list(hidden)}")
    if ranges < 0:
        raise ValueError(f"ranges: expected a count, 0 for none, got {ranges}")
    layers: list[nn.Module] = []
    width = num_inputs
    if ranges:
        first = Ranges(num_inputs, ranges, columns)
        layers.append(first)
        width = first.num_outputs
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(inplace=True)]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        width = size
    return MultiTask(nn.Sequential(*layers), width, num_tasks)
