"""What defines a run: every choice made before training, with its type, default and meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from mmb.metrics import MetricName


class RecipeError(ValueError):
    """A recipe is wrong; the message names the key and what it should be."""


@dataclass(frozen=True)
class Range:
    """The numbers that a setting allows: a text for messages, and a test."""

    text: str
    contains: Callable[[float], bool]


_MOST = 1e30  # more would not fit single precision
AT_LEAST_0 = Range(f"a number from 0 to {_MOST:g}", lambda value: 0 <= value <= _MOST)
Count = Annotated[int, Range("at least 1", lambda value: value >= 1)]
Positive = Annotated[float, Range(f"a positive number up to {_MOST:g}", lambda value: 0 < value <= _MOST)]
NotNegative = Annotated[float, AT_LEAST_0]
Share = Annotated[float, Range("at least 0 and less than 1", lambda value: 0 <= value < 1)]
Rate = Annotated[float, Range("more than 0 and at most 1", lambda value: 0 < value <= 1)]


def _range_in(kind: Any) -> Range | None:
    """The range in a type, such as `Positive | None` or `tuple[Share, Share]`."""
    if get_origin(kind) is Annotated:
        return kind.__metadata__[0]
    return next(filter(None, map(_range_in, get_args(kind))), None)


@dataclass(frozen=True)
class SamplerSettings:
    """Which rows make a batch.

    Attributes:
        kind: "rows" draws rows and uses every label they have; "tasks" draws tasks, and for each of them rows
            of both classes, as in the paper. Or the import path of your own class derived from
            `mmb.auc.Sampler`, whose arguments take the place of the keys below.
        batch_size: With "rows": rows per step.
        rich_fraction: With "rows": share of the rows that are positives of uniformly drawn tasks; importance
            weights keep the estimate unbiased.
        max_weight: With "rows" and rich_fraction > 0: clip importance weights here; null does not clip.
        tasks_per_step: With "tasks": tasks drawn per step, at most as many as there are.
        rows_per_task: With "tasks": rows drawn for each task; more where there are fewer tasks than
            `tasks_per_step`, so that every step has the same number.
        positive_fraction: With "tasks": share of a task's rows that are positives.
    """

    kind: Literal["rows", "tasks"] = "rows"
    batch_size: Count = 128
    rich_fraction: float = 0.0
    max_weight: float | None = None
    tasks_per_step: Count = 4
    rows_per_task: int = 16
    positive_fraction: float = 0.5


@dataclass(frozen=True)
class OwnSampler:
    """A sampler by import path; in a recipe, its options stand next to its kind."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class OptimizerSettings:
    """How the gradient estimate moves the weights.

    Attributes:
        name: "momentum" is the paper's moving average z <- (1 - b0) z + b0 Delta, x <- x - lr z; "sgd" has
            classical momentum; or "adam", "adamw".
        lr: Step size.
        lr_encoder: Step size of the network's part `encoder`; null is lr, and 0 freezes it, with the running
            statistics of its batch norm.
        momentum: 1 - b0 of "momentum", or the momentum of "sgd".
        betas: Moving averages of "adam" and "adamw".
        weight_decay: Weight decay of the network (never of the objective's own variables).
        clip: Largest norm of the gradient; null does not clip.
    """

    name: Literal["momentum", "sgd", "adam", "adamw"] = "adam"
    lr: NotNegative = 1e-3
    lr_encoder: NotNegative | None = None
    momentum: Share = 0.9
    betas: tuple[Share, Share] = (0.9, 0.999)
    weight_decay: NotNegative = 0.0
    clip: Positive | None = None


@dataclass(frozen=True)
class ScheduleSettings:
    """How step sizes change over the run.

    Attributes:
        name: "constant"; "step" multiplies by factor at each milestone; "cosine" goes from 1 to 0;
            "one_cycle" rises from 1/25 to 1 over the first 30% of the run and goes to 0 after.
        milestones: Epochs at which "step" decays.
        factor: What "step" multiplies by.
        warmup: Steps of linear rise at the start of "constant", "step" and "cosine".
        decay_blocks: Whether the step sizes of the objective's block variables (dual, threshold, weight
            copies) follow the schedule too, as in the paper.
    """

    name: Literal["constant", "step", "cosine", "one_cycle"] = "constant"
    milestones: tuple[float, ...] = ()
    factor: Positive = 0.1
    warmup: Annotated[int, AT_LEAST_0] = 0
    decay_blocks: bool = False


