"""A data set from what a user has in memory: tensors, arrays, a torch data set, or a function of rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import default_collate

from mmb.data.dataset import Dataset, Inputs
from mmb.data.splits import stratified_split
from mmb.label_values import as_labels, rarest_positive
from mmb.trees import map_tensors

_HOST = torch.device("cpu")


def make_dataset(
    inputs: Any,
    labels: Any = None,
    *,
    split: Mapping[str, Any] | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    task_names: Sequence[str] | None = None,
    name: str = "own",
) -> Dataset:
    """Make a data set, for `mmb.training.fit` or for your own function that a recipe names.

    Args:
        inputs: What the model takes, a row for each label: a tensor or array `[n, ...]`; a torch data set,
            whose items are inputs or pairs of inputs and labels; or a function from row numbers (a
            LongTensor) to the model's input of these rows, which may be any nest of tensors.
        labels: `[n, m]`, or `[n]` for one task: 0, 1, or missing (NaN in floating point, -1 in integers).
            None if the items of a torch data set have them.
        split: Row numbers of `"train"`, `"valid"` and `"test"`. By default rows are split at random, those
            with positives of a task evenly, the rarest task first.
        fractions: Of train, valid and test, if there is no split.
        seed: Of that split.
        task_names: Names of the tasks; by default numbers.
        name: Name of the data set.

    Raises:
        TypeError: If inputs are none of these.
        ValueError: If numbers of rows, labels or the split do not fit.
    """
    if labels is None:
        inputs, labels = _with_own_labels(inputs)
    matrix = as_labels(torch.as_tensor(labels))
    found = _as_inputs(inputs, len(matrix))
    if len(found) != len(matrix):
        raise ValueError(f"labels: expected one for each of the {len(found)} rows, got {len(matrix)}")
    if split is None:
        generator = torch.Generator().manual_seed(seed)
        parts = stratified_split(rarest_positive(matrix), fractions, generator)
    else:
        parts = {part: torch.as_tensor(rows, dtype=torch.int64) for part, rows in split.items()}
    names = tuple(map(str, range(matrix.shape[1]) if task_names is None else task_names))
    return Dataset(name, found, matrix, parts, names)


class RowFunction:
    """Inputs that a function makes from row numbers; it is called on the host."""

    def __init__(self, function: Callable[[Tensor], Any], length: int, device: torch.device = _HOST) -> None:
        self._function, self._length, self._device = function, length, device

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: Tensor) -> Any:
        """The model input of some rows, on the device."""
        return map_tensors(lambda leaf: leaf.to(self._device), self._function(rows.cpu()))

    def to(self, device: torch.device) -> Self:
        """The same rows for another device."""
        return type(self)(self._function, self._length, device)


def _as_inputs(inputs: Any, rows: int) -> Inputs:
    if isinstance(inputs, Tensor | RowFunction):
        return inputs
    if hasattr(inputs, "__array__"):
        values = torch.as_tensor(inputs)
        return values.to(torch.get_default_dtype()) if values.dtype == torch.float64 else values
    if hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__"):  # a torch data set
        return RowFunction(lambda chosen: default_collate([inputs[int(row)] for row in chosen]), len(inputs))
    if callable(inputs):
        return RowFunction(inputs, rows)
    raise TypeError(
        f"inputs: expected a tensor, an array, a torch data set or a function of row numbers, got "
        f"{type(inputs).__name__}"
    )


def _with_own_labels(pairs: Any) -> tuple[Any, Any]:
    """Inputs and labels of a torch data set of pairs."""
    if isinstance(pairs, Tensor) or not (hasattr(pairs, "__getitem__") and hasattr(pairs, "__len__")):
        raise ValueError(f"labels: got None, and a {type(pairs).__name__} has none; give them")
    labels = default_collate([pairs[row][1] for row in range(len(pairs))])
    return RowFunction(lambda rows: default_collate([pairs[int(row)][0] for row in rows]), len(pairs)), labels
