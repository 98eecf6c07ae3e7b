"""What is added to an error that a function of one block raises: what it was given, and what to change."""

from typing import Any

from mmb.trees import tensors, tree_map

_NAMES = {"upper": ("dual", "lower", "upper_batch"), "lower": ("lower", "lower_batch")}
_NOT_FOR_MANY = ("vmap", "functorch", "data pointer", "in-place")  # words of torch's messages


def note(name: str, error: Exception, given: tuple[Any, ...]) -> str:
    """A note for an error.

    Args:
        name: `upper` or `lower`.
        error: What was raised.
        given: The arguments of one block.
    """
    named = dict(zip(_NAMES[name], given[-len(_NAMES[name]) :], strict=True))
    shapes = tree_map(lambda leaf: None if leaf is None else tuple(leaf.shape), given[-1])
    return (
        f"This was raised in {name} of the problem. Its batch of one block has the shapes {shapes}: what was "
        f"given as {name}_batch, without the axis of blocks. {_advice(str(error), named)}"
    )


def _advice(message: str, given: dict[str, Any]) -> str:
    missing = [name for name, value in given.items() if value is None]
    if "NoneType" in message and missing:
        starts = [f"init takes {name}=..." for name in missing if name in ("dual", "lower")]
        return f"It was given None for {' and '.join(missing)}; {'; '.join(starts or ['pass a batch'])}"
    if any(word in message for word in _NOT_FOR_MANY):
        return (
            "It is evaluated for all blocks at once, so use functions of torch alone: torch.where in place "
            "of if, no .item(), float(), numpy or .backward(), and nothing in place"
        )
    if "dtype" in message or "scalar type" in message:
        return f"It was given {_listed(given, 'dtype')}; convert them to the dtype of x0"
    if "device" in message:
        return f"It was given {_listed(given, 'device')}; move them to the device of x0"
    return "If it expects another nesting, change one"


def _listed(given: dict[str, Any], attribute: str) -> str:
    found = {
        name: sorted({str(getattr(leaf, attribute)) for leaf in tensors(value)})
        for name, value in given.items()
    }
    return ", ".join(f"{name} of {' and '.join(kinds)}" for name, kinds in found.items() if kinds)