@dataclass(frozen=True)
class TrainingSettings:
    """How long to train, when to look, what to keep.

    Attributes:
        epochs: Passes over the training rows; steps has precedence.
        steps: Steps in total; null follows from epochs.
        evaluate_every: Steps between evaluations on the validation rows; null is once per epoch.
        select: Validation metric that selects the weights, the best mean over tasks, and that tables show
            beside the usual ones: "auc", "pauc" (up to max_fpr, McClish), "ap", or another name in
            `mmb.metrics.METRICS`, such as "tpr_at_fpr" (at max_fpr), "enrichment_factor" or "bedroc".
        max_fpr: False positive rate of the partial AUC that is reported, and of the thresholds for decisions.
        test: Whether the selected weights are evaluated on the test rows at the end. Turn it off for runs
            that serve to choose settings: the test rows then stay unseen.
        train_rows: Training rows, always the same, on which metrics are logged at each evaluation, too, as
            `train_auc` and so on: how training converges, whatever the loss is.
        patience: Evaluations in a row without a better one after which to stop; null never stops early.
        stop_below: From the middle of the run on, stop at an evaluation this much worse than that of the
            initial weights or, in a fresh branch, of the start of the others; null never does.
        checkpoint_every: Steps between checkpoints; null is at every evaluation.
        keep_checkpoints: How many of the newest checkpoints to keep in addition to the best.
        log_every: Steps between lines in the log.
        tensorboard: Whether to write TensorBoard events in addition to metrics.jsonl.
        precision: "float32", or "bfloat16" for autocast.
        capture: On a GPU: launch the kernels of a step all at once, as a CUDA graph, because those of small
            networks take longer to launch than to run. "auto" does so where it is possible, and says why
            where it is not; in runs of at least 5,000 steps it also compiles the network. True always
            compiles, so that the first steps may take a minute, and is refused where it is not possible.
        batch_norm: "track" keeps running statistics of the batches as they are drawn; "recalibrate" estimates
            them again on uniformly drawn training rows before each evaluation, which is right where batches
            are rich in positives; "frozen" keeps those of the initial weights, also in training.
        warm_start: Whether to place the objective's block variables by the initial model's scores; by default
            if it starts from the heads of another run.
        evaluation_batch_size: Rows per batch when no gradient is needed.
        device: Where to compute: "cpu", "cuda", or "auto" for a GPU if there is one.
    """

    epochs: Positive = 30
    steps: Count | None = None
    evaluate_every: Count | None = None
    select: MetricName = "pauc"
    max_fpr: Rate = 0.1
    test: bool = True
    train_rows: Annotated[int, AT_LEAST_0] = 0
    patience: Count | None = None
    stop_below: Positive | None = None
    checkpoint_every: Count | None = None
    keep_checkpoints: Count = 2
    log_every: Count = 50
    tensorboard: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    capture: bool | Literal["auto"] = "auto"
    batch_norm: Literal["track", "recalibrate", "frozen"] = "track"
    warm_start: bool = False
    evaluation_batch_size: Count = 4096
    device: str = "auto"

    def times(self, share: float) -> TrainingSettings:
        """The same for a share of the length."""
        steps = None if self.steps is None else max(1, round(self.steps * share))
        return replace(self, epochs=self.epochs * share, steps=steps)

    @property
    def length(self) -> float:
        """In steps if they are stated, else in epochs; comparable only within a recipe."""
        return self.steps or self.epochs


SHARED_START = "start"
"""Among the branches of a run, the name of what all of them start from."""


