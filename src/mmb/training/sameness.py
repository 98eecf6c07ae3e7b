"""Whether data and recipe are still what they were: facts that tell them apart, kept with checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmb.data import Dataset
from mmb.training.recipe import Recipe
from mmb.training.resolve import to_plain


def data_facts(dataset: Dataset) -> dict[str, str]:
    """Sizes, and fingerprints of all labels, of the split, and of features where that is cheap."""
    facts = {
        "the number of rows": str(len(dataset)),
        "the tasks": repr(dataset.task_names),
        "the labels": fingerprint([dataset.labels]),
        "the split": fingerprint([dataset.split[part] for part in sorted(dataset.split)]),
    }
    if dataset.encoder is not None:  # has what was learned from the training rows: means, spreads, categories
        learned = json.dumps(dataset.encoder.to_json(), sort_keys=True).encode()
        facts["the features"] = fingerprint([torch.frombuffer(bytearray(learned), dtype=torch.uint8)])
    elif isinstance(dataset.inputs, Tensor):
        facts["the features"] = fingerprint([dataset.inputs])
    return facts


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """What is said of data that is no longer what it was; None if it is."""
    found = difference(before, now)
    return found and (
        f"the data has changed since the run was trained: {found}; "
        "rows it was trained on may be among those it is judged on"
    )


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The first fact that is another one now; None if all that were known are the same."""
    for key, value in now.items():
        if before.get(key, value) != value:
            return f"{key}: {before[key]} then, {value} now"
    return None


def recipe_facts(recipe: Recipe) -> dict[str, str]:
    """What must not change between checkpoints: all that a step depends on, but not how many there are."""
    facts = flat(to_plain(recipe))
    sections = ("method", "model.", "objective.", "sampler.", "optimizer.", "schedule.", "seed")
    kept = (*sections, "training.precision", "training.batch_norm")
    return {key: value for key, value in facts.items() if key.startswith(kept)}


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Values as text, by keys joined with dots."""
    found: dict[str, str] = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: repr(value)}
    return found


def fingerprint(values: Sequence[Tensor]) -> str:
    """A short text that differs where tensors differ."""
    digest = hashlib.sha256()
    for value in values:
        value = value.detach().cpu().contiguous()
        digest.update(repr((value.dtype, tuple(value.shape))).encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
