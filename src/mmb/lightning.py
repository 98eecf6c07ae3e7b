"""Any objective in your own Lightning `Trainer`: a module, and batches that resume where they stopped."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mmb import metrics
from mmb._extras import require
from mmb.auc import Batch, DenseBatch, Objective
from mmb.auc.sampling import RowDraw, Sampler, TaskDraw
from mmb.label_values import MISSING, as_labels
from mmb.models.outputs import logits_of

LightningModule: Any = require("lightning.pytorch", extra="lightning").LightningModule


class ObjectiveModule(LightningModule):  # type: ignore[misc]
    """Trains a model for an objective: the objective fills `.grad`, the optimizer moves the weights.

    It optimizes manually, since an objective computes its own gradient estimate. The objective is a
    submodule: its block state (duals, thresholds, weight copies) moves to the Trainer's device and is in
    every checkpoint. Training batches are [`TaskBatch`][mmb.auc.TaskBatch] or
    [`DenseBatch`][mmb.auc.DenseBatch] (`Batches` makes them from a sampler), or those of an ordinary
    `DataLoader` that shuffles rows: inputs and labels `[n, m]` (`[n]` for one task), and the numbers of the
    rows for objectives that keep a variable per positive. Batches for validation and testing are inputs and
    labels, perhaps with the numbers of the rows; batches for prediction are inputs.

    It logs the numbers that the objective returns (`train/loss`, ...). After validation and testing, it logs
    the means over tasks of `auc`, `pauc` (McClish, up to `max_fpr`) and `ap` of all rows together, such as
    `valid/pauc`: monitor those. They are NaN if no row has a label.

    Args:
        model: Maps inputs to logits `[n, m]`, or to something that has them, such as `.logits`.
        objective: The objective.
        optimizer: Makes an optimizer from parameters (the model's and the objective's own), for example
            `functools.partial(torch.optim.Adam, lr=1e-3)`.
        scheduler: Makes a learning rate schedule from the optimizer; it takes a step after every batch.
        clip: Largest norm of the gradient; None does not clip. (A Trainer clips in automatic mode only.)
        max_fpr: Limit of the partial AUC that is logged.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = torch.optim.Adam,
        scheduler: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None,
        *,
        clip: float | None = None,
        max_fpr: float = 0.1,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model, self.objective = model, objective
        self.make_optimizer, self.make_scheduler = optimizer, scheduler
        self.clip, self.max_fpr = clip, max_fpr
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._positions: list[Any] = []  # of the loaders, in a checkpoint

    def forward(self, inputs: Any) -> Tensor:
        """The model's logits."""
        return logits_of(self.model(inputs))

    def setup(self, stage: str) -> None:
        """Refuse a Trainer of many processes, or of a precision that scales losses or converts weights."""
        self._positions = []  # of a checkpoint that was read for something else
        precision, processes = self.trainer.precision, self.trainer.world_size
        if stage == "fit" and precision not in ("32-true", "bf16-mixed"):
            raise ValueError(
                f"precision: the objective computes its own gradients and keeps block state in float32; got "
                f'{precision!r}, use "bf16-mixed" or "32-true"'
            )
        if stage == "fit" and processes > 1:
            raise ValueError(f"devices: block state is kept in one process, got {processes}; use devices=1")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the positions of the loaders: Lightning restores them only if an epoch was cut off."""
        fit_loop = checkpoint.get("loops", {}).get("fit_loop", {})
        self._positions = fit_loop.get("state_dict", {}).get("combined_loader", [])

    def on_train_start(self) -> None:
        """Continue the batches where the checkpoint was taken, also after a whole epoch."""
        loaders = self.trainer.fit_loop._combined_loader.flattened
        loaders = [loader for loader in loaders if hasattr(loader, "load_state_dict")]  # those that are saved
        if len(loaders) == len(self._positions):
            for loader, position in zip(loaders, self._positions, strict=True):
                if isinstance(loader, Batches):
                    loader.load_state_dict(position)
        self._positions = []

    def configure_optimizers(self) -> Any:
        """One optimizer for the model's and the objective's parameters, and its schedule."""
        optimizer = self.make_optimizer([p for p in self.parameters() if p.requires_grad])
        return optimizer if self.make_scheduler is None else ([optimizer], [self.make_scheduler(optimizer)])

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """As Lightning does, and also for the frozen batches of this package."""
        if not isinstance(batch, Batch):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        move = self.transfer_batch_to_device
        moved = {name: move(value, device, dataloader_idx) for name, value in vars(batch).items()}
        return replace(batch, **moved)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One step of block state and weights."""
        optimizer = self.optimizers()
        optimizer.zero_grad()
        numbers = self.objective.backward(self.model, self._as_batch(batch))
        if self.clip is not None:
            numbers["gradient_norm"] = nn.utils.clip_grad_norm_(self.parameters(), self.clip)
        optimizer.step()
        if self.make_scheduler is not None:
            self.lr_schedulers().step()
        self.log_dict({f"train/{name}": value for name, value in numbers.items()}, batch_size=1)

    def _as_batch(self, batch: Any) -> Batch:
        """A batch of this package as it is, or one of `(inputs, labels)` or `(inputs, labels, rows)`."""
        if isinstance(batch, Batch):
            return batch
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise TypeError(
                "batch: expected (inputs, labels), (inputs, labels, rows) or a batch of mmb, got "
                f"{batch!r:.80}"
            )
        if len(batch) == 2 and self.objective.per_positive_state():
            raise ValueError(
                f"batch: {type(self.objective).__name__} keeps a number for each positive, so it needs the "
                "numbers of the rows: let the data set return (inputs, labels, row)"
            )
        inputs, labels, *rows = batch
        return DenseBatch(inputs, labels, rows=rows[0] if rows else None)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Keep logits and labels: a ranking needs all rows."""
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise TypeError(f"batch: expected (inputs, labels) or (inputs, labels, rows), got {batch!r:.80}")
        inputs, labels, *_ = batch
        self._seen.append((self(inputs).float(), labels))

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        """The logits of inputs; a `TensorDataset` of inputs alone makes lists of one tensor."""
        return self(batch[0] if isinstance(batch, tuple | list) and len(batch) == 1 else batch)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """As in validation."""
        self.validation_step(batch, batch_idx, dataloader_idx)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of all rows together."""
        self._log_metrics("valid")

    def on_test_epoch_end(self) -> None:
        """Log the metrics of all rows together."""
        self._log_metrics("test")

    def _log_metrics(self, part: str) -> None:
        logits, labels = (torch.cat(tensors) for tensors in zip(*self._seen, strict=True))
        self._seen.clear()
        labels = as_labels(labels)
        means = dict.fromkeys(metrics.SHORT_NAMES, logits.new_tensor(torch.nan))
        if bool((labels != MISSING).any()):
            logits = logits.unsqueeze(1) if logits.dim() == 1 else logits  # one task
            found = metrics.evaluate(logits, labels, self.max_fpr)
            means = {name: found[full].nanmean() for name, full in metrics.SHORT_NAMES.items()}
        self.log_dict({f"{part}/{name}": mean for name, mean in means.items()})


class Batches(Iterable[Batch]):
    """Training batches of a sampler, for a Trainer: an epoch of them, whose position is in checkpoints.

    Args:
        sampler: A [`TaskSampler`][mmb.auc.TaskSampler] or [`RichRowSampler`][mmb.auc.RichRowSampler].
        inputs: A tensor, or a nest of dicts, lists and tuples of tensors, with one entry per row of the data.
        labels: The label matrix `[n, m]`.
    """

    def __init__(self, sampler: Sampler[TaskDraw] | Sampler[RowDraw], inputs: Any, labels: Tensor) -> None:
        self.sampler, self.inputs, self.labels = sampler, inputs, labels

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        if self.sampler.step == len(self.sampler):  # a Trainer counts batches and never asks for the end
            next(iter(self.sampler), None)
        for draw in self.sampler:
            yield draw.batch(self.inputs, self.labels)

    def state_dict(self) -> dict[str, Any]:
        """The position of the sampler; Lightning saves it with its checkpoints."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.sampler.load_state_dict(state)
