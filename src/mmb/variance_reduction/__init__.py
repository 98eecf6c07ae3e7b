"""Variance reduction, one kind per file, behind one interface; it goes with any hypergradient.

| | remembers of each block | oracle calls | for |
|---|---|---|---|
| `Storm` | its last point, and derivatives there | twice as many | any batches |
| `Saga` | derivatives of every batch | as many | data cut into fixed batches |

Both remember the last hypergradient of every block besides, so that a step knows of blocks that are not
sampled. This takes at least `m` times the size of `x`; `Solver.init` says so if it does not fit in memory.
"""

from mmb.variance_reduction.base import VarianceReduction
from mmb.variance_reduction.oracles import ReducedOracles
from mmb.variance_reduction.saga import Saga
from mmb.variance_reduction.storm import Storm

__all__ = ["ReducedOracles", "Saga", "Storm", "VarianceReduction", "by_name"]

_NAMES = {"storm": Storm, "saga": Saga}


def by_name(choice: VarianceReduction | str | None) -> VarianceReduction | None:
    """The variance reduction that a name stands for; others pass through."""
    if choice is None or isinstance(choice, VarianceReduction):
        return choice
    if choice not in _NAMES:
        raise ValueError(
            f"variance_reduction: expected None, {', '.join(map(repr, _NAMES))}, mmb.Storm(...) or "
            f"mmb.Saga(...), got {choice!r}"
        )
    return _NAMES[choice]()
