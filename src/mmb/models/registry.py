"""Networks by name: the options of each, and how it is built to fit a data set."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mmb._import_paths import from_import_path, import_path_hint, is_import_path
from mmb._names import nearest
from mmb._signatures import arguments_of, check_options, takes_any
from mmb.data.dataset import Dataset, FeatureEncoder
from mmb.data.inputs.graphs import GraphBatch
from mmb.models.multitask import MultiTask
from mmb.models.pretrained import load_weights

# Modules are imported when first used: some need an optional extra.
_BUILDERS = {
    "mlp": "mmb.models.multilayer_perceptron",
    "resnet18": "mmb.models.image_networks",
    "densenet121": "mmb.models.image_networks",
    "gin": "mmb.models.graph_isomorphism",
}
_BY_KIND = {"table": ("mlp",), "images": ("resnet18", "densenet121"), "graphs": ("gin",)}
START = {
    "weights": "File of weights to start from: safetensors or a state dict; its last layer may differ.",
    "sha256": "Checksum that the file of weights must have.",
}
"""Options that every network has, also those that do not read files themselves, with what they mean."""
FROM_DATA = frozenset({"num_tasks", "num_inputs", "channels", "hidden", "columns", "stem"})
"""Options that follow from the data set where they are not given."""
_SMALL_IMAGE = 64  # pixels up to which an image keeps its resolution in the stem


def available_networks() -> dict[str, str]:
    """Names of all networks, with the first line of the description of each."""
    return {name: inspect.cleandoc(builder(name).__doc__ or "").splitlines()[0] for name in _BUILDERS}


def builder(name: str) -> Callable[..., MultiTask]:
    """The function that builds a network, also by import path; its signature states its options."""
    if is_import_path(name):
        found: Callable[..., MultiTask] = from_import_path(name)
        return found
    if name not in _BUILDERS:
        raise ValueError(f"unknown network {name!r}{nearest(name, _BUILDERS)}{import_path_hint(name)}")
    return getattr(importlib.import_module(_BUILDERS[name]), name)


def network_options(name: str) -> dict[str, inspect.Parameter]:
    """Options of a network with types and defaults, including those that follow from the data set."""
    kind, text = inspect.Parameter.KEYWORD_ONLY, str | None
    start = {key: inspect.Parameter(key, kind, default=None, annotation=text) for key in START}
    return start | arguments_of(builder(name))


def complete(name: str, dataset: Dataset, **given: Any) -> dict[str, Any]:
    """The given options, and those that follow from a data set: number of tasks, width or channels, stem.

    Runs keep the result: `build(name, **options)` makes the same network again without the data set (with
    `weights=None` if trained weights are loaded next).
    """
    check_options(f"network {name!r}", builder(name), given, network_options(name))
    if is_import_path(name):
        return _known_sizes(name, dataset) | given
    kind, row = _kind(dataset)
    if name not in _BY_KIND[kind]:
        raise ValueError(
            f"network {name!r} does not fit data set {dataset.name!r}, whose inputs are {kind}; "
            f"networks for those are: {', '.join(_BY_KIND[kind])}"
        )
    found: dict[str, Any] = {"num_tasks": len(dataset.task_names)}
    if name == "mlp":
        found |= {"num_inputs": row.shape[1], "hidden": [256, 256]}
        if given.get("ranges") and isinstance(dataset.encoder, FeatureEncoder):
            found["columns"] = dataset.encoder.numeric_places
    elif kind == "images":
        found["channels"] = row.shape[1]
    if name == "resnet18":
        found["stem"] = "cifar" if max(row.shape[2:]) <= _SMALL_IMAGE else "imagenet"
    return found | given


def _known_sizes(name: str, dataset: Dataset) -> dict[str, Any]:
    """What a data set says about the arguments of a user's own network."""
    row = dataset.inputs[dataset.split["train"][:1]]
    sizes = {"num_tasks": len(dataset.task_names)}
    if isinstance(row, Tensor) and row.dim() == 2:
        sizes["num_inputs"] = row.shape[1]
    if isinstance(row, Tensor) and row.dim() == 4:
        sizes["channels"] = row.shape[1]
    known, any_will_do = network_options(name), takes_any(builder(name))
    return {key: size for key, size in sizes.items() if key in known or any_will_do}


def build(name: str, dataset: Dataset | None = None, seed: int | None = None, **given: Any) -> MultiTask:
    """Build a network.

    Args:
        name: Name of the network, or the import path `package.module:function` of your own function or class.
            Its arguments are the options; `num_tasks`, `num_inputs` (of a table) and `channels` (of images)
            follow from the data set.
        dataset: The data to train on: sizes that are not given follow from it.
        seed: Of the initial weights; torch's global generator stays unchanged. If None, the weights are drawn
            from the global generator.
        **given: Options of this network; see `network_options`. Every network has `weights`, a file to start
            from, and `sha256`, its checksum.

    Returns:
        The network, on the host.

    Raises:
        ValueError: If the network or an option is unknown, if an option is missing or wrong, or if the
            network does not fit the data set.
        ImportError: If an optional package is needed; the message names the extra.
    """
    check_options(f"network {name!r}", builder(name), given, network_options(name))
    if dataset is not None:
        given = complete(name, dataset, **given)
    for key, parameter in network_options(name).items():
        if parameter.default is parameter.empty and key not in given:
            raise ValueError(
                f"network {name!r} needs the option {key!r}; give it, or a data set to derive it from"
            )
    reads = "weights" in arguments_of(builder(name))  # files, by itself
    start = {} if reads else {key: given.pop(key) for key in START if key in given}
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        model = _checked(name, builder(name)(**given))
    if start.get("weights") is not None:
        load_weights(model, start["weights"], start.get("sha256"))
    return model


def _kind(dataset: Dataset) -> tuple[str, Any]:
    """Kind of a data set's inputs, and the input of one row."""
    row = dataset.inputs[dataset.split["train"][:1]]
    if isinstance(row, GraphBatch):
        return "graphs", row
    if isinstance(row, Tensor) and row.dim() in (2, 4):
        return ("table" if row.dim() == 2 else "images"), row
    shape = f"tensor of shape {list(row.shape)}" if isinstance(row, Tensor) else type(row).__name__
    raise ValueError(
        f"no network fits the inputs of data set {dataset.name!r}: one row is a {shape}. "
        "Pass your own torch.nn.Module instead of a name"
    )


def _checked(name: str, model: Any) -> Any:
    """What a builder returned, if it is a network that can be trained."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"network {name!r} returned a {type(model).__name__}: expected a torch.nn.Module, from inputs to "
            "logits [rows, tasks]"
        )
    if next(model.parameters(), None) is None:
        raise ValueError(
            f"network {name!r} is a {type(model).__name__} without parameters, so there is nothing to train: "
            "make its layers attributes that are torch.nn.Module, or keep them in a ModuleList or ModuleDict"
        )
    return model
