"""What mAUC-CT makes rank well: the weights, which are kept, or the copies, whose AUC it maximizes.

    python benchmarks/copies_ranking.py RUN [RUN ...] [--steps 3425]

Reads checkpoints of runs of mAUC-CT whose network is a perceptron with one hidden layer. Prints AUC, the
mean over tasks, of three sets of weights: w; the copies u_i, each task with its own; and fresh inner steps
w - inner_lr grad CE_i(w), from up to 512 training positives and 512 negatives of each task. Also how far the
latter two are from w, as shares of its norm (root mean squares over tasks).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from _timing import machine, print_json, print_table
from mmb.data import Dataset
from mmb.metrics import roc_auc
from mmb.training import Run
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint

ROWS = 512  # of each class, for a fresh inner step
Weights = Sequence[Tensor]  # matrix and bias of the hidden layer, vector and bias of the task's head


def logits(inputs: Tensor, weights: Weights) -> Tensor:
    """Logits of one task."""
    matrix, bias, head, shift = weights
    return torch.relu(inputs @ matrix.T + bias) @ head + shift


def fresh_step(dataset: Dataset, task: int, weights: Weights, inner_lr: float) -> list[Tensor]:
    """The weights of a task after an inner step."""
    rows = dataset.split["train"]
    labels = dataset.labels[rows, task]
    generator = torch.Generator().manual_seed(task)
    leaves = [weight.detach().requires_grad_() for weight in weights]
    loss = torch.zeros(())
    for value, sign in ((1, -1.0), (0, 1.0)):
        members = rows[labels == value]
        some = members[torch.randperm(len(members), generator=generator)[:ROWS]]
        loss = loss + 0.5 * functional.softplus(sign * logits(dataset.inputs[some], leaves)).mean()
    steps = torch.autograd.grad(loss, leaves)
    return [weight - inner_lr * step for weight, step in zip(weights, steps, strict=True)]


def distance(stack: Sequence[Weights], own: Sequence[Weights]) -> float:
    """Root mean square over tasks of the distance of weights from the model's, as a share of their norm."""

    def square(weights: Weights) -> float:
        return sum(float(weight.square().sum()) for weight in weights)

    apart = [[u - w for u, w in zip(us, ws, strict=True)] for us, ws in zip(stack, own, strict=True)]
    return (sum(map(square, apart)) / sum(map(square, own))) ** 0.5


def mean_auc(dataset: Dataset, part: str, stack: Sequence[Weights]) -> str:
    """AUC on a part of the data, the mean over tasks, each with its own weights."""
    rows = dataset.split[part]
    inputs = dataset.inputs[rows]
    matrix, bias, _, _ = stack[0]
    if all(weights[0] is matrix for weights in stack):  # one hidden layer for all tasks
        hidden = torch.relu(inputs @ matrix.T + bias)
        heads, shifts = (torch.stack([weights[place] for weights in stack]) for place in (2, 3))
        scores = hidden @ heads.T + shifts
    else:
        scores = torch.stack([logits(inputs, weights) for weights in stack], 1)
    return f"{float(roc_auc(scores, dataset.labels[rows]).nanmean()):.4f}"


@torch.no_grad()
def measure(path: Path, steps: Sequence[int]) -> Iterator[list[str]]:
    """A row of the table for each of the steps that has a checkpoint."""
    run = Run.open(path)
    setup = make_setup(run.recipe)
    objective, dataset, tasks = setup.objective, setup.dataset, range(len(setup.dataset.task_names))
    for place in (place for place in checkpoint.steps(run.checkpoints) if int(place.name) in steps):
        saved = checkpoint.load(place)
        setup.load_state_dict(saved["job"])
        matrix, bias, heads, shifts = objective.copies.weights(setup.model, None)
        own = [(matrix, bias, heads[task], shifts[task]) for task in tasks]
        kept = [[part[task] for part in objective.copies.split(objective.copies.stacked)] for task in tasks]
        if objective.copies.kept == "offsets":
            kept = [[u + w for u, w in zip(us, ws, strict=True)] for us, ws in zip(kept, own, strict=True)]
        with torch.enable_grad():
            fresh = [fresh_step(dataset, task, own[task], objective.inner_lr) for task in tasks]
        name = f"{objective.copies.kept}, {objective.inner_lr:g}, seed {run.recipe.seed}"
        aucs = [mean_auc(dataset, part, stack) for part in ("valid", "test") for stack in (own, kept, fresh)]
        far = [f"{distance(stack, own):.3f}" for stack in (kept, fresh)]
        yield [name, str(saved["progress"]["step"]), *aucs, *far]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--steps", nargs="+", type=int, default=[3425], help="the checkpoints to read")
    options = parser.parse_args()
    torch.set_num_threads(1)
    heading = ["copies, inner step", "step", *(f"{part} {of}" for part in ("valid", "test") for of in "wuf")]
    heading += ["|u - w|", "|f - w|"]
    rows = [row for path in options.runs for row in measure(path, options.steps)]
    print_table("AUC, the mean over tasks, of weights w, copies u and fresh steps f", heading, rows)
    found = [dict(zip(heading, row, strict=True)) for row in rows]
    print_json({"benchmark": "copies_ranking", "machine": machine(), "rows": found})


if __name__ == "__main__":
    main()
