"""A data set from what a user has in memory: tensors, arrays, a torch data set, or a function of rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset, default_collate

from mmb.data.dataset import Dataset, Encoder, Inputs
from mmb.data.splits import stratified_split
from mmb.label_values import as_labels, rarest_positive
from mmb.trees import map_tensors

_HOST = torch.device("cpu")
_LOOKED_AT = 16  # items of a torch data set, for labels among them


def make_dataset(
    inputs: Any,
    labels: Any = None,
    *,
    split: Mapping[str, Any] | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    task_names: Sequence[str] | None = None,
    name: str = "own",
    encoder: Encoder | None = None,
) -> Dataset:
    """Make a data set, for `mmb.training.fit` or for your own function that a recipe names.

    Args:
        inputs: What the model takes, a row for each label: a tensor, array or data frame `[n, ...]`, or a
            dict of these; a list of rows of numbers; a torch data set, whose items are inputs or pairs of
            inputs and labels; or a function from row numbers (a LongTensor) to the model's input of these
            rows, which may be any nest of tensors or arrays. Numbers in float64 become torch's default dtype.
        labels: `[n, m]`, or `[n]` for one task: 0, 1, or missing (NaN in floating point, -1 in integers).
            None if the items of a torch data set have them.
        split: Row numbers of `"train"`, `"valid"` and `"test"`, or masks. By default rows are split at
            random, those with positives of a task evenly, the rarest task first.
        fractions: Of train, valid and test, if there is no split.
        seed: Of that split.
        task_names: Names of the tasks; by default numbers.
        name: Name of the data set.
        encoder: How new files become inputs of the same kind, for `mmb predict`.

    Raises:
        TypeError: If inputs are none of these, or labels no numbers.
        ValueError: If numbers of rows, labels or the split do not fit.
    """
    if isinstance(inputs, DataLoader):
        raise TypeError("inputs: got a DataLoader, whose rows have no numbers: give its data set, .dataset")
    if isinstance(inputs, IterableDataset):
        raise TypeError(
            "inputs: got an IterableDataset, whose rows have no numbers: give one with __getitem__"
        )
    if labels is None:
        inputs, labels = _with_own_labels(inputs)
    matrix = as_labels(_as_tensor(labels, "labels"))
    found = _as_inputs(inputs, matrix)
    if len(found) != len(matrix):
        raise ValueError(f"labels: expected one for each of the {len(found)} rows, got {len(matrix)}")
    if split is None:
        generator = torch.Generator().manual_seed(seed)
        parts = stratified_split(rarest_positive(matrix), fractions, generator)
    else:
        parts = {part: _row_numbers(rows, len(matrix), f"split[{part!r}]") for part, rows in split.items()}
        _check_divided(parts)
    names = tuple(map(str, range(matrix.shape[1]) if task_names is None else task_names))
    if len(names) != matrix.shape[1]:
        raise ValueError(f"task_names: expected one for each of {matrix.shape[1]} tasks, got {len(names)}")
    return Dataset(name, found, matrix, parts, names, encoder)


@dataclass(frozen=True)
class NamedRows:
    """Inputs of several tensors, each with a name."""

    parts: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, rows: Tensor) -> dict[str, Tensor]:
        """The rows of each tensor, on its device."""
        return {key: part[rows.to(part.device, non_blocking=True)] for key, part in self.parts.items()}

    def to(self, device: torch.device) -> Self:
        """The same rows on another device."""
        return type(self)({key: part.to(device) for key, part in self.parts.items()})


class RowFunction:
    """Inputs that a function makes from row numbers; it is called on the host."""

    def __init__(self, function: Callable[[Tensor], Any], length: int, device: torch.device = _HOST) -> None:
        self._function, self._length, self._device = function, length, device

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: Tensor) -> Any:
        """The model input of some rows, on the device."""
        found = pytree.tree_map(_array_as_tensor, self._function(rows.cpu()))
        return map_tensors(lambda leaf: _without_double(leaf).to(self._device), found)

    def to(self, device: torch.device) -> Self:
        """The same rows for another device."""
        return type(self)(self._function, self._length, device)


def _check_divided(parts: Mapping[str, Tensor]) -> None:
    """Refuse a row that is in two parts, or in one twice."""
    rows, counts = torch.unique(torch.cat([own.flatten() for own in parts.values()]), return_counts=True)
    if bool((counts > 1).any()):
        row = int(rows[counts > 1][0])
        places = [part for part, own in parts.items() for _ in range(min(2, int((own == row).sum())))]
        raise ValueError(f"split: row {row} is in {' and in '.join(places)}: expected each row at most once")


def _row_numbers(rows: Any, count: int, what: str) -> Tensor:
    """Row numbers, int64, from numbers of any kind or from a mask of all rows."""
    found = _as_tensor(rows, what)
    if found.dtype == torch.bool:
        if found.shape != (count,):
            raise ValueError(f"{what}: expected a mask of {count} rows, got one of {list(found.shape)}")
        return found.nonzero().flatten()
    if found.is_floating_point() and not bool((found == found.round()).all()):
        raise ValueError(f"{what}: expected row numbers, got {float(found[found != found.round()][0]):g}")
    return found.to(torch.int64)


def _as_inputs(inputs: Any, labels: Tensor) -> Inputs:
    if isinstance(inputs, RowFunction):
        return inputs
    if isinstance(inputs, Mapping):
        parts = {key: _as_tensor(part, f"inputs[{key!r}]") for key, part in inputs.items()}
        sizes = {key: len(part) for key, part in parts.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"inputs: expected as many rows in each part, got {sizes}")
        return NamedRows({key: _without_double(part) for key, part in parts.items()})
    if isinstance(inputs, Tensor) or hasattr(inputs, "__array__") or _is_table(inputs):
        return _without_double(_as_tensor(inputs, "inputs"))
    if hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__"):  # a torch data set
        _check_items(inputs, labels)
        return RowFunction(lambda chosen: _collated([inputs[int(row)] for row in chosen]), len(inputs))
    if callable(inputs):
        return RowFunction(inputs, len(labels))
    raise TypeError(
        f"inputs: expected a tensor, an array, a torch data set or a function of row numbers, got "
        f"{type(inputs).__name__}"
    )


def _collated(items: list[Any]) -> Any:
    """Items as one batch; items of one part, as those of a `TensorDataset` of inputs alone, as that part."""
    found = default_collate(items)
    return found[0] if isinstance(items[0], tuple) and len(items[0]) == 1 else found


def _as_tensor(values: Any, what: str) -> Tensor:
    """Numbers of any kind (a tensor, an array, a data frame, nested lists) as a tensor."""
    try:
        return torch.as_tensor(_array_as_tensor(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{what}: expected numbers in rows of one length, got a {type(values).__name__} that is no "
            f"tensor: {str(error).splitlines()[0]}"
        ) from error


def _array_as_tensor(value: Any) -> Any:
    """The tensor of an array or data frame; anything else as it is."""
    if isinstance(value, Tensor) or not hasattr(value, "__array__"):
        return value
    array = value.__array__()
    lies_as_torch_wants = array.flags.writeable and all(step >= 0 for step in array.strides)
    return torch.as_tensor(array if lies_as_torch_wants else array.copy())


def _without_double(values: Tensor) -> Tensor:
    return values.to(torch.get_default_dtype()) if values.dtype == torch.float64 else values


def _is_table(values: Any) -> bool:
    """Whether values are a list of lists of numbers."""
    if not isinstance(values, list | tuple) or not values:
        return False
    return all(isinstance(row, list | tuple) and all(isinstance(one, Real) for one in row) for row in values)


def _check_items(items: Any, labels: Tensor) -> None:
    """Refuse a torch data set of pairs of inputs and labels where labels are given as well."""
    for row in range(min(len(items), len(labels), _LOOKED_AT)):
        item = items[row]
        if (
            not isinstance(item, list | tuple)
            or len(item) != 2
            or not _could_be_labels(item[1], labels.shape[1])
        ):
            return
    if len(items):
        raise ValueError(
            "labels: got some, and items of inputs are pairs whose second part looks like labels, too: leave "
            "out `labels`, or give a data set of inputs alone; if a pair is an input, give a function of row "
            "numbers instead"
        )


def _could_be_labels(part: Any, tasks: int) -> bool:
    found = _array_as_tensor(part)
    try:
        return as_labels(torch.as_tensor(found).reshape(1, -1)).shape[1] == tasks
    except (TypeError, ValueError, RuntimeError):
        return False


def _with_own_labels(pairs: Any) -> tuple[Any, Any]:
    """Inputs and labels of a torch data set of pairs."""
    has_items = hasattr(pairs, "__getitem__") and hasattr(pairs, "__len__") and len(pairs)
    if isinstance(pairs, Tensor | Mapping) or hasattr(pairs, "__array__") or not has_items:
        raise ValueError(f"labels: got None, and a {type(pairs).__name__} has none; give them")
    first = pairs[0]
    if not isinstance(first, list | tuple) or len(first) != 2:
        raise ValueError(
            f"labels: got None, so items of inputs must be pairs of inputs and labels, got a "
            f"{type(first).__name__}; give labels"
        )
    labels = torch.stack([_as_tensor(pairs[row][1], "labels") for row in range(len(pairs))])
    return RowFunction(lambda rows: default_collate([pairs[int(row)][0] for row in rows]), len(pairs)), labels
