"""Weights from a local file, read without running code: in torchvision's names, or in a network's own."""

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmb._extras import require
from mmb._names import first_few

_COUNTER = "num_batches_tracked"  # of batch norm; absent from torchvision's older files
_ENCODER = "encoder."  # begins the names of a network's encoder


def load_pretrained(
    encoder: nn.Module,
    path: Path | str,
    rename: Callable[[str], str],
    classifier: str,
    sha256: str | None = None,
) -> None:
    """Copy the weights of a file into an encoder.

    Every tensor of the encoder must be in the file and vice versa, except for the classifier of the file,
    which is left out, and for batch norm's step counters, which older files do not have. The file may also be
    of a whole network of this package, whose heads are left out.

    Args:
        encoder: The network, without a classifier; changed in place, or not at all if something is wrong.
        path: A state dict with torchvision's names: written by `torch.save`, or `.safetensors`.
        rename: From a name in the file to the encoder's name for the same tensor.
        classifier: Name of the file's last layer.
        sha256: The checksum that the file must have; None does not look.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has another checksum, cannot be read safely, or holds other tensors than the
            network; the message names them.
        ImportError: If a `.safetensors` file is given and that package is not installed.
    """
    path = Path(path)
    own, found = encoder.state_dict(), read_weights(path, sha256)
    if all(f"{_ENCODER}{name}" in found for name in own):
        found = {k.removeprefix(_ENCODER): one for k, one in found.items() if k.startswith(_ENCODER)}
    given = {rename(name): one for name, one in found.items() if not name.startswith(f"{classifier}.")}
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
            "network with torchvision's names, for the same stem (an option of resnet18) and number of input "
            f"channels{_prefix_hint(given, own)}"
        )
    encoder.load_state_dict(own | given)


def load_weights(model: nn.Module, path: Path | str, sha256: str | None = None) -> list[str]:
    """Start a network from the weights in a file; its last layer may be for other tasks, and stays as it is.

    Every other tensor of the network must be in the file, by its name, or by its name in the part `encoder`.
    The file may have more.

    Args:
        model: Changed in place, or not at all if something is wrong.
        path: A state dict: written by `torch.save`, or `.safetensors`.
        sha256: The checksum that the file must have; None does not look.

    Returns:
        Names of the tensors that stay as they are.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has another checksum, cannot be read safely, or lacks tensors of the network;
            the message names them.
    """
    path = Path(path)
    given, own = read_weights(path, sha256), model.state_dict()
    hint = _prefix_hint(given, [*own, *(name.removeprefix(_ENCODER) for name in own)])
    if own.keys().isdisjoint(given):
        given = {f"{_ENCODER}{name}": tensor for name, tensor in given.items()}
    fits = [name for name in own if name in given and given[name].shape == own[name].shape]
    others = [name for name in own if name not in fits and not name.endswith(_COUNTER)]
    is_one_layer = len({name.rpartition(".")[0] for name in others}) <= 1
    # the same layer for another number of tasks
    alike = all(given[name].shape[1:] == own[name].shape[1:] for name in others if name in given)
    if not fits or not is_one_layer or not alike or not _may_lack(others, given, own):
        listed = [f"{name} {list(own[name].shape)}" for name in others]
        raise ValueError(
            f"the weights in {path} do not fit this network, of which only the last layer may differ: "
            f"{first_few(listed, 8)} are not in the file, or have another shape there. Give weights of the "
            f"same network, or of its part `encoder`{hint}"
        )
    model.load_state_dict({**own, **{name: given[name] for name in fits}})
    return others


def _may_lack(others: list[str], given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> bool:
    """Whether the tensors of the one layer that does not fit are of the last layer, as far as can be seen."""
    if any(name.startswith(_ENCODER) for name in own):
        return not any(name.startswith(_ENCODER) for name in others)
    last = [*own][-1].rpartition(".")[0]
    return all(name in given or name.rpartition(".")[0] == last for name in others)


def read_weights(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors of a state dict by name, on the host; nothing in the file is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"no file of weights at {path.absolute()}; give the path of one")
    if sha256 is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256.lower():
            raise ValueError(
                f"sha256: {path} has the checksum {found}, expected {sha256}; get the file again, or correct "
                "the checksum if the file is the right one"
            )
    content, cause = None, None
    try:
        content = _load(path)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        cause = error
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f"{path} is not a state dict of tensors only{_inner_dict(content)}. Give one written with "
            "torch.save(model.state_dict(), path) or with safetensors"
        ) from cause
    return {str(name): tensor for name, tensor in content.items()}


def _inner_dict(content: Any) -> str:
    """A part of a message: which entry of a checkpoint has a state dict, if one has."""
    parts = content.items() if isinstance(content, Mapping) else ()
    for name, part in parts:
        if isinstance(part, Mapping) and part and all(isinstance(one, Tensor) for one in part.values()):
            return f", but its entry {name!r} is one: write that alone to a file"
    return ""


def _prefix_hint(given: Iterable[str], own: Iterable[str]) -> str:
    """The end of a message: what most names in a file have in front of a network's own ones, if anything."""
    known = set(own)
    found = Counter(
        name[:start]
        for name in given
        if name not in known
        for start in (place + 1 for place, sign in enumerate(name) if sign == ".")
        if name[start:] in known
    )
    if not found:
        return ""
    prefix, count = found.most_common(1)[0]
    return f"; {count} names in the file begin with {prefix!r}: write it again without that"


def _load(path: Path) -> Any:
    """The content of a file written by `torch.save` or, with the suffix `.safetensors`, by safetensors."""
    if path.suffix != ".safetensors":
        return torch.load(path, map_location="cpu", weights_only=True)
    try:
        return require("safetensors.torch", extra="training").load_file(path)
    except require("safetensors", extra="training").SafetensorError as error:
        raise ValueError(str(error)) from error
