"""The average of state dicts."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Name = int | str
"""The key of a model in a mapping, or its place in a sequence."""
State = Mapping[str, Any]

_COUNTER = "num_batches_tracked"


def average(states: Sequence[State], weights: Sequence[float] | None = None) -> dict[str, Any]:
    """Average state dicts, as `uniform` does, but without any check of where they come from.

    Args:
        states: State dicts with the same names and shapes.
        weights: Share of each, in proportion; equal by default.

    Returns:
        A new state dict.

    Raises:
        ValueError: As `uniform`, as far as names, shapes, whole numbers and shares are concerned.
    """
    check_same_entries(dict(enumerate(states)))
    shares = list(shares_of(weights, range(len(states))).values())
    return {name: _average_entry(name, [state[name] for state in states], shares) for name in states[0]}


def check_same_entries(states: Mapping[Any, State]) -> None:
    """All states have the same entries, of the same shapes and kinds."""
    if not states:
        raise ValueError("states: got none, expected at least one")
    (first, reference), *others = states.items()
    for entry, value in reference.items():
        if nn.parameter.is_lazy(value):
            raise ValueError(f"models: {entry!r} of {first!r} has no shape yet; call the model once first")
    for name, state in others:
        if state.keys() != reference.keys():
            differing = sorted(state.keys() ^ reference.keys())
            raise ValueError(
                f"models: {len(differing)} entries, such as {', '.join(differing[:3])}, are in only one of "
                f"{name!r} and {first!r}; expected the same in all models"
            )
        for entry, value in state.items():
            ours, theirs = _shape(value), _shape(reference[entry])
            if ours != theirs:
                raise ValueError(
                    f"models: {entry!r} is {ours} in {name!r} but {theirs} in {first!r}; expected the same"
                )


def _shape(value: Any) -> str:
    """What must agree: shape and kind of numbers of a tensor, or the type of anything else."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    averaged = value.is_floating_point() or value.is_complex()
    return f"{'float' if averaged else value.dtype} {list(value.shape)}"


def shares_of(
    weights: Sequence[float] | Mapping[str, float] | None, names: Iterable[Name]
) -> dict[Name, float]:
    """Shares by name that sum to one."""
    names = list(names)
    if weights is None:
        return dict.fromkeys(names, 1 / len(names))
    given: dict[Any, float] = dict(
        weights if isinstance(weights, Mapping) else zip(names, weights, strict=False)
    )
    if given.keys() != set(names) or len(weights) != len(names):
        raise ValueError(f"weights: expected one for each of {names}, got {weights!r}")
    total = math.fsum(given.values())
    if not all(0 <= share < math.inf for share in given.values()) or total == 0:
        raise ValueError(f"weights: expected numbers of at least 0, not all 0, got {weights!r}")
    return {name: given[name] / total for name in names}


@torch.no_grad()
def _average_entry(name: str, values: Sequence[Any], shares: Sequence[float]) -> Any:
    """The average of one entry of the state."""
    first = values[0]
    if all_equal(values):
        return first.clone() if isinstance(first, Tensor) else copy.deepcopy(first)
    if not isinstance(first, Tensor):
        raise ValueError(f"models: {name!r} is not a tensor and differs between models; expected the same")
    if not (first.is_floating_point() or first.is_complex()):
        if name.rpartition(".")[2] == _COUNTER:
            return torch.stack([value.to(first.device) for value in values]).amax(0)
        raise ValueError(f"models: the whole numbers in {name!r} differ between models; expected the same")
    exact = torch.promote_types(first.dtype, torch.float32)
    base = first.to(exact)
    total = torch.zeros_like(base)
    for value, share in zip(values[1:], shares[1:], strict=True):
        total += share * (value.to(base) - base)  # differences are small, so the sum loses nothing
    return (base + total).to(first.dtype)


def all_equal(values: Sequence[Any]) -> bool:
    """Whether entries of several states are the same, on whatever device."""
    first = values[0]
    if isinstance(first, Tensor):
        return all(value.dtype == first.dtype and torch.equal(value.to(first), first) for value in values[1:])
    return all(bool(value == first) for value in values[1:])
