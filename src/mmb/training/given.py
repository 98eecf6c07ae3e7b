"""Training of a network and a data set that are given as objects, not by name."""

import copy
import hashlib
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from torch import nn

from mmb.auc import Objective
from mmb.data import Dataset
from mmb.training.loop.loop import train
from mmb.training.loop.observer import Observer
from mmb.training.recipes.resolution import resolve
from mmb.training.runs import checkpoint
from mmb.training.runs.fingerprints import data_facts
from mmb.training.runs.run import Run

_MODELS: WeakValueDictionary[str, nn.Module] = WeakValueDictionary()
_DATASETS: WeakValueDictionary[str, Dataset] = WeakValueDictionary()


def fit(
    model: nn.Module,
    dataset: Dataset,
    method: str | type[Objective] = "soup",
    *,
    folder: Path | str | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    **sections: Any,
) -> dict[str, Any]:
    """Train a network on a data set as `mmb train` does; it ends with the selected weights.

    If training is interrupted, the same call with the same folder continues it. While the network and the
    data set exist, the run in the folder can be evaluated, reported and exported.

    Args:
        model: Any module from inputs to logits `[n, m]`. It starts from the weights that it has.
        dataset: The data, such as from [`make_dataset`][mmb.data.make_dataset].
        method: What to train for: a name, or your own objective, as its class or its import path.
        folder: Folder of the run; by default a temporary one, which is removed at the end.
        seed: The one seed that all randomness in training comes from.
        observer: Follows the training.
        **sections: Other sections of the recipe, such as `training={"epochs": 10}` or
            `optimizer={"lr": 1e-4}`.

    Returns:
        The result, as in `result.json`.

    Raises:
        TypeError: If `model` is not a module, `dataset` not a data set, or `method` an object.
        ValueError: If no parameter of `model` can be trained.
        RecipeError: If a key or a value of the recipe is wrong.
        RunError: If the folder has a run of another recipe, network or data set.
        TrainingError: If the loss or a score is not finite.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset: expected an mmb.data.Dataset, got {type(dataset).__name__}; "
            "use mmb.data.make_dataset(inputs, labels)"
        )
    if not isinstance(method, str | type):
        raise TypeError(
            "method: expected a name or a class, got an object: give its class, "
            f"{type(method).__name__}, and its options as objective={{...}}"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "model: all of its parameters are frozen (requires_grad is False): nothing is trained"
        )
    if isinstance(method, type):
        method = f"{method.__module__}:{method.__qualname__}"
    key = _key(model, dataset)
    _MODELS[key], _DATASETS[key] = model, dataset
    parts = {name: {"name": f"{__name__}:{name}", "key": key} for name in ("data", "model")}
    training = {"tensorboard": False, **sections.pop("training", {})}
    recipe = resolve({"method": method, **parts, "seed": seed, **sections, "training": training})
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
        run = Run.find(Path(place), recipe)
        result = train(run, observer)
        weights = checkpoint.load_selected(run.best_checkpoint())["job"]["model"]
    model.load_state_dict(weights)
    return result


def data(key: str) -> Dataset:
    """The data set that `fit` was given.

    Args:
        key: Which one.
    """
    if key not in _DATASETS:
        raise ValueError(f"the data set was given to mmb.training.fit as an object, which is gone: {_AGAIN}")
    return _DATASETS[key]


def model(key: str) -> nn.Module:
    """A copy of the network that `fit` was given.

    Args:
        key: Which one.
    """
    if key not in _MODELS:
        raise ValueError(f"the network was given to mmb.training.fit as an object, which is gone: {_AGAIN}")
    return copy.deepcopy(_MODELS[key])


_AGAIN = "call fit again with the same network, data set and folder"


def _key(model: nn.Module, dataset: Dataset) -> str:
    """A text that differs between networks of different shapes, and between data sets."""
    shapes = [(name, tuple(value.shape)) for name, value in model.state_dict().items()]
    facts = repr((type(model).__qualname__, shapes, sorted(data_facts(dataset).items())))
    return hashlib.sha256(facts.encode()).hexdigest()[:16]
