"""Random batches with values that nobody should feed, and what must hold afterwards, whatever they are."""

from __future__ import annotations

import random
from collections import Counter

import torch

from mmb import auc
from mmb.auc.parts.bad_values import score_limit, weight_limit
from objective_bank import OBJECTIVES, Data, make_data, state

NAN, INF = float("nan"), float("inf")
BAD_SCORES = [NAN, INF, -INF, 1e20, -1e20, 3e38, -3e38, 1e9]
BAD_WEIGHTS = [NAN, INF, -INF, -1.0, -1e-3, -1e30, 1e30, 3e38]
LARGE_SCORES = [1e7, -1e7, 4e7, 1e4, -300.0, 0.0]
LARGE_WEIGHTS = [0.0, 1e-30, 1e6, 4e9]
KEPT = {"compositional": "weights", "offsets": "offsets", "no copies": "none"}
EVALUATE = [*KEPT, "heads"]
NAMES = [*OBJECTIVES, *EVALUATE]


class Fuzz:
    """Objectives that are fed bad batches, over and over; a case is determined by its number."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.data = {
            dtype: make_data(rows=12, tasks=4, dtype=dtype) for dtype in (torch.float32, torch.float64)
        }
        self.forget()

    def forget(self) -> None:
        """Start all objectives anew."""
        self.objectives = {(n, d): self._make(n, self.data[d]) for n in NAMES for d in self.data}

    def _make(self, name: str, data: Data) -> auc.Objective:
        if name in OBJECTIVES:
            objective = OBJECTIVES[name](data.labels)
        elif name == "heads":
            objective = auc.HeadCompositionalAUC(data.labels, data.model)
        else:
            objective = auc.CompositionalAUC(data.labels, data.model, copies_as=KEPT[name])
        return objective.to(data.inputs.dtype)

    def run(self, number: int) -> str:
        """Check one case; returns what happened. An AssertionError names the case."""
        draw = random.Random(number)
        name, dtype = draw.choice(NAMES), draw.choice(list(self.data))
        data, objective = self.data[dtype], self.objectives[name, dtype]
        objective.bad_values = draw.choice(["refuse", "refuse", "skip"])
        objective.can_raise = draw.random() < 0.6
        before = state(objective)
        try:
            if name in EVALUATE:
                outcome = self._through_the_model(draw, data, objective, before)
            else:
                outcome = self._scores(draw, data, objective, before)
        except AssertionError as error:
            raise AssertionError(f"case {number} ({name}, {dtype}): {error}") from error
        finally:
            if draw.random() < 0.2:  # most cases go on from where the last one left the state
                objective.load_state_dict(before)
        self.outcomes[outcome] += 1
        return outcome

    def _scores(self, draw: random.Random, data: Data, objective: auc.Objective, before: dict) -> str:
        """Bad scores and weights, at labeled or at missing entries."""
        torch_draw = torch.Generator().manual_seed(draw.getrandbits(40))
        batch = _batch(draw, data, torch_draw)
        tasks = getattr(batch, "tasks", None)
        labels = batch.labels
        scores = torch.randn(labels.shape, generator=torch_draw, dtype=data.inputs.dtype) * 3
        weights = _weights(draw, labels, tasks, torch_draw)
        clean = scores.clone(), None if weights is None else weights.clone()
        where = draw.choice(["labeled", "missing", "anywhere", "large"])
        large = where == "large"
        places = _places(labels, where)
        for _ in range(draw.randint(1, 3) if len(places) else 0):
            place = tuple(draw.choice(places).tolist())
            if weights is None or draw.random() < 0.6:
                scores[place] = draw.choice(LARGE_SCORES if large else BAD_SCORES)
            elif weights.dim() == 2 or where != "missing":
                at = place if weights.dim() == 2 else place[:1]
                weights[at] = draw.choice(LARGE_WEIGHTS if large else BAD_WEIGHTS)
        spoiled = ~(scores.abs() <= score_limit(scores.dtype))
        if weights is not None:
            wrong = ~((weights >= 0) & (weights.to(scores.dtype) <= weight_limit(scores.dtype)))
            spoiled |= wrong.reshape(len(wrong), -1)
        bad = int((spoiled & (labels >= 0)).sum())
        leaf = scores.requires_grad_()
        objective.zero_grad()
        refused = ""
        try:
            loss = objective(leaf, labels, tasks, weights, batch.rows)
            loss.backward()
        except auc.BadValueError as error:
            refused = str(error)
        expected = bad > 0 and objective.bad_values == "refuse" and objective.can_raise
        assert expected == bool(refused), f"refused: {refused}"
        if refused:
            assert all(word in refused for word in ("task", "row")), refused
            assert _same(state(objective), before), "state has changed"
            assert leaf.grad is None
            return "refused"
        assert sane(objective), "state is not finite"
        assert bool(leaf.grad.isfinite().all()), "gradient is not finite"
        if bad and objective.bad_values == "refuse":
            assert bool(loss.isnan()), "loss is not NaN"
            assert not leaf.grad.any(), "there is a gradient"
            assert _same(state(objective), before), "state has changed"
            return "without effect"
        assert bool(loss.isfinite()), "loss is not finite"
        if objective.bad_values == "skip":
            assert int(objective.loss_parts()["skipped"]) == bad, "not counted"
        if bad:
            return "skipped"
        if where != "missing":
            return "large values"
        after, gradient = state(objective), leaf.grad.clone()
        objective.load_state_dict(before)
        leaf = clean[0].requires_grad_()
        objective(leaf, labels, tasks, clean[1], batch.rows).backward()
        assert _same(state(objective), after), "values at missing labels matter to the state"
        assert torch.equal(leaf.grad, gradient), "values at missing labels matter to the gradient"
        return "missing labels"

    def _through_the_model(
        self, draw: random.Random, data: Data, objective: auc.Objective, before: dict
    ) -> str:
        """Bad inputs and weights, for objectives that evaluate the model."""
        torch_draw = torch.Generator().manual_seed(draw.getrandbits(40))
        batch = _batch(draw, data, torch_draw)
        lower = None
        if isinstance(batch, auc.TaskBatch) and draw.random() < 0.5:
            lower = auc.TaskBatch(batch.inputs.flip(1).clone(), batch.labels.flip(1), batch.tasks)
        weights = _weights(draw, batch.labels, getattr(batch, "tasks", None), torch_draw)
        inputs = batch.inputs.clone()
        target = draw.choice(["inputs", "lower", "weights"])
        if target == "weights" and weights is not None:
            weights.view(-1)[draw.randrange(weights.numel())] = draw.choice(BAD_WEIGHTS)
        chosen = lower.inputs if target == "lower" and lower is not None else inputs
        chosen.view(-1)[draw.randrange(chosen.numel())] = draw.choice(BAD_SCORES)
        changes = {"inputs": inputs, "weights": weights}
        fields = {**vars(batch), **changes} | ({"lower": lower} if lower is not None else {})
        data.model.zero_grad(set_to_none=True)
        objective.zero_grad(set_to_none=True)
        try:
            objective.backward(data.model, type(batch)(**fields))
        except auc.BadValueError:
            assert objective.can_raise, "raised"
            assert _same(state(objective), before), "state has changed"
            assert all(p.grad is None for p in data.model.parameters())
            return "refused"
        assert sane(objective), "state is not finite"
        return "went on"


def sane(objective: auc.Objective) -> bool:
    """Whether all state is finite; the logarithms of SOPA-s start at minus infinity."""
    return all(
        bool((value < INF).all() if key.endswith("log_mean.value") else value.isfinite().all())
        for key, value in objective.state_dict().items()
    )


def _batch(draw: random.Random, data: Data, generator: torch.Generator) -> auc.Batch:
    if draw.random() < 0.5:
        return data.dense(torch.randperm(12, generator=generator)[: draw.randint(2, 12)])
    tasks = torch.randperm(data.num_tasks, generator=generator)[: draw.randint(1, data.num_tasks)]
    rows = torch.stack([torch.randperm(12, generator=generator)[:6] for _ in tasks])
    return auc.TaskBatch(data.inputs[rows], data.labels[rows, tasks[:, None]], tasks, rows)


def _weights(
    draw: random.Random, labels: torch.Tensor, tasks: torch.Tensor | None, generator: torch.Generator
) -> torch.Tensor | None:
    shapes = [None, labels.shape[:1]] if tasks is not None else [None, labels.shape[:1], labels.shape]
    shape = draw.choice(shapes)
    if shape is None:
        return None
    return torch.rand(shape, generator=generator, dtype=draw.choice([torch.float32, torch.float64])) + 0.2


def _places(labels: torch.Tensor, where: str) -> torch.Tensor:
    if where == "missing":
        return (labels == -1).nonzero()
    return (labels >= 0).nonzero() if where == "labeled" else torch.ones_like(labels).nonzero()


def _same(left: dict, right: dict) -> bool:
    return all(torch.equal(value, right[key]) for key, value in left.items())
