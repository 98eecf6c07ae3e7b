"""What a network returns, as logits: of a tensor, a tuple, a mapping, or an object with `.logits`."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def logits_of(output: Any) -> Tensor:
    """The logits in the output of a network.

    They are the output itself; its attribute or entry `logits`, as in Hugging Face's networks; or the first
    of several outputs.

    Raises:
        TypeError: If there are none; the message says what to return.
    """
    found = output
    if not isinstance(output, Tensor):
        if isinstance(output, Mapping) and "logits" in output:
            found = output["logits"]
        elif hasattr(output, "logits"):
            found = output.logits
        elif isinstance(output, tuple | list) and output:
            found = output[0]
            if isinstance(found, Tensor) and found.dim() == 0:  # a loss
                raise TypeError(
                    f"the model returned a {type(output).__name__} whose first part is a single number, such "
                    "as a loss: return the logits [rows, tasks] first, as in (logits, loss), or alone"
                )
    if not isinstance(found, Tensor):
        raise TypeError(
            f"the model returned a {type(output).__name__} without logits: return a tensor [rows, tasks], an "
            "object or a dict with `logits`, or a tuple whose first part is such a tensor"
        )
    return found
