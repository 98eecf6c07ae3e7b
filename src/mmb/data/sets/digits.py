"""Handwritten digits made imbalanced: ten one-vs-rest tasks whose training positives are mostly unlabeled.

1,797 images of 8 x 8 pixels that come with scikit-learn (the test part of UCI "Optical Recognition of
Handwritten Digits", Alpaydin and Kaynak, CC BY 4.0), so nothing is downloaded. Pixels are scaled to [0, 1].
Every row is positive for exactly one of the ten tasks, so dropping rows could not make all tasks rare;
instead only some training positives of a task stay labeled and the others become gaps. Validation and test
rows keep all labels: AUC does not depend on the class ratio, and more positives estimate it better. Split by
class and seed (60 / 20 / 20).
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from mmb._extras import require
from mmb.data.dataset import Dataset
from mmb.data.inputs.columns import plain_columns
from mmb.data.splits import stratified_split
from mmb.label_values import MISSING


def load(
    root: Path | None = None,
    *,
    keep_positives: float = 0.2,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
) -> Dataset:
    """Load the digits; inputs are float `[1797, 64]` in [0, 1].

    Args:
        root: Not used: the images come with scikit-learn.
        keep_positives: Share of each task's training positives that stay labeled; with 0.2 about 22 of
            1,078 training rows of a task are positive. 1 keeps all.
        fractions: Of train, valid and test.
        seed: Seed of the split and of which positives stay.
    """
    if not 0 < keep_positives <= 1:
        raise ValueError(f"keep_positives must be in (0, 1], got {keep_positives}")
    bunch = require("sklearn.datasets", extra="training").load_digits()
    digit = torch.as_tensor(bunch.target, dtype=torch.int64)
    generator = torch.Generator().manual_seed(seed)
    split = stratified_split(digit, fractions, generator)
    labels = torch.nn.functional.one_hot(digit, 10).to(torch.int8)
    train = split["train"]
    # The same rule that splits by class also picks, class by class, which positives stay labeled.
    dropped = stratified_split(digit[train], (keep_positives, 1 - keep_positives, 0), generator)["valid"]
    labels[train[dropped], digit[train[dropped]]] = MISSING
    return Dataset(
        name="digits",
        inputs=torch.as_tensor(bunch.data, dtype=torch.float32) / 16,
        labels=labels,
        split=split,
        task_names=tuple(str(d) for d in range(10)),
        encoder=plain_columns([f"pixel_{r}_{c}" for r in range(8) for c in range(8)], scale=16.0),
        details={"keep_positives": keep_positives, "seed": seed},
    )
