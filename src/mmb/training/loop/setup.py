"""The moving parts of a run, made from its recipe, and their state."""

import os
import platform
import warnings
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

import mmb
from mmb._names import first_few
from mmb._permutations import permutation
from mmb.auc import Labels, Objective, ShardedObjective
from mmb.auc.sharded import owned_heads
from mmb.data import Dataset, TableError
from mmb.distributed import Shard
from mmb.models import registry as model_registry
from mmb.models.batch_norm import freeze_batch_norm
from mmb.training.loop.capture import decide_capture, most_positives
from mmb.training.loop.feed import Feed
from mmb.training.loop.optimizer import encoder_of, make_optimizer
from mmb.training.loop.randomness import derive_seed, random_state, separate_streams, set_random_state
from mmb.training.loop.sampler import make_sampler
from mmb.training.loop.step_sizes import step_size_factor
from mmb.training.processes.group import ONE, Ranks
from mmb.training.processes.rendezvous import ProcessError
from mmb.training.processes.sharded_state import Division
from mmb.training.recipes.components import (
    chosen_objectives,
    complete_model,
    load_data,
    make_objective,
)
from mmb.training.recipes.nested import difference, flatten
from mmb.training.recipes.recipe import Recipe
from mmb.training.runs.fingerprints import data_facts, fingerprint
from mmb.training.runs.log import Window
from mmb.training.runs.scoring import autocast
from mmb.trees import tensors

_NAMED = 20  # tasks, in a message
_COMPARED = 16  # rows of the data, between processes


@dataclass
class Setup:
    """Everything that a training step touches.

    Attributes:
        recipe: The recipe it is made from.
        dataset: The data, on the device of the run.
        model: The network.
        objective: The objective, with its block state.
        optimizer: Moves the parameters of both.
        feed: The batches.
        steps: Steps of the whole run.
        steps_per_epoch: Steps that count as one epoch.
        window: Means since the last line of the log.
        ranks: The processes that train together.
        captured: Whether steps are captured as a CUDA graph.
        capture_note: Why they are not, if `training.capture` is "auto" and there is a GPU.
    """

    recipe: Recipe
    dataset: Dataset
    model: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    feed: Feed
    steps: int
    steps_per_epoch: int
    window: Window
    ranks: Ranks = ONE
    captured: bool = False
    capture_note: str | None = None

    def __post_init__(self) -> None:
        self._block_rates = self.objective.block_rates()  # to be multiplied by the schedule
        if self.captured:  # so that a recording follows a schedule, and compiled kernels serve other rates
            self.objective.hold_block_rates()

    @cached_property
    def trained(self) -> Tensor:
        """Which tasks have positives and negatives to train on, bool `[m]`; scores of others mean nothing."""
        labels = self.dataset.labels[self.dataset.split["train"].to(self.dataset.device)]
        return (labels == 1).any(0) & (labels == 0).any(0)

    def set_step_sizes(self, step: int) -> None:
        """Set all step sizes to what the schedule says for a step."""
        factor = step_size_factor(self.recipe.schedule, step, self.steps, self.steps_per_epoch)
        settings = self.recipe.optimizer
        for group in self.optimizer.param_groups:
            own = settings.lr_encoder if group.get("part") == "encoder" else None
            lr = (settings.lr if own is None else own) * factor
            group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr
        if self.recipe.schedule.decay_blocks:
            rates = {name: start * factor for name, start in self._block_rates.items()}
            self.objective.set_block_rates(rates)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue bit for bit, except the recipe and the counters of the loop.

        With `training.capture`, up to rounding: the first steps afterwards are computed kernel by kernel.
        Each of many processes has its own pieces of block state and random streams, and all have the rest.
        """
        return self.division.divide(self._own_state())

    def _own_state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "feed": self.feed.state_dict(),
            "window": self.window.state_dict(),
            "random": random_state(self.dataset.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, by any number of processes."""
        state = self.division.own(state, self._own_state())
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self._load_optimizer(state["optimizer"])
        self.feed.load_state_dict(state["feed"])
        self.window.load_state_dict(state["window"])
        set_random_state(state["random"], self.dataset.device)

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        """Load its state, which may come from another device, with or without captured steps."""
        groups = self.optimizer.param_groups
        made = [{key: group[key] for key in ("fused", "capturable") if key in group} for group in groups]
        step_sizes = [group["lr"] for group in groups]
        saved = [{**group, **own} for group, own in zip(state["param_groups"], made, strict=True)]
        self.optimizer.load_state_dict({**state, "param_groups": saved})
        for group, lr in zip(self.optimizer.param_groups, step_sizes, strict=True):
            group["lr"] = lr  # a captured step needs the same tensor; its value is set at every step

    @property
    def by_rows(self) -> bool:
        """Whether batches are rows with all of their labels, not rows for each of some tasks."""
        return self.recipe.sampler.kind == "rows"

    @property
    def precision(self) -> torch.dtype:
        """Of the computations that autocast does not leave in float32."""
        found: torch.dtype = getattr(torch, self.recipe.training.precision)
        return found

    def autocast(self) -> AbstractContextManager[None]:
        """Automatic mixed precision, if the recipe asks for it."""
        return autocast(self.dataset.device, self.precision)

    def some_training_rows(self, purpose: str, most: int) -> Tensor:
        """At most `most` training rows, drawn uniformly; always the same ones for a purpose."""
        train = self.dataset.split["train"]
        generator = torch.Generator().manual_seed(derive_seed(self.recipe.seed, purpose))
        return train[permutation(len(train), generator)[:most].long()]

    @cached_property
    def data_facts(self) -> dict[str, str]:
        """Facts that distinguish the data from other data."""
        return data_facts(self.dataset)

    @cached_property
    def division(self) -> Division:
        """How the state is divided among the processes."""
        train = self.dataset.split["train"].to(self.dataset.device)
        return Division(self.objective, self.dataset.labels[train], self.ranks)


