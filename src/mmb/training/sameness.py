"""Whether data is still what it was: facts that tell one data set from another, kept with checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mmb.data import Dataset


def data_facts(dataset: Dataset) -> dict[str, str]:
    """Sizes, and fingerprints of all labels and of the split."""
    return {
        "the number of rows": str(len(dataset)),
        "the tasks": repr(dataset.task_names),
        "the labels": fingerprint([dataset.labels]),
        "the split": fingerprint([dataset.split[part] for part in sorted(dataset.split)]),
    }


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """What is said of data that is no longer what it was; None if it is."""
    for key, value in now.items():
        if before.get(key, value) != value:
            return (
                f"the data has changed since the run was trained: {key}: {before[key]} then, {value} now; "
                f"rows it was trained on may be among those it is judged on"
            )
    return None


def fingerprint(values: Sequence[Tensor]) -> str:
    """A short text that differs where tensors differ."""
    digest = hashlib.sha256()
    for value in values:
        value = value.detach().cpu().contiguous()
        digest.update(repr((value.dtype, tuple(value.shape))).encode())
        digest.update(value.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
