"""How long to train and what batches to draw, by the size of the data and the rarity of its positives.

The rule, for data sets without presets of their own:

- `sampler.batch_size` is 128, 256 beyond 50,000 training rows, 512 beyond 200,000, 1024 beyond 800,000.
- `training.epochs` is 30, but at least as many as make 1,500 steps (300 for fingerprints of molecules, which
  overfit sooner), and at most as many as make 30,000.
- `training.evaluate_every` is a thirtieth of those fewest steps where an epoch has fewer.
- `sampler.rich_fraction` is 0.5 if a uniform batch has fewer than two positives of the median task, else 0.
- `data.split` is `stratified` if a random split leaves a part without positives or negatives of a task that a
  stratified one would have; to have them to train on matters most.

`benchmarks/adapted.py` measures it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from mmb._names import OWN_DATA
from mmb.data import Dataset
from mmb.training.recipes.components import load_data
from mmb.training.recipes.nested import Fragment, flatten, nest
from mmb.training.recipes.resolution import resolve

_BATCH, _LARGEST_BATCH, _MANY_ROWS = 128, 1024, 50_000
_EPOCHS, _MOST_STEPS = 30, 30_000
_FEWEST_STEPS, _FEWEST_OF_FINGERPRINTS = 1500, 300
_FEWEST_EVALUATIONS = 30
_FEW_POSITIVES, _RICH = 2.0, 0.5


def adapted(
    fragment: Fragment, keep_batch: bool = False, seen: Callable[[Dataset], None] | None = None
) -> Fragment:
    """What the rule adds to a fragment whose data are a user's own: keys that it does not state.

    Args:
        fragment: The recipe so far; its data are loaded.
        keep_batch: Whether to leave the batch size as it is, for comparisons with methods that draw tasks.
        seen: Called with the data.
    """
    section = resolve({"method": "soup", **fragment}).data  # which may have branches
    if section["name"] not in OWN_DATA:
        return {}
    dataset, stated = load_data(section), flatten(fragment)
    found: dict[str, Any] = {}
    if _is_plainly_random(section) and "data.split" not in stated and any(lacking := _lacking(dataset)):
        even = load_data({**section, "split": "stratified"})
        if _lacking(even) < lacking:
            dataset, found["data.split"] = even, "stratified"
    if seen is not None:
        seen(dataset)
    found |= flatten(adapted_to(dataset))
    skipped = {"training.epochs"} if "training.steps" in stated else set()
    skipped |= {"sampler.batch_size"} if keep_batch else set()
    return nest({key: value for key, value in found.items() if key not in {*stated, *skipped}})


def _is_plainly_random(section: Mapping[str, Any]) -> bool:
    """Whether rows are split at random, and nothing else says how."""
    otherwise = ("time", "split_column", "valid_path", "test_path", "divide")
    return section.get("split") == "random" and not any(section.get(key) for key in otherwise)


def _lacking(dataset: Dataset) -> tuple[int, int]:
    """How many tasks lack a class to train on, and in how many parts, over all tasks, a class is missing."""
    lacking = {
        part: sum(int((dataset.labels[rows.to(dataset.device)] != value).all(0).sum()) for value in (0, 1))
        for part, rows in dataset.split.items()
    }
    return lacking["train"], sum(lacking.values())


def adapted_to(dataset: Dataset) -> Fragment:
    """Settings for the sampler and the length of training that suit a data set."""
    labels = dataset.labels[dataset.split["train"]]
    rows, positives = max(1, len(labels)), (labels == 1).sum(0).double()
    doublings = max(0, math.ceil(math.log(rows / _MANY_ROWS, 4)))
    batch = min(_LARGEST_BATCH, _BATCH * 2**doublings)
    fingerprints = dataset.details.get("features") in ("fingerprint", "descriptors")
    fewest = _FEWEST_OF_FINGERPRINTS if fingerprints else _FEWEST_STEPS
    steps = min(max(_EPOCHS * rows / batch, fewest), _MOST_STEPS)
    of_epoch = max(1.0, rows / batch)
    some = positives[positives > 0]
    share = float(some.median()) / rows if len(some) else 0.0
    training = {"epochs": float(f"{steps / of_epoch:.3g}")}
    if rows < fewest // _FEWEST_EVALUATIONS * batch:  # else it is once per epoch
        training["evaluate_every"] = fewest // _FEWEST_EVALUATIONS
    return {
        "sampler": {"batch_size": batch, "rich_fraction": _RICH if share * batch < _FEW_POSITIVES else 0.0},
        "training": training,
    }
