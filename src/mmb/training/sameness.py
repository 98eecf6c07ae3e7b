"""Whether data and recipe are still what they were: facts that tell them apart, kept with checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from mmb.data import Dataset
from mmb.training.recipe import Recipe


def data_facts(dataset: Dataset) -> dict[str, str]:
    """Sizes, and fingerprints of all labels, of the split, and of features where that is cheap."""
    facts = {
        "the number of rows": str(len(dataset)),
        "the tasks": repr(dataset.task_names),
        "the labels": fingerprint([dataset.labels]),
        "the split": fingerprint([dataset.split[part] for part in sorted(dataset.split)]),
    }
    if dataset.encoder is not None:  # has what was learned from the training rows: means, spreads, categories
        facts["the features"] = _digest(json.dumps(dataset.encoder.to_json(), sort_keys=True).encode())
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
    """The keys of a recipe that checkpoints depend on; how long to train and what to log are none of them."""
    kept = ("method", "model", "objective", "sampler", "optimizer", "schedule", "seed")
    return flat({key: value for key, value in asdict(recipe).items() if key in kept})


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Values as text, by keys joined with dots."""
    found: dict[str, str] = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: repr(value)}
    return found


def fingerprint(values: Sequence[Tensor]) -> str:
    """A short text that differs where tensors differ."""
    plain = [value.detach().cpu().contiguous() for value in values]
    return _digest(
        *(
            part
            for value in plain
            for part in (
                repr((value.dtype, tuple(value.shape))).encode(),
                value.flatten().view(torch.uint8).numpy().tobytes(),
            )
        )
    )


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]
