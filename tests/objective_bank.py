"""Every objective, with its variants, crossed with every test of the suite: add a line and it is tested."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from mmb import auc
from mmb.models import MultiTask, mlp
from toy_objective import CenteredLogistic

OBJECTIVES = {
    "minmax": lambda y, **o: auc.MinMaxAUC(y, **o),
    "minmax-logit": lambda y, **o: auc.MinMaxAUC(y, transform="logit", margin=0.7, **o),
    "minmax-recentered": lambda y, **o: auc.MinMaxAUC(y, transform="recentered", **o),
    "partial-full": lambda y, **o: auc.PartialAUC(y, max_fpr=0.3, gradient="full", **o),
    "partial-practical": lambda y, **o: auc.PartialAUC(y, max_fpr=0.3, gradient="practical", **o),
    "partial-two-widths": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.3, gradient="full", temperature=0.2, tau1=0.1, **o
    ),
    "partial-range": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.5, min_fpr=0.2, gradient="full", temperature=0.2, **o
    ),
    "partial-range-practical": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.5, min_fpr=0.2, gradient="practical", **o
    ),
    "partial-logit": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.3, transform="logit", margin=2.0, gradient="full", **o
    ),
    "partial-recentered": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.3, transform="recentered", gradient="full", **o
    ),
    "partial-recentered-practical": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.3, transform="recentered", gradient="practical", **o
    ),
    "partial-recentered-range": lambda y, **o: auc.PartialAUC(
        y, max_fpr=0.5, min_fpr=0.1, transform="recentered", gradient="full", **o
    ),
    "pairwise-logistic": lambda y, **o: auc.PairwisePartialAUC(y, max_fpr=0.3, **o),
    "pairwise-logistic-full": lambda y, **o: auc.PairwisePartialAUC(y, max_fpr=0.3, gradient="full", **o),
    "pairwise-hinge-full": lambda y, **o: auc.PairwisePartialAUC(
        y, max_fpr=0.4, min_fpr=0.1, surrogate="squared_hinge", gradient="full", temperature=0.3, **o
    ),
    "pairwise-capacity": lambda y, **o: auc.PairwisePartialAUC(y, max_fpr=0.3, capacity=1000, **o),
    "cross-entropy": lambda y, **o: auc.CrossEntropy(y, **o),
    "focal": lambda y, **o: auc.Focal(y, gamma=1.5, alpha=0.3, **o),
    "minibatch": lambda y, **o: auc.MiniBatchPartialAUC(y, max_fpr=0.3, **o),
    "minibatch-recentered": lambda y, **o: auc.MiniBatchPartialAUC(
        y, max_fpr=0.3, transform="recentered", **o
    ),
    "minibatch-logit": lambda y, **o: auc.MiniBatchPartialAUC(y, max_fpr=0.3, transform="logit", **o),
    "sum-minmax": lambda y, **o: auc.Sum(
        [(1.0, auc.CrossEntropy(y, **o)), (0.5, auc.MinMaxAUC(y, transform="recentered", **o))]
    ),
    "sum-partial": lambda y, **o: auc.Sum(
        [(0.7, auc.CrossEntropy(y, **o)), (2.0, auc.PartialAUC(y, max_fpr=0.3, gradient="full", **o))]
    ),
    "sum-plain": lambda y, **o: auc.Sum(
        [(0.7, auc.PairwisePartialAUC(y, max_fpr=0.3, **o)), (3.0, CenteredLogistic(y, **o))], rescale=False
    ),
    "sum-by-entry": lambda y, **o: auc.Sum(
        [(0.7, auc.CrossEntropy(y, **o)), (3.0, auc.Focal(y, **o))], rescale=False
    ),
    "two-way-full": lambda y, **o: auc.TwoWayPartialAUC(
        y, max_fpr=0.4, min_tpr=0.3, gradient="full", temperature=0.2, **o
    ),
    "two-way-practical": lambda y, **o: auc.TwoWayPartialAUC(y, max_fpr=0.4, min_tpr=0.6, **o),
    "two-way-recentered": lambda y, **o: auc.TwoWayPartialAUC(
        y, max_fpr=0.3, min_tpr=0.5, transform="recentered", gradient="full", **o
    ),
    "recall": lambda y, **o: auc.RecallAtFPR(y, fpr=0.3, **o),
    "recall-hinge": lambda y, **o: auc.RecallAtFPR(y, fpr=0.2, surrogate="squared_hinge", tau1=0.3, **o),
    "fpr-at-recall": lambda y, **o: auc.FPRAtRecall(y, recall=0.7, **o),
    "constrained-recall": lambda y, **o: auc.ConstrainedRecall(y, fpr=0.2, **o),
    "average-precision": lambda y, **o: auc.AveragePrecision(y, transform="recentered", **o),
    "average-precision-logistic": lambda y, **o: auc.AveragePrecision(
        y, surrogate="logistic", transform="logit", beta=0.3, **o
    ),
    "ndcg": lambda y, **o: auc.NDCG(y, transform="recentered", **o),
    "ndcg-k": lambda y, **o: auc.NDCG(y, k=4, gradient="practical", **o),
    "ndcg-k-full": lambda y, **o: auc.NDCG(
        y,
        k=4,
        gradient="full",
        surrogate="logistic",
        transform="logit",
        margin=0.5,
        temperature=0.8,
        beta=0.3,
        **o,
    ),
    "new": lambda y, **o: CenteredLogistic(y, **o),
    "pauci": lambda y, **o: auc.PAUCI(y, max_fpr=0.3, **o),
    "pauci-recentered": lambda y, **o: auc.PAUCI(y, max_fpr=0.4, transform="recentered", **o),
    "staco": lambda y, **o: auc.STACO(y, max_fpr=0.3, min_tpr=0.4, **o),
    "sopa": lambda y, **o: auc.SOPA(y, max_fpr=0.3, **o),
    "sopas": lambda y, **o: auc.SOPAs(y, temperature=0.5, **o),
    "sopas-recentered": lambda y, **o: auc.SOPAs(y, temperature=0.5, transform="recentered", **o),
}
WITH_MODEL = {  # evaluate the model themselves, so that scores alone are not enough
    "average-precision-reduced": lambda y, **o: auc.MSVRAveragePrecision(y, mlp(4, [6], y.shape[1]), **o),
}
SUMS = [name for name in OBJECTIVES if name.startswith("sum")]
WITHOUT_MARGIN = ("cross-entropy", "focal", "new", "constrained-recall", *SUMS)
MARGIN = [name for name in OBJECTIVES if name not in WITHOUT_MARGIN]
STATELESS = ["cross-entropy", "focal", "minibatch", "minibatch-recentered", "minibatch-logit", "sum-by-entry"]
PER_POSITIVE = [name for name in OBJECTIVES if name.startswith(("sopa", "staco", "average", "ndcg"))]
PER_POSITIVE += WITH_MODEL


@dataclass(frozen=True)
class Data:
    """A small multi-task problem with gaps, a model, and a generator."""

    inputs: torch.Tensor
    labels: torch.Tensor
    model: MultiTask
    generator: torch.Generator

    @property
    def num_tasks(self) -> int:
        return self.labels.shape[1]

    def rand(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=self.inputs.dtype)

    def dense(self, rows: torch.Tensor | None = None, weights: torch.Tensor | None = None) -> auc.DenseBatch:
        rows = torch.arange(len(self.inputs)) if rows is None else rows
        return auc.DenseBatch(self.inputs[rows], self.labels[rows], weights, rows)

    def sampled(self, tasks: list[int], rows: int = 12) -> auc.TaskBatch:
        chosen = torch.tensor(tasks)
        picked = torch.stack(
            [torch.randperm(len(self.inputs), generator=self.generator)[:rows] for _ in tasks]
        )
        return auc.TaskBatch(self.inputs[picked], self.labels[picked, chosen[:, None]], chosen, picked)

    def everything(self) -> auc.TaskBatch:
        """All rows of all tasks, task by task."""
        tasks, rows = torch.arange(self.num_tasks), torch.arange(len(self.inputs))
        picked = rows.expand(self.num_tasks, -1)
        return auc.TaskBatch(self.inputs[picked], self.labels.T.contiguous(), tasks, picked)


def make_data(seed: int = 0, rows: int = 24, tasks: int = 5, dtype: torch.dtype = torch.float64) -> Data:
    """Labels in {0, 1, missing}, every task with both classes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 4, generator=generator, dtype=dtype)
    draw = torch.rand(rows, tasks, generator=generator)
    labels = torch.where(draw < 0.35, 1, 0).to(torch.int8)
    labels[draw > 0.8] = -1
    labels[0], labels[1] = 1, 0
    model = mlp(4, [6], tasks).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * 0.7)
    return Data(inputs, labels, model, generator)