def make_setup(recipe: Recipe, ranks: Ranks = ONE) -> Setup:
    """Make the parts of a run, in all processes that train it; `own_randomness` seeds the initial weights."""
    device = find_device(recipe.training.device)
    captured, capture_note = decide_capture(recipe, device, ranks)
    if recipe.data.get("divide"):  # each process prepares its own part
        dataset = load_data(recipe.data).to(device)
    else:
        dataset = ranks.one_per_machine_first(lambda: load_data(recipe.data)).to(device)
    check_agreement(ranks, recipe, dataset)
    labels = training_labels(dataset)
    model = model_registry.build(**complete_model(recipe.model, dataset)).to(device)
    if recipe.training.batch_norm == "frozen":
        freeze_batch_norm(model)
    if recipe.optimizer.lr_encoder == 0:
        freeze_batch_norm(encoder_of(model).requires_grad_(False))
    objective = divided_objective(recipe, labels, model, ranks).to(device)
    sampler = make_sampler(recipe, labels)
    if captured:
        objective.reserve(most_positives(make_sampler(recipe, labels), labels))
    steps = recipe.training.steps or max(1, round(recipe.training.epochs * sampler.steps_per_epoch))
    augmentation = torch.Generator().manual_seed(derive_seed(recipe.seed, "augmentation"))
    separate_streams(recipe.seed, ranks.rank, device, augmentation)
    return Setup(
        recipe=recipe,
        dataset=dataset,
        model=model,
        objective=objective,
        optimizer=make_optimizer(recipe.optimizer, model, objective, captured),
        feed=Feed(dataset, sampler, augmentation, objective, one_shape=captured),
        steps=steps,
        steps_per_epoch=sampler.steps_per_epoch,
        window=Window(),
        ranks=ranks,
        captured=captured,
        capture_note=capture_note,
    )


def check_agreement(ranks: Ranks, recipe: Recipe, dataset: Dataset) -> None:
    """Raise a `ProcessError` that names what differs, unless all have the same recipe, data and versions."""
    if ranks.size == 1:
        return
    rows = torch.linspace(0, len(dataset) - 1, min(_COMPARED, len(dataset))).long()
    facts = {**flatten(asdict(recipe)), **data_facts(dataset)}
    facts["the inputs"] = fingerprint(list(tensors(dataset.batch(rows))))
    facts |= {"mmb version": mmb.__version__, "torch version": torch.__version__}
    facts["python version"] = platform.python_version()
    everyone = ranks.gather(facts)
    for rank, other in enumerate(everyone):
        for key, (mine, others) in difference(everyone[0], other).items():
            raise ProcessError(
                f"processes disagree on {key}: process 0 has {mine}, process {rank} has {others}; "
                "start all with the same recipe, data and versions"
            )


def training_labels(dataset: Dataset) -> Labels:
    """The labels of the training rows, on the host, where rows are drawn; warns about tasks it leaves out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* have no positive or no negative", UserWarning)  # by numbers
        matrix = dataset.labels[dataset.split["train"].to(dataset.device)].cpu()
        _check_any_usable(dataset, matrix)
        labels = Labels(matrix)
    out = [dataset.task_names[task] for task in (~labels.usable).nonzero().flatten().tolist()]
    if out:
        warnings.warn(
            f"{len(out)} of {labels.num_tasks} tasks have no positive or no negative among the training rows "
            f"and are left out: {first_few(out, _NAMED)}",
            stacklevel=2,
        )
    return labels


def _check_any_usable(dataset: Dataset, labels: Tensor) -> None:
    """Raise an error that names file and columns if no task has both classes among the training rows."""
    positives, negatives = ((labels == kind).sum(0) for kind in (1, 0))
    if not bool(((positives > 0) & (negatives > 0)).any()):
        counts = zip(dataset.task_names, positives.tolist(), negatives.tolist(), strict=True)
        found = [f"{name} has {p} positives and {n} negatives" for name, p, n in counts]
        raise TableError(
            str(dataset.details.get("path", dataset.name)),
            f"no task has both a positive and a negative among the {len(labels)} training rows, so no "
            f"ranking can be learned: {first_few(found, _NAMED)}",
            "choose other label columns (data.labels), say which cells are positive (data.positive), or "
            "divide the rows in another way (data.split=stratified)",
        )


def divided_objective(recipe: Recipe, labels: Labels, model: nn.Module, ranks: Ranks) -> Objective:
    """The objective of a recipe, after a check that its memory is free; each process has its own tasks."""
    chosen = chosen_objectives(recipe)
    if ranks.size > 1 and any(kind.evaluates_model for kind, _ in chosen):
        model = owned_heads(model, Shard.of_this_process(labels.num_tasks))
    for kind, options in chosen:  # torchrun sets the number of processes that share the host
        kind.check_memory(model, options, sharers=int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    ranks.barrier()  # no process takes memory before all have looked
    if ranks.size == 1:
        return make_objective(recipe, labels, model)
    return ShardedObjective(labels, lambda some: make_objective(recipe, some, model))


def find_device(name: str) -> torch.device:
    """The device of this name, which must exist; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"training.device: {name!r} is not a device; use cpu, cuda or auto") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"training.device: {name!r} needs a GPU, and there is none; use cpu or auto")
    return device
