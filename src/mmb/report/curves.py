"""The log of a run as columns for charts."""

from collections.abc import Sequence
from typing import Any

from mmb.metrics import METRICS

_SERIES = {
    "valid": tuple(METRICS),
    "train": ("loss", "gap", "dual_error", "fpr", "feasible", "gradient_norm"),
}
_MOST = 300  # points of a curve


def log_curves(log: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of the log, by the kind of its lines."""
    curves = {}
    for kind, wanted in _SERIES.items():
        lines = spaced([record for record in log if record["kind"] == kind], _MOST)
        present = [name for name in ("step", "seconds", *wanted) if any(name in line for line in lines)]
        curves[kind] = {name: [short(line.get(name)) for line in lines] for name in present}
    return curves


def spaced(items: Sequence[Any], most: int) -> list[Any]:
    """At most some number of items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def short(value: Any) -> Any:
    """A number with six digits, or anything else as it is."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