@dataclass(frozen=True)
class SoupSettings:
    """How branches become one network, in recipes that have branches.

    Attributes:
        share: Steps of each branch, as a share of those of the first phase.
        fresh_share: The same for branches that begin at random weights.
        rule: "uniform" averages the weights of all branches that were not stopped early, "greedy" those of
            branches that raise the validation metric.
        guard: With "greedy": how many standard errors the average must be above that of all branches; if it
            is not, that is taken.
        start: Whether to go from what all branches start from to their average only as far as the validation
            rows support it: all the way, halfway, or not at all, as where cross-entropy overfits early.
        still_rising: If partial AUC on the validation rows rises by more than this in the last fifth of the
            first phase, and with AUC beyond noise, it is too early for branches: the first one trains for as
            many steps as all would, and the others do not train. 1 never does so.
        still_gaining: The same if the first branch, which is trained before the others, gains more than this
            in partial AUC over the first phase, beyond noise: it then trains on, for the steps of the others.
    """

    share: Positive = 0.1
    fresh_share: Positive = 0.25
    rule: Literal["uniform", "greedy"] = "uniform"
    guard: NotNegative = 1.0
    start: bool = True
    still_rising: NotNegative = 0.005
    still_gaining: NotNegative = 0.01


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a run.

    Attributes:
        method: What to train for; see `mmb.training.recipes.presets.METHODS`.
        data: Name of the data set under `"name"`, and its options.
        model: Name of the network under `"name"`, and its options.
        objective: Options of the method's objective.
        sampler: Which rows make a batch.
        optimizer: How the gradient estimate moves the weights.
        schedule: How step sizes change over the run.
        training: How long to train, when to look, what to keep.
        soup: How branches become one network.
        seed: The one seed that all randomness in training comes from.
        init_from: Folder of a run whose selected encoder weights are the start.
        init_heads: Whether to start from its heads, too.
        pretrain: A whole recipe that is run first, in the folder `pretrain` of this run, to start from.
        branches: Whole recipes by name, each of which is trained from the same start, in the folder
            `branches` of this run. The run is then the average of their weights, and its other settings are
            those of the first phase.
        fresh: In a branch: begin at random weights, and train as the first phase does, for another objective.
            Such weights cannot be averaged with the others. They take the place of the average if they are
            better on the validation rows.
        grid: Values to try when tuning, for a key or for several keys (with spaces) that take the same value;
            training ignores it.
        note: Free text about where the recipe comes from.

    Raises:
        ValueError: If a number is out of its range.
    """

    method: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    objective: Mapping[str, Any] = field(default_factory=dict)
    sampler: SamplerSettings | OwnSampler = SamplerSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings = TrainingSettings()
    soup: SoupSettings = SoupSettings()
    seed: int = 0
    init_from: str | None = None
    init_heads: bool = False
    pretrain: Recipe | None = None
    branches: Mapping[str, Recipe] = field(default_factory=dict)
    fresh: bool = False
    grid: Mapping[str, list[Any]] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        for (section, name), allowed in _RANGES.items():
            value = getattr(getattr(self, section), name, None)  # an own sampler lacks these
            numbers = value if isinstance(value, tuple | list) else [value]
            if not all(number is None or allowed.contains(number) for number in numbers):
                raise ValueError(f"{section}.{name}: expected {allowed.text}, got {value}")

    def untested(self) -> Recipe:
        """The same recipe without an evaluation on test rows, for runs that serve to choose settings."""
        first = None if self.pretrain is None else self.pretrain.untested()
        branches = {name: branch.untested() for name, branch in self.branches.items()}
        return replace(self, training=replace(self.training, test=False), pretrain=first, branches=branches)


SETTINGS: dict[str, type] = {
    "sampler": SamplerSettings,
    "optimizer": OptimizerSettings,
    "schedule": ScheduleSettings,
    "training": TrainingSettings,
    "soup": SoupSettings,
}
"""The sections of a recipe whose keys are always the same."""

_RANGES = {
    (section, name): found
    for section, settings in SETTINGS.items()
    for name, kind in get_type_hints(settings, include_extras=True).items()
    if (found := _range_in(kind))
}
