"""The interface of every objective, and what they share: a batch becomes weighted scores."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mmb._numbers import check_range
from mmb.auc.batches import Batch
from mmb.auc.labels import Labels, task_weights
from mmb.auc.model_scores import model_scores
from mmb.auc.parts.anchor import Anchor
from mmb.auc.parts.autograd import Gradients, Result, add_gradients, with_gradient
from mmb.auc.parts.bad_values import BadValues, screen
from mmb.auc.parts.first_step import watch_first_step
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.parts.previous_weights import PreviousWeights
from mmb.auc.parts.tracked_thresholds import ThresholdReport
from mmb.auc.parts.weighted_scores import WeightedScores, check_fed, check_tensors
from mmb.auc.sampling import Draw
from mmb.label_values import MISSING

Part = TypeVar("Part", bound=Draw | Batch)


class Objective(nn.Module):
    r"""What to train for: fills `.grad` and keeps the state of its blocks (tasks).

    The estimate for the model and the objective's own parameters is

    $$
    \Delta = \frac1{|I|} \sum_{k \in I} \omega_k \Delta_k,
    \qquad \omega_k \propto (\text{positive rate of } k)^{-g}
    $$

    over the batch's tasks `I`, with task weights of mean one over the usable tasks. Dense batches contain all
    usable tasks; their entries are weighted by class rates, so that the estimate stays unbiased.

    In training mode a call also moves the block state (dual variables, thresholds) of the sampled tasks. In
    `eval()` mode it leaves the state alone, as batch normalization does.

    **To write one**, implement `loss` with plain autograd, or `estimate` in closed form, and nothing else.
    The trainer, the estimator, capture, sharding, reports and logs ask for the attributes and methods below,
    whose defaults are right for an objective without block state.

    Args:
        labels: The training labels: a [`Labels`][mmb.auc.Labels], or a matrix to make one from.
        task_weighting: `g` in [-1, 1]. Zero weighs tasks equally, a positive `g` gives rare tasks more
            weight, and a negative one gives it to common tasks. Objectives that average over each class
            separately, such as those for AUC, already give the few positives of a rare task as much weight as
            the many of a common one. Since the estimate of a rare task is noisier, a negative `g` can help.

    Attributes:
        by_entry: Whether the loss is a sum over single entries, such as cross-entropy. Processes then share
            the rows of a dense batch without exchanging logits.
        evaluates_model: Whether `backward` evaluates the model itself, with changed heads or weights, so that
            scores alone are not enough. The constructor of such an objective takes the model.
        weights_per_task: Whether every task is evaluated with its own weights (compositional training).
            Task-sampled batches then keep tasks apart and have a second set of rows for the lower level.
        rate_names: Names of the attributes that are step sizes of block variables.
        anchor: Weight of cross-entropy after `warm_start`, relative to that of the objective; 0 adds none.
        bad_values: What to do with scores and weights that are not finite, too large to compute with, or
            negative (weights). `"refuse"`: the batch raises `BadValueError` and changes nothing. On a GPU,
            where a check would make every step wait, a bad batch changes nothing and has a loss of NaN.
            `"skip"`: such entries count as missing, and their number is logged as `skipped`. Values at
            missing labels never matter.
        can_raise: Whether a refused batch raises. False in one of several processes, since the others would
            wait for it forever: a bad batch is then treated as on a GPU.
    """

    bad_values: BadValues = "refuse"
    can_raise: bool = True
    by_entry: bool = False
    evaluates_model: bool = False
    weights_per_task: bool = False
    rate_names: tuple[str, ...] = ()
    anchor: float = 0.0
    _watched = False

    task_weight: Tensor
    positives: Tensor
    negatives: Tensor
    num_rows: float

    def __init__(self, labels: Labels | Tensor, task_weighting: float = 0.0) -> None:
        super().__init__()
        why = "positive numbers give rare tasks more weight, negative ones common tasks"
        check_range("[-1, 1]", why, task_weighting=task_weighting)
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        self.task_weighting = task_weighting
        self.num_rows, self.num_tasks = labels.num_rows, labels.num_tasks
        self.num_usable = labels.num_usable
        dtype = torch.get_default_dtype()
        for name, value in {  # not persistent: they follow from the labels, not from training
            "task_weight": labels.task_weights(task_weighting),
            "positives": labels.positives.clamp(min=1),  # counts, exact in any precision we compute in
            "negatives": labels.negatives.clamp(min=1),
        }.items():
            self.register_buffer(name, value.to(dtype), persistent=False)
        self.num_trained = int((self.task_weight > 0).sum())
        self._skipped = self.task_weight.new_zeros(())  # entries of the last batch
        self.anchored: Anchor | None = None  # from `warm_start` on

    # -- The estimate ----------------------------------------------------------------------------------------

    def loss(self, entries: WeightedScores) -> Tensor:
        """The loss of one batch, whose gradient is the estimate; moves block state when `self.training`."""
        with torch.no_grad():
            value, gradients = self._anchored(entries)
        return with_gradient(value, gradients)

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """The value of the loss and its derivatives; moves block state when `self.training`."""
        raise NotImplementedError(f"{type(self).__name__} implements neither loss nor estimate")

    adjust: Callable[[WeightedScores, Result], Result] | None = None

    def adjusted_estimate(self, entries: WeightedScores) -> Result:
        """`estimate`, rescaled in a [`Sum`][mmb.auc.Sum]; for objectives that evaluate the model."""
        return (
            self._anchored(entries) if self.adjust is None else self.adjust(entries, self.estimate(entries))
        )

    def _anchored(self, entries: WeightedScores) -> Result:
        """`estimate`, with cross-entropy added if training continues from trained weights."""
        result = self.estimate(entries)
        if self.anchored is None:
            return result
        found: Result = self.anchored(entries, self.positives / (self.positives + self.negatives), result)
        return found

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        tasks: Tensor | None = None,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, whose gradient is the estimate.

        Args:
            scores: Raw logits: `[n, m]` (or `[n]` for one task), or `[k, r]` with `tasks`.
            labels: Same shape: 0, 1, or missing (NaN in floating point, -1 in integers).
            tasks: int64 `[k]` for a task-sampled batch; None for a dense one.
            weights: Dense: importance of each label `[n, m]` or row `[n]`. With `tasks`: importance of
                each task `[k]`.
            rows: Index of each row in the data, `[n]` or `[k, r]`; for objectives with a variable per
                positive.

        Returns:
            A scalar: the mean over the batch's tasks of task weight times loss.
        """
        if self.evaluates_model:
            raise TypeError(f"{type(self).__name__} evaluates the model itself: call backward(model, batch)")
        entries = self.entries(scores, labels, tasks, weights, rows)
        return entries.flag(self.loss(entries))

    def measure(self, *fed: Any) -> tuple[Gradients, dict[str, Tensor]]:
        """Where derivatives of the loss of a batch begin, with their values, and what `backward` returns.

        The arguments are those of `forward`.
        """
        entries = self.entries(*fed)
        if type(self).loss is Objective.loss:
            with torch.no_grad():
                value, gradients = self._anchored(entries)
        else:
            loss = self.loss(entries)
            value, gradients = loss.detach(), [(loss, torch.ones_like(loss))]
        return gradients, {"loss": entries.flag(value), **self.loss_parts(), **self.diagnostics()}

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Add the estimate to `.grad` of the model's and the objective's parameters, and move block state.

        Args:
            model: Maps inputs to logits `[n, m]`, or to something that contains them (an object with
                `.logits`, a dict with `"logits"`, a tuple that begins with them). If it has
                `task_scores(inputs, tasks)`, task-sampled batches compute only the sampled heads.
            batch: A [`TaskBatch`][mmb.auc.TaskBatch] or [`DenseBatch`][mmb.auc.DenseBatch].

        Returns:
            Detached numbers worth logging, left on the device; `"loss"` is always among them.
        """
        self.watch_first_step(model)
        scores = model_scores(model, batch, self.num_tasks)
        gradients, numbers = self.measure(scores, batch.labels, batch.tasks, batch.weights, batch.rows)
        add_gradients(gradients)
        return numbers

    def entries(
        self,
        scores: Tensor,
        labels: Tensor,
        tasks: Tensor | None = None,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> WeightedScores:
        """Check a batch and weigh its entries; arguments as in `forward`."""
        check_tensors(scores=scores, labels=labels, tasks=tasks, weights=weights, rows=rows)
        if self.num_tasks == 1 and tasks is None:
            scores, labels = (part.unsqueeze(1) if part.dim() == 1 else part for part in (scores, labels))
        check_fed(scores, labels, tasks, weights, rows, self.num_tasks)
        scores = scores.to(torch.promote_types(scores.dtype, self.task_weight.dtype))
        # arithmetic instead of comparisons: several times faster on a CPU
        signs = labels.to(scores.dtype)
        signs = signs.nan_to_num(nan=float(MISSING)) if labels.is_floating_point() else signs
        if weights is not None:
            weights = weights.to(scores.dtype).reshape(len(weights), -1)  # broadcasts with scores
        scores, signs, weights, broken, self._skipped = screen(
            scores, signs, weights, tasks, self.bad_values, self.can_raise
        )
        # signs are new here; in place, because new tensors cost more than their arithmetic
        positive, others = signs.clamp(min=0), signs.square_()  # others than negatives
        if tasks is None:
            # importance / (n * rate), with rate = count / N
            importance = self.num_rows / labels.shape[0] * (1.0 if weights is None else weights)
            positive, each = positive.div_(self.positives).mul_(importance), importance / self.negatives
            negative = torch.addcmul(each, each, others, value=-1)
            task_weight, count = self.task_weight, self.num_usable
            rows = None if rows is None else rows.unsqueeze(1)
        else:
            scores, rows = scores.T, None if rows is None else rows.T
            positive, negative = (kind.T / kind.sum(1).clamp(min=1) for kind in (positive, 1 - others))
            task_weight, count = self.task_weight.index_select(0, tasks), tasks.numel()
            task_weight = task_weight if weights is None else task_weight * weights.squeeze(1)
        negative_mass = negative.sum(0)
        sampled = torch.logical_and(positive.sum(0) + negative_mass, task_weight)  # none is below zero
        scale = sampled * (task_weight / count).to(scores.dtype)
        return WeightedScores(scores, positive, negative, negative_mass, scale, sampled, tasks, rows, broken)

    def watch_first_step(self, model: nn.Module) -> None:
        """Warn if the optimizer of the model does not move the objective's own parameters, too."""
        if not self._watched and next(self.parameters(), None) is not None:
            watch_first_step(self, model)
        self._watched = True

    # -- What the labels say -----------------------------------------------------------------------------

    def set_class_counts(self, positives: Tensor, negatives: Tensor, num_rows: float) -> None:
        """Replace the class counts `[m]` and the total weight of rows, for data that arrives in parts."""
        usable = (positives > 0) & (negatives > 0)
        self.num_rows, self.num_usable = num_rows, int(usable.sum())
        for state, counts in ((self.positives, positives), (self.negatives, negatives)):
            state.copy_(torch.where(counts > 0, counts, 1.0))
        self.task_weight.copy_(task_weights(positives, negatives, self.task_weighting))
        self.num_trained = int((self.task_weight > 0).sum())

    def log_odds(self) -> Tensor:
        """`log(n+ / n-)` of each task, `[m]`: about where cross-entropy puts the logits."""
        return (self.positives / self.negatives).log()

    def task_mean(self, values: Tensor) -> Tensor:
        """Mean over the trained tasks of one value `[m]` for each; zero if no task is trained."""
        if self.num_trained == len(values):
            return values.mean()
        return torch.where(self.task_weight > 0, values, 0.0).sum() / max(self.num_trained, 1)

    # -- Block state -------------------------------------------------------------------------------------

    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Set block variables, if any, to their optimum for logits and labels `[n, m]` of a trained model.

        Training continues from there. With an `anchor`, tasks that have labels here stay near cross-entropy.
        """
        if self.anchor > 0:
            self.anchored = self.anchored or Anchor(self.anchor, self.task_weight)
            self.anchored.hold(self.entries(scores, labels).sampled)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Make room for an anchor, which the state has after a warm start, before loading it."""
        there = any(name.startswith(f"{prefix}anchored.") for name in state_dict)
        self.anchored = self.anchored or Anchor(self.anchor, self.task_weight) if there else None
        super()._load_from_state_dict(state_dict, prefix, *args)

    def start_at(self, model: nn.Module) -> None:
        """Set block state that follows the model's weights, if there is any, to these weights."""

    def prefetch(self, tasks: Tensor) -> None:
        """Start bringing the block state of the next batch's tasks (`[k]`, on the host) to the device."""

    def block_rates(self) -> dict[str, float]:
        """The step sizes of block variables, by name."""
        return {
            f"{prefix}.{name}".lstrip("."): float(getattr(module, name))
            for prefix, module in self.named_modules()
            for name in getattr(module, "rate_names", ())
        }

    def set_block_rates(self, rates: Mapping[str, float]) -> None:
        """Set step sizes of block variables, by the names of `block_rates`."""
        for name, rate in rates.items():
            prefix, _, own = name.rpartition(".")
            module = self.get_submodule(prefix)
            held = getattr(module, own)
            setattr(module, own, held.fill_(rate) if isinstance(held, Tensor) else rate)

    def hold_block_rates(self) -> None:
        """Keep step sizes of block variables in tensors on the device, where a captured step reads them."""
        for name, rate in self.block_rates().items():
            prefix, _, own = name.rpartition(".")
            setattr(self.get_submodule(prefix), own, self.task_weight.new_tensor(rate))

    def per_positive_state(self) -> list[str]:
        """Entries of the state dict with a row per positive label (by row, then task) instead of per task."""
        return self._values_of(PerPositive)

    def shared_state(self) -> list[str]:
        """Entries of the state dict that belong to no single task, which processes cannot divide."""
        return self._values_of(PreviousWeights)

    def _values_of(self, kind: type[nn.Module]) -> list[str]:
        return [f"{prefix}.value" for prefix, module in self.named_modules() if isinstance(module, kind)]

    # -- Memory and capture ------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Size of the state, nearly all of it block state: duals, thresholds, copies of weights."""
        return sum(state.numel() * state.element_size() for state in self.state_dict().values())

    def memory_note(self) -> str | None:
        """One line on what the block state takes in memory, if that is worth knowing before training."""
        return None

    @classmethod
    def check_memory(cls, model: nn.Module, options: Mapping[str, Any], sharers: int = 1) -> None:
        """Refuse block state that cannot fit in memory, before it is created; by default everything fits.

        `options` are those of the constructor; `sharers` is how many processes on this machine need as much.
        """

    @classmethod
    def capture_problem(cls, options: Mapping[str, Any]) -> str | None:
        """Why a step with these options cannot be captured as a CUDA graph; None if it can."""
        return None

    def reserve(self, positives: int) -> None:
        """Make room for this many positives per batch, so that no shape depends on the data of a batch.

        It is called before a step is captured, with a number well above what occurs.
        """

    # -- What is logged and reported ---------------------------------------------------------------------

    def loss_parts(self) -> dict[str, Tensor]:
        """The terms of the last loss, if it has several; they add up over processes, as the loss does.

        With `bad_values` of "skip", `skipped` is the number of entries that were left out.
        """
        return {"skipped": self._skipped} if self.bad_values == "skip" else {}

    def diagnostics(self) -> dict[str, Tensor]:
        """Numbers that show whether training works, from the state alone: scalars on the state's device."""
        return {}

    @property
    def tracks_thresholds(self) -> bool:
        """Whether each task has a tracked operating point."""
        return False

    def thresholds(self, scores: Tensor | None = None, labels: Tensor | None = None) -> Tensor | None:
        """Each task's tracked operating point `[m]`, a logit; None if nothing is tracked."""
        return None

    def threshold_report(self, scores: Tensor, labels: Tensor) -> ThresholdReport | None:
        """Tracked thresholds next to what they should be for the logits and labels `[n, m]` of some rows."""
        return None

    # -- Many processes: these defaults are for an objective that has all tasks ----------------------------

    @property
    def own_tasks(self) -> slice:
        """The tasks whose state this process has."""
        return slice(0, self.num_tasks)

    def share(self, part: Part) -> Part:
        """This process's share of a draw or a batch that all processes have."""
        return part

    def input_rows(self, num_rows: int) -> slice:
        """Which rows of a dense batch this process evaluates."""
        return slice(0, num_rows)

    def gather_tasks(self, values: Tensor) -> Tensor:
        """Values of all tasks `[m, ...]`, from those of the tasks of each process."""
        return values

    def gradient_norm(self, model: nn.Module) -> Tensor:
        """Norm of the gradients of the model and the objective, of all processes together."""
        parameters = [*model.parameters(), *self.parameters()]
        return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])

    def average_running_statistics(self, model: nn.Module) -> None:
        """Make the running statistics of batch normalization the same in all processes."""


def as_objective_class(found: Any, name: str) -> type[Objective]:
    """What was found under a name, if it is a class derived from Objective; ValueError if not."""
    if not (isinstance(found, type) and issubclass(found, Objective)):
        raise ValueError(f"{name} is not a class derived from mmb.auc.Objective")
    return found
