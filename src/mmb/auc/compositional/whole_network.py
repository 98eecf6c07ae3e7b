"""CompositionalAUC: multi-task AUC maximization with compositional training (mAUC-CT)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmb._numbers import check_choice, check_positive, check_range
from mmb._renamed import renamed_arguments
from mmb.auc.batches import Batch
from mmb.auc.compositional.per_task_model import TaskwiseModel, Weights
from mmb.auc.compositional.weight_copies import Kept, StorageDtype, WeightCopies
from mmb.auc.labels import Labels
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.bad_values import BadValueError
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import Transform
from mmb.memory import free_bytes, readable_bytes
from mmb.models.multitask import MultiTask, as_multitask

Estimate = Literal["exact", "first_order"]


class CompositionalAUC(MinMaxAUC):
    r"""AUC of every task after one cross-entropy step: features and ranking are learned together.

    $$
    \min_{w, a, b} \max_{\alpha \ge 0} \frac1m \sum_i L_i(u_i(w), a_i, b_i, \alpha_i), \qquad
    u_i(w) = \arg\min_u \tfrac12 \bigl\| u - (w_i - \tilde\eta \nabla CE_i(w_i)) \bigr\|^2
    $$

    where $w_i$ = (encoder, head i) and $L_i$ is the loss of [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
    Each task keeps a copy $u_i$ of its weights as block state. One step moves the sampled ones,

    $$
    u_i \leftarrow u_i - \text{lr\_lower} \,
    \bigl(u_i - (w_i - \tilde\eta \nabla CE_i(w_i; \tilde B_i))\bigr),
    $$

    or, if the offset $d_i = u_i - w_i$ is kept instead (the same problem, with lower solution
    $-\tilde\eta \nabla CE_i(w_i)$),
    $d_i \leftarrow d_i - \text{lr\_lower} \, (d_i + \tilde\eta \nabla CE_i(w_i; \tilde B_i))$,
    and the estimate for the weights, from the copies before their step, is

    $$
    \Delta_{w_i} = \bigl(I - \tilde\eta \nabla^2 CE_i(w_i; \tilde B_i)\bigr)
    \nabla_u L_i(u_i, a_i, b_i, \alpha_i; B_i).
    $$

    With `copies_as="none"` nothing is kept (MemCS): $u_i = w_i - \tilde\eta \nabla CE_i(w_i; \tilde B_i)$
    for the step's own batch. It needs no memory, and copies are never out of date, but the noise of
    $\tilde B_i$ reaches the AUC loss: do not take too small batches for the lower level.

    `CE_i` weighs both classes equally, $\tfrac12 E_+[\log(1 + e^{-s})] + \tfrac12 E_-[\log(1 + e^s)]$:
    on batches that are half positive it is the plain mean, and it is the same function for all batches. `s`
    are logits. Unless `transform` is `"sigmoid"`, they are logits less the task's $\log(n_+ / n_-)$, so
    that a model trained with cross-entropy is near its minimum, too.

    All sampled tasks are evaluated at once, with batched products. That asks the following of the model:

    - It is a [`MultiTask`][mmb.models.multitask.MultiTask], made of operations that `torch.vmap` knows.
      Frozen parameters of the encoder are not copied.
    - Task-sampled inputs are tensors (or a nest of them) whose first axis counts tasks; the encoder is given
      one task's slice. $\tilde B$ is `batch.lower`, or `batch` if that is None.
    - A dense batch uses all `m` copies in one step, and is meant for few tasks. Its inputs can be anything
      that the encoder takes.
    - In training mode, batch normalization normalizes each task's rows by their own statistics. Its running
      statistics take one step toward the mean over the sampled tasks of the statistics of $\tilde B_i$
      under the model's own weights, which are evaluated later. Copies have no running statistics.

    Args:
        labels: The training labels.
        model: The model to be trained; the copies start at its weights.
        inner_lr: $\tilde\eta$, the step size of the cross-entropy step. Training maximizes the AUC after that
            step; if the step is so large that it harms the ranking, the model itself gets worse. So take it
            well below the step size at which plain gradient descent diverges.
        lr_lower: Step size of the copies, in (0, 1].
        gradient: `"exact"`, or `"first_order"` without the Hessian term: cheaper, but only for a small
            `inner_lr`. It ignores the step of the copies, and what is good for them need not be good for
            the model.
        copies_dtype: Storage dtype of the copies, or its name; None is that of the model. Computations use
            the model's dtype. bfloat16 loses steps smaller than 1/256 of a weight: use it with a large
            `lr_lower`, or for offsets.
        copies_device: Where the copies are stored; None is with the objective. In host memory (`"cpu"`), with
            the model on a GPU, the copies of the sampled tasks travel during the computation: see `prefetch`.
        copies_as: `"weights"`, as in the paper, `"offsets"`, which move along with the model's weights, or
            `"none"`, which keeps no copies; `lr_lower` has no effect then.
            Copies stay where they are until their task is sampled again, so that the estimate is that of
            older weights: with many tasks the model gets worse unless it moves slowly, so take offsets.
        margin: `c`.
        transform: `"sigmoid"`, `"logit"` or `"recentered"`; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        lr_dual: Step size of the dual.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].

    Raises:
        NoRoomError: If the copies do not fit in memory; the message says what would.
    """

    evaluates_model = True
    weights_per_task = True
    rate_names = ("lr_dual", "lr_lower")

    @renamed_arguments(scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        model: MultiTask,
        *,
        inner_lr: float = 0.1,
        lr_lower: float = 0.5,
        gradient: Estimate = "exact",
        copies_dtype: StorageDtype | torch.dtype | None = None,
        copies_device: torch.device | str | None = None,
        copies_as: Kept = "weights",
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        lr_dual: float = 0.1,
        task_weighting: float = 0.0,
    ) -> None:
        super().__init__(
            labels,
            margin=margin,
            transform=transform,
            lr_dual=lr_dual,
            task_weighting=task_weighting,
            anchor=0.0,
        )
        check_inner_step(inner_lr, lr_lower, gradient)
        check_choice(Kept, copies_as=copies_as)
        self.inner_lr, self.lr_lower, self.gradient = inner_lr, lr_lower, gradient
        self.copies = WeightCopies(model, copies_dtype, copies_device, copies_as)
        as_multitask(model, self.num_tasks)

    @classmethod
    def check_memory(cls, model: nn.Module, options: Mapping[str, Any], sharers: int = 1) -> None:
        """Refuse weight copies that cannot fit; the constructor checks for one process."""
        if isinstance(model, MultiTask):  # the constructor refuses any other model
            storage = (options.get("copies_dtype"), options.get("copies_device"))
            size = WeightCopies.measure(model, *storage, options.get("copies_as", "weights"))
            size.check(sharers if size.device.type == "cpu" else 1)  # each process has its own GPU

    @classmethod
    def capture_problem(cls, options: Mapping[str, Any]) -> str | None:
        """A step can be captured if the weight copies are on the GPU."""
        if options.get("copies_device") is not None:
            return "needs weight copies on the GPU: set objective.copies_device=null"
        return None

    def memory_note(self) -> str:
        """The memory that the weight copies take in this process, and what is left."""
        if self.copies.kept == "none":
            return "no weight copies"
        free = free_bytes(self.copies.stacked.device)
        left = "" if free is None else f"; {readable_bytes(free)} are left"
        return f"{self.copies.footprint} per process{left}"

    def start_at(self, model: nn.Module) -> None:
        """Put every copy at the model's current weights."""
        self.copies.reset(self.copies.check(model))

    def prefetch(self, tasks: Tensor) -> None:
        """Start bringing copies that are in host memory to the device, one step ahead.

        Call it with the tasks of step `t + 1`, in order, before step `t`, and leave the batches' `tasks` on
        the host: the transfer then happens while step `t` computes, and nothing waits for the device.
        """
        if self.copies.kept != "none":
            self.copies.prefetch(tasks, self.dual.device)

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Add the estimate to `.grad`, and move the dual and the copies of the sampled tasks."""
        self.watch_first_step(model)
        model = self.copies.check(model)
        tasks, lower = batch.tasks, batch if batch.lower is None else batch.lower
        if tasks is not None and lower.tasks is not None and not _same(tasks, lower.tasks):
            raise ValueError(f"batch.lower must be of the same tasks, {tasks}, got {lower.tasks}")
        at_upper = TaskwiseModel(model, self.copies.names, batch, self._weigh(batch))
        at_lower = TaskwiseModel(model, self.copies.names, lower, self._weigh(lower))
        old_dual = self.dual.clone()
        try:
            rows = self.copies.gather(tasks, like=model.weight)
            weights = self.copies.weights(model, at_upper.entries.tasks)
            leaves, steps = self._steps(at_lower, weights)
            copies = self._copies(rows, weights, steps)
            entries, value, through_copies, own = self._upper(at_upper, copies, batch, at_lower.entries)
            delta = self._delta(leaves, steps, through_copies)
            moving = entries.sampled & self._finite(steps, entries)
        except Exception:
            self.dual.copy_(old_dual)  # the only state touched so far
            raise
        means, by_means = zip(*own, strict=True)
        torch.autograd.backward([*weights, *means], [*delta, *by_means])
        if self.training and self.copies.kept != "none":
            self._move_copies(rows, weights, steps, moving)
            self.copies.scatter_(tasks, rows)
        at_lower.update_running_statistics()
        if self.bad_values == "refuse":
            value = torch.where((moving == entries.sampled).all(), entries.flag(value), torch.nan)
        return {"loss": value, **self.loss_parts(), **self.diagnostics()}

    def _weigh(self, batch: Batch, logits: Tensor | None = None) -> WeightedScores:
        """Check a batch, whose tasks may be on the host, and weigh its entries; logits `[k, r]`, if known."""
        if logits is None:
            scores = self.task_weight.new_zeros(()).expand(batch.labels.shape)
        else:
            scores = logits.detach().T if batch.tasks is None else logits.detach()
        tasks = None if batch.tasks is None else batch.tasks.to(scores.device, non_blocking=True)
        return self.entries(scores, batch.labels, tasks, batch.weights)

    def _copies(self, rows: Tensor, weights: Weights, steps: Weights) -> Sequence[Tensor]:
        """The copies `u_i`, from rows that hold copies or offsets, or from this step's own."""
        if self.copies.kept == "weights":
            return self.copies.split(rows)
        offsets = steps if self.copies.kept == "none" else self.copies.split(rows)
        return [part.detach() + weight.detach() for part, weight in zip(offsets, weights, strict=True)]

    def _finite(self, steps: Weights, entries: WeightedScores) -> Tensor:
        """Which tasks `[k]` have finite steps; where a batch can be refused, all that are sampled must."""
        # to reshape transposed matrices would copy them
        sums = torch.stack([part.unsqueeze(1).sum(tuple(range(1, part.dim() + 1))) for part in steps])
        finite = sums.isfinite().all(0)
        known = finite.device.type == "cpu" and self.can_raise and self.bad_values == "refuse"
        if known and not bool((finite | ~entries.sampled).all()):
            place = int((~finite & entries.sampled).nonzero()[0])
            task = place if entries.tasks is None else int(entries.tasks[place])
            raise BadValueError(
                f"the cross-entropy step of task {task} is not finite: inputs of the lower level may have "
                "NaN, or the step size is too large. The batch is refused, and nothing has changed"
            )
        return finite

    def _upper(
        self, at: TaskwiseModel, copies: Sequence[Tensor], batch: Batch, lower: WeightedScores
    ) -> tuple[WeightedScores, Tensor, Weights, Gradients]:
        """Value of the AUC loss, its gradient by the copies (scaled by task), and by the class means."""
        leaves = tuple(copy.detach().requires_grad_() for copy in copies)
        with torch.enable_grad():
            logits = at.logits(leaves)
        with torch.no_grad():
            entries = self._weigh(batch, logits).together(lower)
            value, ((_, by_logits), *own) = self.adjusted_estimate(entries)
        by_logits = by_logits.T.to(logits.dtype)
        through = torch.autograd.grad(logits, leaves, by_logits, materialize_grads=True)
        return entries, value, through, own

    def _steps(self, at: TaskwiseModel, weights: Weights) -> tuple[Weights, Weights]:
        """The tasks' own weights, and the cross-entropy step from there, `-inner_lr grad CE_i`, per task."""
        with torch.enable_grad():
            leaves = at.own(weights)
            center = None if self.transform == "sigmoid" else at.entries.gather(self.log_odds())
            return leaves, at.cross_entropy_steps(leaves, self.inner_lr, self.gradient == "exact", center)

    def _delta(self, leaves: Weights, steps: Weights, through_copies: Weights) -> list[Tensor]:
        """`(I - inner_lr Hess CE_i) grad_u L_i` for the weights."""
        delta = list(through_copies)
        if self.gradient == "exact":
            outputs, along = zip(
                *((a, b) for a, b in zip(steps, delta, strict=True) if a.requires_grad), strict=True
            )
            products = torch.autograd.grad(outputs, leaves, along, materialize_grads=True)
            delta = [part.add_(bend) for part, bend in zip(delta, products, strict=True)]
        return [_sum_over_tasks(part) for part in delta[:-2]] + delta[-2:]

    @torch.no_grad()
    def _move_copies(self, rows: Tensor, weights: Weights, steps: Weights, moving: Tensor) -> None:
        """`u <- u - lr_lower (u - (w - inner_lr grad CE))` for the tasks that move, in place in `rows`.

        For offsets, the same with `w = 0`. They move at once: a compiler cannot write just some columns.
        """
        if self.copies.kept == "weights":
            steps = tuple(
                step + (weight.mT.contiguous().mT if step.dim() == 3 else weight)
                for step, weight in zip(steps, weights, strict=True)
            )
        new = self.copies.join(steps)
        look = rows.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (look and bool(moving.all())):  # steps that are not taken may be NaN
            new = torch.where(moving.unsqueeze(1), new, rows)
        rate = self.lr_lower * moving.to(rows.dtype)
        rows.lerp_(new, rate.unsqueeze(1))


def check_inner_step(inner_lr: float, lr_lower: float, gradient: str) -> None:
    """Check what compositional objectives have in common."""
    check_positive(inner_lr=inner_lr)
    check_range("(0, 1]", lr_lower=lr_lower)
    check_choice(Estimate, gradient=gradient)


def _sum_over_tasks(part: Tensor) -> Tensor:
    """`part.sum(0)`, twenty times faster for transposed matrices."""
    return part.mT.sum(0).mT if part.dim() == 3 else part.sum(0)


def _same(tasks: Tensor, others: Tensor) -> bool:
    """Whether the tasks agree; on a GPU, where comparing would wait for the device, only their number."""
    look = tasks.device.type == others.device.type == "cpu" and not torch.compiler.is_compiling()
    return torch.equal(tasks, others) if look else tasks.shape == others.shape
