"""What was understood of a data set: its rows, its labels and its inputs, in a few lines."""

from collections.abc import Iterator, Mapping

from mmb._names import first_few
from mmb.data.dataset import SPLITS, Dataset
from mmb.data.inputs.column_kinds import Category, Date, Number
from mmb.data.inputs.columns import ColumnEncoder

_TASKS = 6  # that get numbers of their own
_COLUMNS = 12  # that are named


def summarize_data(dataset: Dataset) -> list[str]:
    """Lines about rows and parts, labels, inputs, and columns that were left out."""
    sizes = ", ".join(f"{len(dataset.split[part]):,} {part}" for part in SPLITS)
    lines = [f"rows: {len(dataset):,} ({sizes})", *_labels(dataset)]
    if isinstance(dataset.encoder, ColumnEncoder):
        lines += _columns(dataset.encoder)
    elif isinstance(kind := dataset.details.get("features"), str):
        lines.append(f"inputs: molecules as {kind}")
    elif isinstance(size := dataset.details.get("size"), int):
        lines.append(f"inputs: images of {size} x {size} pixels")
    left_out: Mapping[str, str] = dataset.details.get("left_out", {})
    return lines + [f"left out: {name}: {reason}" for name, reason in left_out.items()]


def _labels(dataset: Dataset) -> Iterator[str]:
    names, labels = dataset.task_names, dataset.labels
    positive, known = (labels == 1).sum(0), (labels >= 0).sum(0)
    if len(names) <= _TASKS:
        counts = zip(names, positive.tolist(), known.tolist(), strict=True)
        text = ", ".join(f"{name} ({ones:,} of {rows:,} positive)" for name, ones, rows in counts)
    else:
        low, middle, high = int(positive.min()), int(positive.median()), int(positive.max())
        count = f"{len(names):,} ({first_few(names, 3)})"
        text = f"{count}, with {low:,} to {high:,} positives, {middle:,} at the median"
    gaps = labels.numel() - int(known.sum())
    yield f"labels: {text}" + (f"; {gaps / labels.numel():.1%} are gaps" if gaps else "")


def _columns(encoder: ColumnEncoder) -> Iterator[str]:
    kinds: dict[str, list[str]] = {"numbers": [], "dates": [], "names": []}
    for column in encoder.columns:
        if isinstance(column, Date):
            kinds["dates"].append(column.name)
        elif isinstance(column, Number):
            kinds["numbers"].append(column.name)
        else:
            many = str(len(column.categories)) if isinstance(column, Category) else "many"
            kinds["names"].append(f"{column.name} ({many} value{'s' * (many != '1')})")
    for kind, names in kinds.items():
        if names:
            yield f"{kind}: {first_few(names, _COLUMNS)}"
