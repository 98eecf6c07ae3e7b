"""Training steps of LibAUC's losses, each with the optimizer that belongs to it."""

from __future__ import annotations

import contextlib
import io
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

from _objective_data import LR, ROWS, TASKS, WIDTH, Data, Step

FOR_ONE_TASK, FOR_LISTS = "LibAUC tpAUC_CVaR + STACO, task by task", "LibAUC NDCG + SONG"
PEERS = {
    "MinMaxAUC": "LibAUC MultiLabelAUCM + PESG",
    "PartialAUC": "LibAUC MultiLabelpAUC (SOPAs)",
    "TwoWayPartialAUC": "LibAUC MultiLabelpAUC (SOTAs)",
    "AveragePrecision": "LibAUC mAP + SOAP",
    "SOPA": "LibAUC MultiLabelpAUC (SOPA)",
    "SOPAs": "LibAUC MultiLabelpAUC (SOPAs)",
    "STACO": FOR_ONE_TASK,
}  # what LibAUC has for the same end, for tasks with gaps


def libauc(data: Data, kind: str) -> Step:
    """A step of LibAUC's loss and the optimizer that belongs to it."""
    from libauc import losses, optimizers

    model = data.model()
    turn = cycle(data.dense)
    tasks = torch.arange(TASKS) if "sampled" in kind else []
    with contextlib.redirect_stdout(io.StringIO()):  # it greets
        if kind == FOR_LISTS:
            loss = ByLists(data, losses.NDCGLoss)
            optimizer = optimizers.SONG(model.parameters(), lr=LR, mode="sgd", device="cpu")
        elif kind == FOR_ONE_TASK:
            loss = TaskByTask(data, losses.auc.tpAUC_CVaR_loss)
            optimizer = optimizers.STACO(model.parameters(), lr=LR, mode="sgd", device="cpu")
        elif "pAUC" in kind:
            mode = kind.partition("(")[2].rstrip(")")
            loss = losses.MultiLabelpAUCLoss(
                mode=mode,
                num_labels=data.num_tasks,
                data_len=data.num_rows,
                device="cpu",
                **({"pos_len": data.num_rows} if mode == "SOPA" else {}),
            )
            optimizer = optimizers.SOPAs(model.parameters(), lr=LR, mode="sgd", device="cpu")
        elif "mAP" in kind:
            loss = losses.mAPLoss(num_labels=data.num_tasks, data_len=data.num_rows, device="cpu")
            optimizer = optimizers.SOAP(model.parameters(), lr=LR, mode="sgd", device="cpu")
        else:
            loss = losses.MultiLabelAUCMLoss(num_labels=data.num_tasks, device="cpu")
            optimizer = optimizers.PESG(model.parameters(), loss_fn=loss, lr=LR, device="cpu", verbose=False)

    def step() -> None:
        batch = next(turn)
        optimizer.zero_grad()
        scores, labels = model(batch.inputs).sigmoid(), data.full[batch.rows]
        labels[0], labels[1] = 1, 0  # it fails on a task without a positive or a negative
        loss(scores, labels, index=batch.rows, task_id=tasks).backward()
        optimizer.step()

    return step


class TaskByTask:
    """The mean of a loss of LibAUC that is for one task over all tasks."""

    def __init__(self, data: Data, make: Any) -> None:
        self.losses = [make(data.num_rows, device="cpu") for _ in range(data.num_tasks)]

    def __call__(self, scores: Tensor, labels: Tensor, index: Tensor, task_id: Any) -> Tensor:
        """The mean."""
        found = [loss(scores[:, k], labels[:, k], index) for k, loss in enumerate(self.losses)]
        return torch.stack(found).mean()


class ByLists:
    """LibAUC's NDCG wants for each task a list that begins with the positives, as many in each."""

    def __init__(self, data: Data, make: Any) -> None:
        self.positives, self.num_rows = data.full.sum(0), data.num_rows
        gains = 1 / torch.log2(torch.arange(2, data.num_rows + 2).double())
        self.ideal = gains.cumsum(0)[self.positives.long() - 1]
        self.tasks = torch.arange(data.num_tasks)
        number = ROWS // 10  # the share of positives
        self.loss = make(data.num_rows * data.num_tasks, data.num_tasks, data.num_rows, number, device="cpu")

    def __call__(self, scores: Tensor, labels: Tensor, index: Tensor, task_id: Any) -> Tensor:
        """The loss, of lists with the positives first."""
        labels, order = labels.sort(dim=0, descending=True)
        batch = {
            "rating": labels.T,
            "user_id": self.tasks,
            "num_pos_items": self.positives,
            "ideal_dcg": self.ideal,
            "user_item_id": index[order.T] + self.num_rows * self.tasks.unsqueeze(1),
        }
        return self.loss(scores.gather(0, order).T, batch)


def libauc_compositional(data: Data) -> Step:
    """One task, one head: LibAUC alternates a cross-entropy step and an AUC step; this does one of each."""
    from libauc import losses, optimizers

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    with contextlib.redirect_stdout(io.StringIO()):
        loss = losses.CompositionalAUCLoss(device="cpu")
        optimizer = optimizers.PDSCA(model.parameters(), loss_fn=loss, lr=LR, device="cpu", verbose=False)
    turn = cycle(data.sampled)

    def step() -> None:
        batch = next(turn)
        for part in (batch.lower, batch):
            optimizer.zero_grad()
            loss(model(part.inputs[0]).sigmoid(), part.labels[0].float().unsqueeze(1)).backward()
            optimizer.step()

    return step
