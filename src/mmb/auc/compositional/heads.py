"""HeadCompositionalAUC: compositional training whose lower problem moves only the heads."""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from mmb._renamed import renamed_arguments
from mmb.auc.batches import Batch
from mmb.auc.compositional.whole_network import Estimate, check_inner_step
from mmb.auc.labels import Labels
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.parts.autograd import Gradients, add_gradients
from mmb.auc.parts.weighted_scores import WeightedScores, check_tasks
from mmb.auc.score_objective import Transform
from mmb.models.multitask import MultiTask, as_multitask, flatten_tasks

_STEADY = 0.3  # inner step in units of logits


class Head(NamedTuple):
    """Heads of some tasks, or one number for each of their weights."""

    weight: Tensor  # [k, d]
    bias: Tensor  # [k]


class At(NamedTuple):
    """Linear heads on features: scores, and their derivatives both ways, for rows `n` and tasks `k`."""

    features: Tensor  # [n, d], the same for all tasks, or [k, n, d]
    apart: bool  # whether each task has its own rows

    def score(self, head: Head) -> Tensor:
        """Logits `[n, k]`."""
        form = "knd,kd->nk" if self.apart else "nd,kd->nk"
        return torch.einsum(form, self.features, head.weight) + head.bias

    def pull(self, by_logits: Tensor) -> Head:
        """Derivative by the heads, given that by the logits, `[n, k]`."""
        form = "knd,nk->kd" if self.apart else "nd,nk->kd"
        return Head(torch.einsum(form, self.features, by_logits), by_logits.sum(0))

    def push(self, by_logits: Tensor, head: Head) -> Tensor:
        """Derivative by the features, given that by the logits, `[n, k]`."""
        return torch.einsum("nk,kd->knd" if self.apart else "nk,kd->nd", by_logits, head.weight)

    def steady_step(self) -> Tensor:
        """A step size for heads that moves logits alike, however large features are; `[k]` if apart."""
        sizes = self.features.square().sum(-1) + 1  # how far a step of one moves the logit of a row
        known = sizes.isfinite()
        return _STEADY * known.sum(-1).clamp(min=1) / sizes.where(known, 0.0).sum(-1).clamp(min=1)

    def logits(self, head: Head, tasks: Tensor | None) -> Tensor:
        """Logits in the shape of a batch's labels: `[n, m]`, or `[k, r]` of some tasks."""
        return self.score(head) if tasks is None else self.score(head).T