def make(name: str, data: Data, randomize: bool = True, **options: object) -> auc.Objective:
    """An objective in the data's dtype, its state random rather than where it starts."""
    objective = (OBJECTIVES | WITH_MODEL)[name](data.labels, **options).to(data.inputs.dtype)
    if randomize:
        randomize_state(objective, data)
    return objective


@torch.no_grad()
def randomize_state(objective: auc.Objective, data: Data) -> None:
    for key, value in objective.state_dict().items():
        if key.endswith("operating_points.state"):  # only looked at on deployment: no estimate depends on it
            value.copy_(torch.linspace(0.1, 1, value.numel()).reshape(value.shape))
            continue
        noise = data.rand(*value.shape)
        if key.endswith("hessian"):
            value.copy_(0.5 + noise)
        elif key in ("log_mean.value", "unit"):
            value.copy_(1 + noise)
        elif (
            key.endswith("tracked.value") and value.shape[1] == 2
        ):  # the threshold at the lower rate is higher
            value.copy_(0.2 + 0.3 * noise + torch.tensor([0.0, 0.3]))
        else:
            value.copy_(0.2 + 0.6 * noise)


def estimate(objective: auc.Objective, data: Data, batch: auc.Batch) -> dict[str, torch.Tensor]:
    """The estimate for model and objective, from clean gradients."""
    data.model.zero_grad(set_to_none=True)
    objective.zero_grad(set_to_none=True)
    objective.backward(data.model, batch)
    named = [*data.model.named_parameters(), *objective.named_parameters()]
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def state(objective: auc.Objective) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in objective.state_dict().items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], tolerance: float = 0.0) -> None:
    """Equal keys and values; the tolerance is relative to the largest entry, and absolute below one."""
    assert left.keys() == right.keys()
    for key, value in left.items():
        other = right[key]
        if tolerance == 0:
            assert torch.equal(value, other), key
        else:
            size = max(1.0, float(value.abs().max()))
            assert math.isfinite(size), key
            assert float((value - other).abs().max()) <= tolerance * size, key
