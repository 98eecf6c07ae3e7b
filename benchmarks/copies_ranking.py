"""What mAUC-CT makes rank well: the weights, which are kept, or the copies, whose AUC it maximizes.

    python benchmarks/copies_ranking.py RUN [RUN ...] [--steps 3425]

Reads checkpoints of runs of mAUC-CT. Prints AUC, the mean over tasks, of three sets of weights: w; the
copies u_i, each task with its own; and fresh inner steps w - inner_lr grad CE_i(w), from up to 512 training
positives and 512 negatives of each task. Statistics of batch normalization are those of each set of weights,
but for the gradient of the inner step those of w. Also how far the latter two are from w, as shares of its
norm (root mean squares over tasks).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from _timing import machine, print_json, print_table
from mmb.metrics import roc_auc
from mmb.training import Run
from mmb.training.loop.evaluate import recalibrate, row_logits
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.runs import checkpoint

ROWS = 512  # of each class, for a fresh inner step
PARTS = ("valid", "test")
Weights = Sequence[Tensor]  # of the encoder, then vector and bias of the task's head


def fresh_step(setup: Setup, task: int, weights: Weights, inner_lr: float) -> list[Tensor]:
    """The weights of a task after an inner step from `weights`, which the model has."""
    dataset, model = setup.dataset, setup.model.eval()
    rows = dataset.split["train"]
    labels = dataset.labels[rows.to(dataset.device), task].cpu()
    generator = torch.Generator().manual_seed(task)
    leaves = [*setup.objective.copies.shared(model), model.weight, model.bias]
    loss = torch.zeros((), device=dataset.device)
    for value, sign in ((1, -1.0), (0, 1.0)):
        members = rows[labels == value]
        some = members[torch.randperm(len(members), generator=generator)[:ROWS]]
        loss = loss + 0.5 * functional.softplus(sign * model(dataset.batch(some))[:, task]).mean()
    *steps, by_heads, by_biases = torch.autograd.grad(loss, leaves)
    steps = [*steps, by_heads[task], by_biases[task]]
    return [weight - inner_lr * step for weight, step in zip(weights, steps, strict=True)]


def distance(stack: Sequence[Weights], own: Sequence[Weights]) -> float:
    """Root mean square over tasks of the distance of weights from the model's, as a share of their norm."""

    def square(weights: Weights) -> float:
        return sum(float(weight.square().sum()) for weight in weights)

    apart = [[u - w for u, w in zip(us, ws, strict=True)] for us, ws in zip(stack, own, strict=True)]
    return (sum(map(square, apart)) / sum(map(square, own))) ** 0.5


def mean_aucs(setup: Setup, stack: Sequence[Weights]) -> list[str]:
    """AUC on each of the parts, the mean over tasks, each with its own weights."""
    model, places = setup.model, {part: setup.dataset.split[part] for part in PARTS}
    scores: dict[str, list[Tensor]] = {part: [] for part in PARTS}
    for task, weights in enumerate(stack):
        if task == 0 or any(new is not old for new, old in zip(weights[:-2], stack[task - 1], strict=False)):
            for parameter, weight in zip(setup.objective.copies.shared(model), weights[:-2], strict=True):
                parameter.copy_(weight)
            recalibrate(setup)
            model.weight.copy_(torch.stack([one[-2] for one in stack]))
            model.bias.copy_(torch.stack([one[-1] for one in stack]))
            logits = {part: row_logits(setup, rows)[0] for part, rows in places.items()}
        for part in PARTS:
            scores[part].append(logits[part][:, task])
    labels = {part: setup.dataset.labels[rows.to(setup.dataset.device)] for part, rows in places.items()}
    aucs = (roc_auc(torch.stack(scores[part], 1), labels[part]) for part in PARTS)
    return [f"{float(auc.nanmean()):.4f}" for auc in aucs]


@torch.no_grad()
def measure(path: Path, steps: Sequence[int]) -> Iterator[list[str]]:
    """A row of the table for each of the steps that has a checkpoint."""
    run = Run.open(path)
    setup = make_setup(run.recipe)
    objective, tasks = setup.objective, range(len(setup.dataset.task_names))
    for place in (place for place in checkpoint.steps(run.checkpoints) if int(place.name) in steps):
        saved = checkpoint.load(place)
        setup.load_state_dict(saved["job"])
        *shared, heads, shifts = (part.clone() for part in objective.copies.weights(setup.model, None))
        own = [[*shared, heads[task], shifts[task]] for task in tasks]
        kept = [[part[task] for part in objective.copies.split(objective.copies.stacked)] for task in tasks]
        if objective.copies.kept == "offsets":
            kept = [[u + w for u, w in zip(us, ws, strict=True)] for us, ws in zip(kept, own, strict=True)]
        recalibrate(setup)
        with torch.enable_grad():
            fresh = [fresh_step(setup, task, own[task], objective.inner_lr) for task in tasks]
        name = f"{objective.copies.kept}, {objective.inner_lr:g}, seed {run.recipe.seed}"
        aucs = zip(*(mean_aucs(setup, stack) for stack in (own, kept, fresh)), strict=True)
        far = [f"{distance(stack, own):.3f}" for stack in (kept, fresh)]
        yield [name, str(saved["progress"]["step"]), *(auc for part in aucs for auc in part), *far]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--steps", nargs="+", type=int, default=[3425], help="the checkpoints to read")
    options = parser.parse_args()
    torch.set_num_threads(1)
    heading = ["copies, inner step", "step", *(f"{part} {of}" for part in PARTS for of in "wuf")]
    heading += ["|u - w|", "|f - w|"]
    rows = [row for path in options.runs for row in measure(path, options.steps)]
    print_table("AUC, the mean over tasks, of weights w, copies u and fresh steps f", heading, rows)
    found = [dict(zip(heading, row, strict=True)) for row in rows]
    print_json({"benchmark": "copies_ranking", "machine": machine(), "rows": found})


if __name__ == "__main__":
    main()
