"""Draws of rows for dense batches: enriched with rare positives, or just shuffled."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import check_range, check_whole
from mmb._permutations import permutation
from mmb.auc.batches import DenseBatch
from mmb.auc.labels import Labels
from mmb.auc.sampling.sampler import RowLists, Sampler
from mmb.trees import tree_map


@dataclass(frozen=True)
class RowDraw:
    """Rows for a dense batch.

    Attributes:
        rows: The rows, [n].
        weights: Importance of each row and of each of its labels, [n]; None when rows are drawn uniformly
            (all ones).
    """

    rows: Tensor
    weights: Tensor | None = None

    def batch(self, inputs: Any, labels: Tensor) -> DenseBatch:
        """Look the rows up in inputs (a tensor, or a nest of them) and labels `[N, m]` of all rows."""
        return self.with_inputs(tree_map(lambda leaf: leaf[self.rows], inputs), labels[self.rows])

    def with_inputs(self, inputs: Any, labels: Tensor) -> DenseBatch:
        """The batch, from the model input and the labels `[n, m]` of these rows."""
        return DenseBatch(inputs, labels, self.weights, self.rows)


class RichRowSampler(Sampler[RowDraw]):
    r"""Rows of which a fraction are positives of uniformly drawn tasks, with importance weights.

    For a fraction `f` of the rows, a task is drawn uniformly (every task gets an even share), then one of its
    positives uniformly. The rest are uniform, each row at most once in an epoch. So row i of `N` is drawn
    with intensity

    $$
    \lambda_i = \frac{1 - f}{N} + \frac{f}{m} \sum_{k} \frac{y_{ik}}{n_k^+}
    $$

    and its weight is $(1/N) / \lambda_i$, for every label it has. Weighted sums over a draw are then
    exactly unbiased, for any function of inputs and labels. The weight is bounded without clipping: by
    `1 / (1 - f)` for any label; and a positive of task k counts at most `m / (f n)` in its class mean,
    however rare the task (uniform rows give $1 / (n p_k)$).

    An epoch is `N / batch_size` draws, rounded up. With `rich_fraction=0` it is a plain shuffled pass:
    each row once, and no weights. If `batch_size` does not divide `N`, the last draw is shorter; a single
    row, which batch normalization cannot take, is added to the draw before.

    Args:
        labels: Label matrix [N, m] with 0, 1 and missing. Tasks that lack a class are not drawn for.
        batch_size: Rows in each draw, `n`.
        rich_fraction: `f`, in [0, 1), rounded to whole rows.
        max_weight: Clip weights at this value (at least 1), to tame an `f` near 1; None does not clip.
            Clipping biases: a row whose weight should be `w` counts `max_weight / w` of what it should.
            It affects only rows with few or no positives.
        generator: A generator on the labels' device, or a seed for one.
    """

    def __init__(
        self,
        labels: Tensor | Labels,
        batch_size: int,
        rich_fraction: float = 0.5,
        *,
        max_weight: float | None = None,
        generator: torch.Generator | int = 0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        check_whole("batch_size", batch_size, 1)
        check_range(f"[1, {labels.num_rows}]", "the rows of the labels", batch_size=batch_size)
        why = "rows without a positive can only come from the uniform rest"
        check_range("[0, 1)", why, rich_fraction=rich_fraction)
        if max_weight is not None and not max_weight >= 1:
            raise ValueError(f"max_weight: expected at least 1, got {max_weight}; None does not clip")
        self.num_rich = min(round(rich_fraction * batch_size), batch_size - 1)
        steps, rest = divmod(labels.num_rows, batch_size)
        super().__init__(labels.device, steps + (rest > (0 if self.num_rich else 1)), generator)
        self.num_uniform = batch_size - self.num_rich
        self.max_weight = max_weight
        self._num_rows = labels.num_rows
        self._shuffled = torch.empty(0, dtype=torch.int32, device=labels.device)
        if self.num_rich:
            self._tasks = labels.usable.nonzero().squeeze(1)
            self._num_tasks = torch.full((1,), labels.num_usable, device=labels.device)
            self._positives = RowLists(labels, 1)
            # N / m * sum over tasks of y / n+: how much more often than uniform the rich part draws a row
            shares = (
                labels.usable * (labels.num_rows / labels.num_usable) / labels.positives.clamp(min=1).double()
            )
            self._richness = self._positives.sum_by_row(shares, labels.num_rows).float()

    def begin_epoch(self) -> None:
        """Shuffle all rows."""
        self._shuffled = self._shuffled.new_empty(0)  # that of the last epoch makes room
        self._shuffled = permutation(self._num_rows, self.generator)

    def draw(self) -> RowDraw:
        """Make the next draw; iterating calls this, and counts."""
        start = self.step * self.num_uniform
        if not self.num_rich:
            last = self.step + 1 == self.steps_per_epoch
            return RowDraw(self._shuffled[start : None if last else start + self.num_uniform].long())
        uniform = self._shuffled[start : start + self.num_uniform].long()
        tasks = self._tasks[self._positions(self._num_tasks, self.num_rich).squeeze(0)]
        positions = self._integers(self.num_rich) % self._positives.counts[tasks]
        rows = torch.cat([self._positives.at(tasks, positions.unsqueeze(1)).squeeze(1), uniform])
        fraction = self.num_rich / len(rows)  # the last draw of an epoch may have fewer uniform rows
        weights = 1 / ((1 - fraction) + fraction * self._richness[rows])
        return RowDraw(rows, weights if self.max_weight is None else weights.clamp(max=self.max_weight))
