"""Loading an encoder's weights from a local file with torchvision's names."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmb._extras import require
from mmb._names import first_few

_COUNTER = "num_batches_tracked"  # of batch norm; absent from torchvision's older files


def load_pretrained(
    encoder: nn.Module, path: Path | str, rename: Callable[[str], str], classifier: str
) -> None:
    """Copy the weights of a file into an encoder.

    Every tensor of the encoder must be in the file and vice versa, except for the classifier of the file,
    which is left out, and for batch norm's step counters, which older files do not have.

    Args:
        encoder: The network, without a classifier; changed in place, or not at all if something is wrong.
        path: A state dict with torchvision's names: written by `torch.save`, or `.safetensors`.
        rename: From a name in the file to the encoder's name for the same tensor.
        classifier: Name of the file's last layer.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file cannot be read safely, or holds other tensors than the network; the message
            names them.
        ImportError: If a `.safetensors` file is given and that package is not installed.
    """
    path = Path(path)
    own = encoder.state_dict()
    given = {
        rename(name): tensor
        for name, tensor in read_weights(path).items()
        if not name.startswith(f"{classifier}.")
    }
    misfits = {
        "missing from the file": [name for name in own if name not in given and not name.endswith(_COUNTER)],
        "unexpected in the file": [name for name in given if name not in own],
        "of another shape": [
            f"{name} is {list(given[name].shape)} in the file and {list(own[name].shape)} in the network"
            for name in own
            if name in given and given[name].shape != own[name].shape
        ],
    }
    problems = [f"{what}: {first_few(names, 8)}" for what, names in misfits.items() if names]
    if problems:
        raise ValueError(
            f"the weights in {path} do not fit this network. {'; '.join(problems)}. Give weights of the same "
            "network with torchvision's names, for the same stem and number of input channels"
        )
    encoder.load_state_dict(own | given)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict by name, on the host; nothing in the file is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"no file of weights at {path.absolute()}; give the path of one")
    content, cause = None, None
    try:
        content = _load(path)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        cause = error
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f"{path} is not a state dict of tensors only. Give one written with "
            "torch.save(model.state_dict(), path) or with safetensors"
        ) from cause
    return {str(name): tensor for name, tensor in content.items()}


def _load(path: Path) -> Any:
    """The content of a file written by `torch.save` or, with the suffix `.safetensors`, by safetensors."""
    if path.suffix != ".safetensors":
        return torch.load(path, map_location="cpu", weights_only=True)
    try:
        return require("safetensors.torch", extra="training").load_file(path)
    except require("safetensors", extra="training").SafetensorError as error:
        raise ValueError(str(error)) from error
