"""Facts about data and recipe, kept with checkpoints: whether they are still the same."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmb.data import Dataset
from mmb.training.recipes.nested import flatten
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import to_plain
from mmb.trees import tensors


def data_facts(dataset: Dataset) -> dict[str, str]:
    """Sizes, and fingerprints of labels, split and inputs; of images on disk, of what stands for them."""
    identity = getattr(dataset.inputs, "identity", [])
    facts = {
        "the number of rows": str(len(dataset)),
        "the tasks": repr(dataset.task_names),
        "the labels": fingerprint([dataset.labels]),
        "the split": fingerprint([dataset.split[part] for part in sorted(dataset.split)]),
        "the inputs": fingerprint([*tensors(dataset.inputs), as_bytes(identity)]),
    }
    if dataset.encoder is not None:  # it learns means, spreads and categories from the training rows
        facts["the features"] = fingerprint([as_bytes(dataset.encoder.to_json())])
    return facts


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """A message about data that has changed; None if it is the same."""
    found = first_change(before, now)
    return found and (
        f"the data has changed since the run was trained: {found}; "
        "some training rows may now be among the validation or test rows"
    )


def first_change(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The first fact that has changed; None if all known facts are the same."""
    for key, value in now.items():
        if before.get(key, value) != value:
            return f"{key}: {before[key]} then, {value} now"
    return None


def recipe_facts(recipe: Recipe) -> dict[str, str]:
    """Settings that must not change between checkpoints: of a step, not of the device or the number of steps.

    Options of the data are left out, except for augmentation: `data_facts` are about the loaded data.
    """
    facts = flatten(to_plain(recipe))
    sections = ("method", "model.", "objective.", "sampler.", "optimizer.", "schedule.", "seed")
    chosen_by = ("training.select", "training.max_fpr")  # a best value of another metric says nothing
    kept = (*sections, *chosen_by, "data.augment", "training.precision", "training.batch_norm")
    return {key: repr(value) for key, value in facts.items() if key.startswith(kept)}


def as_bytes(plain: Any) -> Tensor:
    """Plain JSON as bytes."""
    return torch.frombuffer(bytearray(json.dumps(plain, sort_keys=True).encode()), dtype=torch.uint8)


def fingerprint(values: Sequence[Tensor]) -> str:
    """A short text that differs where tensors differ."""
    digest = hashlib.sha256()
    for value in values:
        value = value.detach().cpu().contiguous()
        digest.update(repr((value.dtype, tuple(value.shape))).encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
