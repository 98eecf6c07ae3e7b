"""Sum: several objectives at once, weighed in comparable units."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from mmb._numbers import check_positive, check_range
from mmb.auc.batches import Batch, TaskBatch
from mmb.auc.model_scores import model_scores
from mmb.auc.objective import Objective
from mmb.auc.parts.anchor import BETA, follow_size
from mmb.auc.parts.autograd import Gradients, Result, add_gradients
from mmb.auc.parts.tracked_thresholds import ThresholdReport
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.sharded import ShardedObjective


class Sum(Objective):
    r"""A weighted sum of objectives, which is itself an objective.

    The gradient of task `k` at its logits is

    $$
    \sum_i w_i \frac{n_{1k}}{n_{ik}} g_{ik},
    \qquad n_{ik}^2 \leftarrow (1 - \beta)\, n_{ik}^2 + \beta\, \|g_{ik}\|^2,
    $$

    with $g_{ik}$ that of part `i`. So weights are strengths relative to the first part, whatever the units of
    the others, in each task alike, however rare its positives are; and the sum has the units of its first
    part: a step size and a weight decay that suit cross-entropy suit cross-entropy plus anything. The sizes
    $n_{ik}$ are block state, and a batch counts before it is used: one large gradient is at most
    $1/\sqrt\beta$ times too large.

    Parts keep their block state, and see the batches as if they were alone: duals and thresholds, and the
    parameters of a part, move as without the others.

    Parts that evaluate the model themselves (compositional training) are given the batch in turn, and each
    evaluates the model once more.

    Args:
        parts: Pairs of a weight, positive, and an objective. All are made from the same labels, and each is
            in one sum only. Each may have its own task weighting.
        names: The name of each part in state, logs and step sizes; by default that of its class.
        rescale: Whether gradients are brought to the size of the first part's. If not, the sum is plain, with
            the weights as they are, and also scales the gradients of the parts' own parameters.
        beta: Weight of the newest gradient in the tracked sizes, in (0, 1].

    Attributes:
        parts: The objectives, by name.
        weights: Their weights, in the same order.
    """

    size: Tensor

    def __init__(
        self,
        parts: Sequence[tuple[float, Objective]],
        *,
        names: Sequence[str] | None = None,
        rescale: bool = True,
        beta: float = BETA,
    ) -> None:
        check_range("(0, 1]", beta=beta)
        weights, objectives = _checked(parts)
        nn.Module.__init__(self)  # the parts have what Objective.__init__ makes of the labels
        names = _class_names(objectives) if names is None else list(names)
        if len(names) != len(objectives) or len(set(names)) != len(names):
            raise ValueError(f"names: expected {len(objectives)} different ones, got {names}")
        check_names(names)
        first = objectives[0]
        self.task_weighting, self.anchored = first.task_weighting, None  # cross-entropy may be a part
        for name in ("num_rows", "num_tasks", "num_usable", "num_trained"):
            setattr(self, name, getattr(first, name))
        for name in ("task_weight", "positives", "negatives"):
            self.register_buffer(name, getattr(first, name).clone(), persistent=False)
        self.parts = nn.ModuleDict(dict(zip(names, objectives, strict=True)))
        self.weights, self.rescale, self.beta = weights, rescale, beta
        self.by_entry = not rescale and all(part.by_entry for part in objectives)
        self.evaluates_model = any(part.evaluates_model for part in objectives)
        self.weights_per_task = any(part.weights_per_task for part in objectives)
        if rescale:  # squares n^2; both of a ratio start at zero, so that no correction is needed
            self.register_buffer("size", first.task_weight.new_zeros(self.num_tasks, len(weights)))
        self._values = [first.task_weight.new_zeros(()) for _ in weights]  # the parts' losses on this batch
        self._skipped = first.task_weight.new_zeros(())
        self._first_size = first.task_weight  # n^2 of the first part on this batch
        # those that may refuse a batch come first, before any state moves
        self._order = sorted(
            range(len(weights)), key=lambda index: not objectives[index].per_positive_state()
        )
        self._own_parts()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, or an unpickled sum, also is what its parts are in."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._own_parts()

    def _own_parts(self) -> None:
        """Note what the parts are in, unless that is another sum: a shallow copy shares them with it."""
        _OWNERS.update({part: ref(self) for part in self.objectives() if not _is_owned(part)})

    def objectives(self) -> Iterator[Objective]:
        """The parts, in order."""
        for part in self.parts.values():
            assert isinstance(part, Objective)
            yield part

    # -- The estimate ----------------------------------------------------------------------------------------

    def estimate(self, entries: WeightedScores) -> Result:
        """The weighted sum of the parts' values, and of their gradients in units of the first one's."""
        weighed = [self._weighed(entries, part) for part in self.objectives()]
        found: dict[int, Result] = {}
        parts = list(self.objectives())
        for index in self._order:
            found[index] = _estimate(parts[index], weighed[index])
        adjusted = [self._adjusted(index, part, found[index])[1] for index, part in enumerate(weighed)]
        total = adjusted[0][0][1]
        for gradients in adjusted[1:]:
            total = total + gradients[0][1]
        own = [pair for gradients in adjusted for pair in gradients[1:]]
        return self._value(), [(entries.logits, total), *own]

    def _weighed(self, entries: WeightedScores, part: Objective) -> WeightedScores:
        """The entries with the task weights of a part."""
        if part.task_weighting == self.task_weighting:
            return entries
        share = part.task_weight / torch.where(self.task_weight > 0, self.task_weight, 1.0)
        return replace(entries, scale=entries.scale * entries.gather(share))

    def _adjusted(self, index: int, entries: WeightedScores, result: Result) -> Result:
        """A part's result, times its weight, in units of the first part; follows the size of its gradient."""
        value, ((logits, by_logits), *own) = result
        self._values[index] = entries.flag(value.detach())
        weight = self.weights[index]
        if not self.rescale:
            return value, [(to, weight * by) for to, by in result[1]]
        size = follow_size(entries, self.size[:, index], by_logits, self.beta, self.training)
        if index == 0:
            self._first_size = size
            return value, [(logits, weight * by_logits), *own]
        ratio = torch.where(size > 0, (self._first_size / size).sqrt(), 0.0)
        return value, [(logits, weight * ratio * by_logits), *own]

    def _value(self) -> Tensor:
        """The weighted sum of the parts' losses."""
        return torch.stack(
            [weight * one for weight, one in zip(self.weights, self._values, strict=True)]
        ).sum()

    def backward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Add the estimate to `.grad`, and move the state of all parts."""
        if not self.evaluates_model:
            return super().backward(model, batch)
        self.watch_first_step(model)
        parts = [part for part in self.objectives() if not part.evaluates_model]
        moved = [value for part in parts for value in part.state_dict().values()]
        moved += [self.size] if self.rescale else []
        before = [value.clone() for value in moved]
        try:
            self._in_turn(model, batch)
        except Exception:
            for value, old in zip(moved, before, strict=True):
                value.copy_(old)
            raise
        return {"loss": self._value(), **self.loss_parts(), **self.diagnostics()}

    def _in_turn(self, model: nn.Module, batch: Batch) -> None:
        """Gradients part by part; those that need only scores share one evaluation of the model."""
        entries: WeightedScores | None = None
        gradients: Gradients = []
        for index, part in enumerate(self.objectives()):
            if part.evaluates_model:
                part.bad_values, part.can_raise = self.bad_values, self.can_raise
                part.adjust = partial(self._adjusted, index)
                try:
                    part.backward(model, batch)
                finally:
                    part.adjust = None
                continue
            entries = self._scored(model, batch) if entries is None else entries
            weighed = self._weighed(entries, part)
            with torch.no_grad():
                gradients += self._adjusted(index, weighed, _estimate(part, weighed))[1]
        if gradients:
            add_gradients(gradients)

    def _scored(self, model: nn.Module, batch: Batch) -> WeightedScores:
        """The batch with the model's scores; its tasks may be on the host."""
        tasks = None
        if isinstance(batch, TaskBatch):
            tasks = batch.tasks.to(self.task_weight.device, non_blocking=True)
            batch = replace(batch, tasks=tasks)
        scores = model_scores(model, batch, self.num_tasks)
        return self.entries(scores, batch.labels, tasks, batch.weights, batch.rows)

    # -- What the labels say, block state, memory: that of all parts -----------------------------------------

    def set_class_counts(self, positives: Tensor, negatives: Tensor, num_rows: float) -> None:
        """Use other class counts `[m]` and weight of all rows, in all parts."""
        super().set_class_counts(positives, negatives, num_rows)
        for part in self.objectives():
            part.set_class_counts(positives, negatives, num_rows)

    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put block variables of all parts at their optimum for these logits and labels `[n, m]`."""
        for part in self.objectives():
            part.warm_start(scores, labels)

    def start_at(self, model: nn.Module) -> None:
        """Put block state that follows the model's weights at these weights."""
        for part in self.objectives():
            part.start_at(model)

    def prefetch(self, tasks: Tensor) -> None:
        """Start bringing the block state of the next batch's tasks to the device."""
        for part in self.objectives():
            part.prefetch(tasks)

    def reserve(self, positives: int) -> None:
        """Make room for this many positives per batch in all parts."""
        for part in self.objectives():
            part.reserve(positives)

    def memory_note(self) -> str | None:
        """Those of the parts."""
        return "; ".join(filter(None, (part.memory_note() for part in self.objectives()))) or None

    # -- What is logged and reported -------------------------------------------------------------------------

    def loss_parts(self) -> dict[str, Tensor]:
        """The loss of each part on the last batch, without its weight: `NAME.loss`."""
        found = {f"{name}.loss": value for name, value in zip(self.parts, self._values, strict=True)}
        return {**found, **super().loss_parts()}

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """Those of each part, as `NAME.gap`, and `NAME.factor`: what its gradient is multiplied by."""
        found: dict[str, Tensor] = {}
        for index, (name, part) in enumerate(zip(self.parts, self.objectives(), strict=True)):
            found |= {f"{name}.{key}": value for key, value in part.diagnostics().items()}
            if self.rescale and index > 0:
                first, size = self.size[:, 0], self.size[:, index]
                ratio = torch.where(size > 0, (first / size).sqrt(), 0.0)
                found[f"{name}.factor"] = self.weights[index] * self.task_mean(ratio)
        return found

    @property
    def tracks_thresholds(self) -> bool:
        """Whether a part does."""
        return any(part.tracks_thresholds for part in self.objectives())

    def thresholds(self, scores: Tensor | None = None, labels: Tensor | None = None) -> Tensor | None:
        """Operating points `[m]` of the first part that tracks any."""
        found = (part.thresholds(scores, labels) for part in self.objectives())
        return next((one for one in found if one is not None), None)

    def threshold_report(self, scores: Tensor, labels: Tensor) -> ThresholdReport | None:
        """That of the first part that tracks thresholds."""
        found = (part.threshold_report(scores, labels) for part in self.objectives())
        return next((one for one in found if one is not None), None)


