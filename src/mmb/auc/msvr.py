"""MSVRAveragePrecision: average precision with a variance-reduced average (MSVR)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mmb._numbers import check_nonnegative
from mmb.auc.average_precision import AveragePrecision, Rivals
from mmb.auc.batches import Batch, TaskBatch
from mmb.auc.labels import Labels
from mmb.auc.model_scores import model_scores
from mmb.auc.parts.autograd import add_gradients
from mmb.auc.parts.bad_values import usable_or
from mmb.auc.parts.pairs import Surrogate
from mmb.auc.parts.previous_weights import PreviousWeights
from mmb.auc.score_objective import Transform


class MSVRAveragePrecision(AveragePrecision):
    r"""[`AveragePrecision`][mmb.auc.AveragePrecision] with variance-reduced tracking (Jiang et al., 2022).

    A moving average lags: it belongs to weights of earlier steps, the more so the smaller its $\beta$, which
    has to be small for little noise. MSVR also evaluates the model at its weights before the last step,
    $w_{t-1}$, on the same batch, and adds what the step has changed:

    $$
    u_i \leftarrow (1-\beta)\, u_i + \beta\, g_i(w_t) + \gamma\, (g_i(w_t) - g_i(w_{t-1})),
    \qquad \gamma = \frac{1-p}{p\,(1-\beta)} + 1 - \beta,
    $$

    with the numbers $g_i = (P_i, Q_i)$ of the batch, and the share $p$ of all positives that are in it: the
    one step that is seen stands for those in which a positive was not met. With all rows in every batch,
    $u_i$ is exact. It is kept to the range of $P_i$ and $Q_i$.

    The price is one more evaluation of the model per step, without derivatives, and a copy of its weights.
    Of several batches in one step of the optimizer, the first alone sees a change.
    One process trains it, and its steps are not captured as CUDA graphs.

    Args:
        labels: The training labels.
        model: The model to be trained, of which the weights are copied.
        surrogate: As in `AveragePrecision`.
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        beta: The weight of the newest batch, in (0, 1].
        gamma: The weight of the change; None is that of the formula, which is large where batches hold few of
            the positives, and zero is the plain average.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    evaluates_model = True

    def __init__(
        self,
        labels: Labels | Tensor,
        model: nn.Module,
        *,
        surrogate: Surrogate = "squared_hinge",
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        beta: float = 0.1,
        gamma: float | None = None,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(
            labels,
            surrogate=surrogate,
            margin=margin,
            transform=transform,
            beta=beta,
            task_weighting=task_weighting,
        )
        check_nonnegative(gamma=0.0 if gamma is None else gamma)
        self.gamma = gamma
        self.previous = PreviousWeights(model)
        self._before: Tensor | None = None  # logits of this batch at the previous weights, [rows, k]

    @classmethod
    def capture_problem(cls, options: Mapping[str, Any]) -> str | None:
        """A graph cannot exchange the weights."""
        return "evaluates the model at its previous weights, too; use mmb.auc.AveragePrecision"

    def reserve(self, positives: int) -> None:
        """Nothing: all positives of a batch are compared, since no step is captured."""

    def start_at(self, model: nn.Module) -> None:
        """Take these weights as the previous ones."""
        self.previous.follow(model)

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Add the estimate to `.grad`, and move the tracked numbers of the batch's positives."""
        self.watch_first_step(model)
        tasks = batch.tasks if isinstance(batch, TaskBatch) else None
        with self.previous.put_in(model):
            before = model_scores(model, batch, self.num_tasks)
        scores = model_scores(model, batch, self.num_tasks)
        entries = self.entries(scores, batch.labels, tasks, batch.weights, batch.rows)
        with torch.no_grad():
            before = before.reshape(entries.logits.shape) if tasks is None else before.T
            before = before.to(entries.logits.dtype)
            # where these cannot be computed with, nothing counts as changed
            self._before = usable_or(before, entries.logits)
            try:
                value, gradients = self.adjusted_estimate(entries)
            finally:
                self._before = None
        add_gradients(gradients)
        if self.training:
            self.previous.follow(model)
        return {"loss": entries.flag(value), **self.loss_parts(), **self.diagnostics()}

    def follow(self, old: Tensor, now: Tensor, rivals: Rivals) -> Tensor:
        """The tracked numbers, `[2, e]`, after a batch, within their range."""
        new = super().follow(old, now, rivals)
        if self._before is None:
            return new
        score = self.scores(replace(rivals.pairs.entries, logits=self._before))
        _, before, _ = self.count(score, rivals)
        seen = old[0].sign()  # one, or zero before the first batch
        p, q = new.addcmul_(now - before, seen, value=self._weight(len(seen)))
        p.clamp_(min=rivals.itself)
        q.clamp_(min=0)
        return new

    def _weight(self, positives: int) -> float:
        """The weight of the change in a batch with this many positives."""
        if self.gamma is not None:
            return self.gamma
        one_in = len(self.above.value) / max(positives, 1)  # 1 / p
        return (one_in - 1) / max(1 - self.beta, 1e-3) + 1 - self.beta
