"""Training steps with an objective of all tasks, or with one divided among processes."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist

from mmb import auc
from mmb.auc.sharded import ShardedObjective, owned_heads
from mmb.distributed import Shard
from mmb.training.processes.sharded_state import places
from objective_bank import OBJECTIVES, Data, estimate, make_data, randomize_state

NAMES = [*OBJECTIVES, "compositional"]
WEIGHTED, PLAIN = ("weighted tasks", "weighted rows"), ("tasks", "rows", "few rows")
CASES = [(name, kind) for name in NAMES for kind in WEIGHTED]
FEW_CASES = [(n, k) for n in ("partial-full", "focal", "sopa", "compositional") for k in (*WEIGHTED, *PLAIN)]
CASES += [case for case in FEW_CASES if case not in CASES]
UNBIASED = ["minmax", "partial-full", "pairwise-hinge-full", "cross-entropy", "compositional"]
STEPS, TASKS = 3, 7


def make_objective(name, labels, model):
    if name == "compositional":
        return auc.CompositionalAUC(labels, model, inner_lr=0.3, task_weighting=0.5)
    return OBJECTIVES[name](labels, task_weighting=0.5)


def make_sharded(name, data: Data) -> ShardedObjective:
    shard = Shard.of_this_process(data.num_tasks)
    return ShardedObjective(
        data.labels, lambda part: make_objective(name, part, _heads_for(name, data.model, shard, part))
    ).to(torch.float64)


def _heads_for(name, model, shard, part):
    return owned_heads(model, shard) if name == "compositional" else model


def batches(kind: str, data: Data) -> list[auc.Batch]:
    """A few batches, the same in every process."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for step in range(STEPS):
        if kind.endswith("tasks"):
            tasks = torch.randperm(TASKS, generator=generator)[: 1 + step % 4].tolist()
            batch = data.sampled(tasks, rows=9)
            weights = torch.rand(len(tasks), generator=generator) + 0.5 if kind.startswith("w") else None
            lower = data.sampled(tasks, rows=8)
            made.append(auc.TaskBatch(batch.inputs, batch.labels, batch.tasks, batch.rows, lower, weights))
        else:
            count = 3 if kind.startswith("few") else 13
            rows = torch.randperm(len(data.inputs), generator=generator)[:count]
            weights = torch.rand(count, generator=generator) + 0.5 if kind.startswith("w") else None
            made.append(data.dense(rows, weights))
    return made


def run_steps(name: str, kind: str, sharded: bool) -> dict[str, list]:
    """Weights, block state (all of it, by name) and logged numbers after a few steps of Adam."""
    data = make_data(seed=3, tasks=TASKS)
    data.labels[:, 2] = -1  # a task that is left out
    data.labels[0, 2] = 1
    whole = make_objective(name, data.labels, data.model).to(torch.float64)
    randomize_state(whole, data)
    objective: auc.Objective = whole
    if sharded:
        objective = make_sharded(name, data)
        known = places(objective, data.labels)
        objective.load_state_dict({key: known[key].find(v) for key, v in whole.state_dict().items()})
    parameters = [*data.model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    numbers = []
    for batch in batches(kind, data):
        optimizer.zero_grad()
        share = objective.share(batch) if isinstance(objective, ShardedObjective) else batch
        found = objective.backward(data.model, share)
        optimizer.step()
        numbers.append([float(found[key]) for key in sorted(found)])
    state = objective.state_dict()
    return {
        "numbers": numbers,
        **{f"model.{key}": value.tolist() for key, value in data.model.state_dict().items()},
        **{key: _by_task(objective, data, key, value) for key, value in state.items()},
    }


def _by_task(objective, data, key, value):
    return places(objective, data.labels)[key].piece(value).tolist()


def in_this_group(cases: list[tuple[str, str]]) -> dict[str, Any]:
    """Everything that the tests ask of one group of processes, so that each group starts once."""
    warnings.simplefilter("ignore")
    world = dist.get_world_size()
    return {
        "steps": {f"{name}/{kind}": run_steps(name, kind, sharded=True) for name, kind in cases},
        "bytes": {kind: bytes_reduced(kind) for kind in ("sampled", "compositional")} if world == 2 else {},
        "means": {name: mean_over_all_draws(name) for name in UNBIASED} if world == 3 else {},
        "refusal": refusal(),
    }


def refusal() -> str:
    """What an objective with state that belongs to no task is told."""
    data = make_data()
    try:
        auc.ShardedObjective(data.labels, lambda some: auc.MSVRAveragePrecision(some, data.model))
    except ValueError as error:
        return str(error)
    return ""


def bytes_reduced(kind: str) -> list[int]:
    """Bytes that one step hands to all-reduces, with few tasks and with many."""
    found, real = [], dist.all_reduce

    def counting(tensor, *args, **kwargs):
        found[-1] += tensor.numel() * tensor.element_size()
        return real(tensor, *args, **kwargs)

    dist.all_reduce = counting
    for tasks in (10, 1000):
        found.append(0)
        data = make_data(tasks=tasks)
        objective = make_sharded("partial-full" if kind == "sampled" else "compositional", data)
        objective.backward(data.model, objective.share(data.sampled([1, 7, 9])))
    dist.all_reduce = real
    return found


def mean_over_all_draws(name: str) -> dict[str, list]:
    """The estimate averaged over every possible draw of two tasks, each with all its rows."""
    data = make_data(seed=4, tasks=TASKS)
    objective = make_sharded(name, data).eval()  # block state stays
    everything, draws = data.everything(), list(combinations(range(TASKS), 2))
    total: dict[str, torch.Tensor] = {}
    for draw in draws:
        keep = torch.tensor(draw)
        batch = auc.TaskBatch(
            everything.inputs[keep], everything.labels[keep], everything.tasks[keep], everything.rows[keep]
        )
        for key, gradient in estimate(objective, data, objective.share(batch)).items():
            total[key] = total.get(key, 0) + gradient / len(draws)
    return {key: gradient.tolist() for key, gradient in total.items()}