_OWNERS: WeakKeyDictionary[Objective, ReferenceType[Sum]] = WeakKeyDictionary()  # the sum that each is in


def _is_owned(part: Objective) -> bool:
    """Whether a part is in a sum that still exists."""
    owner = _OWNERS.get(part)
    return owner is not None and owner() is not None


def check_names(names: Sequence[Any]) -> None:
    """Raise ValueError for a name that a part of a sum cannot have, as that of a module."""
    for name in names:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"names: expected texts without a dot, got {name!r}: choose another")
        if hasattr(nn.ModuleDict(), name):
            raise ValueError(f"names: {name!r} is taken, by a method or attribute of torch's: choose another")


def _checked(parts: Sequence[tuple[float, Objective]]) -> tuple[tuple[float, ...], list[Objective]]:
    """Weights and objectives of a sum, if they belong together."""
    if not len(parts):
        raise ValueError("parts: expected at least one pair (weight, objective), got none")
    for pair in parts:
        if not (isinstance(pair, Sequence) and len(pair) == 2 and isinstance(pair[1], Objective)):
            raise TypeError(f"parts: expected pairs (weight, objective), got {pair!r}")
    weights, objectives = tuple(weight for weight, _ in parts), [objective for _, objective in parts]
    for index, weight in enumerate(weights):
        check_positive(**{f"weight of part {index}": weight})
    first = objectives[0]
    for index, part in enumerate(objectives):
        kind = type(part).__name__
        if isinstance(part, ShardedObjective):
            raise TypeError(f"part {index} is a ShardedObjective: divide the sum, not its parts")
        if any(part is other for other in objectives[:index]) or _is_owned(part):
            raise ValueError(
                f"part {index} ({kind}) is in a sum already, which moves its state: make another"
            )
        if part.num_tasks != first.num_tasks:
            raise ValueError(f"part {index} ({kind}) has {part.num_tasks} tasks, the first {first.num_tasks}")
        pairs = ((part.positives, first.positives), (part.negatives, first.negatives))
        if part.num_rows != first.num_rows or not all(torch.equal(one, other) for one, other in pairs):
            raise ValueError(f"part {index} ({kind}) was made from other labels than the first part")
    return tuple(float(weight) for weight in weights), objectives


def _class_names(objectives: Sequence[Objective]) -> list[str]:
    """Names of the classes; repeated ones are numbered."""
    names: list[str] = []
    for part in objectives:
        kind, again = type(part).__name__, sum(type(part) is type(o) for o in objectives[: len(names)])
        names.append(f"{kind}-{again + 1}" if again else kind)
    return names


def _estimate(part: Objective, entries: WeightedScores) -> Result:
    """Value and derivatives of any objective, including one that only has a loss."""
    if type(part).estimate is not Objective.estimate:
        return part.estimate(entries)
    logits, parameters = entries.logits.detach().requires_grad_(), list(part.parameters())
    with torch.enable_grad():
        value = part.loss(replace(entries, logits=logits))
    found = torch.autograd.grad(value, [logits, *parameters], materialize_grads=True)
    return value.detach(), list(zip([entries.logits, *parameters], found, strict=True))