class HeadCompositionalAUC(MinMaxAUC):
    r"""AUC of every task after one cross-entropy step of its head: compositional training of dense batches.

    $$
    \min_{w, v, a, b} \max_{\alpha \ge 0} \frac1m \sum_i L_i(w, v_i + d_i(w, v_i), a_i, b_i, \alpha_i), \qquad
    d_i(w, v_i) = \arg\min_d \tfrac12 \bigl\| d + \tilde\eta \nabla_v CE_i(w, v_i) \bigr\|^2
    $$

    with the encoder's weights `w`, the heads $v_i$, and $L_i$ and $CE_i$ those of
    [`CompositionalAUC`][mmb.auc.CompositionalAUC]: its problem with the encoder left out of the
    lower level. Tasks then differ in their heads only: one evaluation of the encoder serves all of them, with
    every label of its rows, and is differentiated once, as for cross-entropy. The block state of a task is
    one vector $d_i$, as long as a head. One step moves those of the sampled tasks,

    $$
    d_i \leftarrow d_i - \text{lr\_lower} \,\bigl(d_i + \tilde\eta \nabla_v CE_i(w, v_i; \tilde B_i)\bigr),
    $$

    and the estimate, with $g_i = \nabla_v L_i(w, v_i + d_i; B_i)$ at $d_i$ before its step, is

    $$
    \Delta_{v_i} = g_i - \tilde\eta \nabla_v^2 CE_i(w, v_i; \tilde B_i)\, g_i, \qquad
    \Delta_w = \nabla_w L_i(w, v_i + d_i; B_i)
    - \tilde\eta \nabla_w \langle \nabla_v CE_i(w, v_i; \tilde B_i), g_i \rangle.
    $$

    Args:
        labels: The training labels.
        model: The model to be trained; only the width of its heads is used.
        inner_lr: $\tilde\eta$, the step size of the cross-entropy step. By default it follows the size of
            the features $\phi$: it is 0.3 over the mean of $\|\phi\|^2 + 1$ on the rows of $\tilde B_i$, so
            that the step moves logits alike, however large features are.
        lr_lower: Step size of $d_i$, in (0, 1].
        gradient: `"exact"`, or `"first_order"` without the terms in $\tilde\eta$.
        margin: `c`.
        transform: `"sigmoid"`, `"logit"` or `"recentered"`; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        lr_dual: Step size of the dual.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
        anchor: Weight of cross-entropy after `warm_start`, when training continues from trained weights;
            0 for none. See [`Anchor`][mmb.auc.parts.anchor.Anchor].
    """

    evaluates_model = True
    rate_names = ("lr_dual", "lr_lower")

    offset: Tensor

    @renamed_arguments(scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        model: MultiTask,
        *,
        inner_lr: float | None = None,
        lr_lower: float = 0.1,
        gradient: Estimate = "exact",
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        lr_dual: float = 0.1,
        task_weighting: float = 0.0,
        anchor: float = 2.0,
    ) -> None:
        super().__init__(
            labels,
            margin=margin,
            transform=transform,
            lr_dual=lr_dual,
            task_weighting=task_weighting,
            anchor=anchor,
        )
        check_inner_step(1.0 if inner_lr is None else inner_lr, lr_lower, gradient)
        self.inner_lr, self.lr_lower, self.gradient = inner_lr, lr_lower, gradient
        width = as_multitask(model, self.num_tasks).weight.shape[1]
        self.register_buffer("offset", self.task_weight.new_zeros(self.num_tasks, width + 1))  # d, bias last

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        r"""Add the estimate to `.grad`, and move the dual and the offsets of the sampled tasks.

        $\tilde B$ is `batch.lower`, or `batch` if that is None.
        """
        self.watch_first_step(model)
        heads = as_multitask(model, self.num_tasks)
        tasks, lower = batch.tasks, batch if batch.lower is None else batch.lower
        if tasks is not None:
            check_tasks(tasks, self.num_tasks)
        features = _features(heads, batch)
        below = features if lower is batch else _features(heads, lower)
        own = Head(heads.weight, heads.bias)
        if tasks is not None:
            tasks = tasks.to(own.weight.device, non_blocking=True)
            own = Head(*(part.index_select(0, tasks) for part in own))
        with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
            kept = self.offset if tasks is None else self.offset.index_select(0, tasks)
            head = Head(own.weight + kept[:, :-1], own.bias + kept[:, -1])
            upper = At(features.detach().to(own.weight.dtype), tasks is not None)
            under = upper if below is features else At(below.detach().to(own.weight.dtype), upper.apart)
            entries = self.entries(upper.logits(head, tasks), batch.labels, tasks, batch.weights)
            sought = self.entries(under.logits(own, tasks), lower.labels, tasks, lower.weights)
            entries = entries.together(sought)
            value, ((_, by_logits), *means) = self.adjusted_estimate(entries)
            by_features, by_below, by_head, inner = self._see_through(
                upper, under, head, own, by_logits, sought
            )
            if self.training:
                rate, step = self.lr_lower, torch.cat([inner.weight, inner.bias.unsqueeze(1)], 1)
                entries.scatter_(self.offset, (1 - rate) * kept - rate * step)
        grads: Gradients = [*zip(own, by_head, strict=True), *means]
        if below is features:
            grads.append((features, (by_features + by_below).to(features.dtype)))
        else:
            grads += [(features, by_features.to(features.dtype)), (below, by_below.to(below.dtype))]
        add_gradients(grads)
        return {"loss": entries.flag(value), **self.loss_parts(), **self.diagnostics()}

    def _see_through(
        self, upper: At, under: At, head: Head, own: Head, by_logits: Tensor, entries: WeightedScores
    ) -> tuple[Tensor, Tensor, Head, Head]:
        """Derivatives by the features of `B` and `B~` and by the heads, and `inner_lr grad_v CE_i`."""
        step = under.steady_step() if self.inner_lr is None else self.inner_lr
        g = upper.pull(by_logits)
        logits = entries.logits
        if self.transform != "sigmoid":
            logits = logits - entries.gather(self.log_odds())
        chance = torch.sigmoid(logits)
        positive, negative = 0.5 * entries.positive, 0.5 * entries.negative
        slope = step * (negative * chance - positive * (1 - chance))
        by_features, by_below = upper.push(by_logits, head), torch.zeros_like(under.features)
        delta = g
        if self.gradient == "exact":
            bend = step * (negative + positive) * chance * (1 - chance) * under.score(g)
            along = under.pull(bend)
            delta = Head(g.weight - along.weight, g.bias - along.bias)
            by_below = -(under.push(bend, own) + under.push(slope, g))
        return by_features, by_below, delta, under.pull(slope)


def _features(model: MultiTask, batch: Batch) -> Tensor:
    """Features of the rows: `[n, d]`, or `[k, r, d]` of a task-sampled batch."""
    if batch.tasks is None:
        return cast(Tensor, model.encoder(batch.inputs))
    features: Tensor = model.encoder(flatten_tasks(batch.inputs))
    return features.reshape(batch.tasks.numel(), -1, features.shape[-1])
