"""Trees beside the networks: for thresholds in single columns, and for classes made of neighborhoods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmb._extras import require
from mmb.estimators.inputs import Rows
from mmb.estimators.network import Part, both_classes

_ensemble = require("sklearn.ensemble", extra="estimators")

_MOST = 1024  # columns times tasks: beyond, trees would take longer than the networks
_IN_FOREST = 64
_LEAVES = 2000  # of a tree of the forest, of all tasks together: they are kept in memory


class Trees:
    """Two kinds of trees for each task that has both classes, by scikit-learn with its defaults.

    These are histogram gradient boosting, and a forest of extremely randomized trees, whose log-odds are
    those of the trees' mean vote.

    Args:
        part: The rows to learn from; each task's without those that lack its label.
        seed: Of the randomness.
    """

    def __init__(self, part: Part, seed: int) -> None:
        x, weights = part.rows.map(lambda inputs: inputs).numpy(), part.weights.numpy()
        num_rows, self._num_tasks = part.labels.shape
        self._models: dict[int, tuple[Any, Any]] = {}
        for task in both_classes(part.labels).nonzero().squeeze(1).tolist():
            labels = part.labels[:, task].numpy()
            known = labels >= 0
            boosting = _ensemble.HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
            smallest = max(1, num_rows * self._num_tasks // _LEAVES)
            forest = _ensemble.ExtraTreesClassifier(_IN_FOREST, min_samples_leaf=smallest, random_state=seed)
            self._models[task] = tuple(
                model.fit(x[known], labels[known], sample_weight=weights[known])
                for model in (boosting, forest)
            )

    @staticmethod
    def suit(part: Part) -> bool:
        """Whether rows are dense, and columns and tasks not too many."""
        return not part.rows.sparse and part.rows.num_columns * part.labels.shape[1] <= _MOST

    def logits(self, rows: Rows) -> Tensor:
        """Logits `[n, 2, m]`, float64; zero for tasks without trees."""

        def of(inputs: Tensor) -> Tensor:
            x, found = inputs.numpy(), torch.zeros(len(inputs), 2, self._num_tasks, dtype=torch.float64)
            for task, (boosting, forest) in self._models.items():
                found[:, 0, task] = torch.as_tensor(boosting.decision_function(x))
                votes = _IN_FOREST * torch.as_tensor(forest.predict_proba(x)[:, 1])
                found[:, 1, task] = ((votes + 0.5) / (_IN_FOREST - votes + 0.5)).log()
            return found

        return rows.map(of)
