"""Progress of training on the terminal."""

from collections.abc import Sequence
from typing import Any

from mmb.cli.console import Console
from mmb.cli.durations import duration
from mmb.training import Observer, PlannedRun, Run, train_many
from mmb.training.loop.setup import find_device

_SHORT, _LONG = 20, 7200  # seconds: less is not worth a line, more is worth advice


class ProgressObserver(Observer):
    """Draws a bar with the last evaluation and the loss, and says beforehand how long training takes."""

    def __init__(self, progress: Any, console: Console, many: bool = False) -> None:
        self._progress = progress
        self._console = console
        self._many, self._paced = many, False
        self._numbers: dict[str, str] = {}
        self._select = ""
        self._task: Any = None

    def begin(self, run: Run, step: int, steps: int) -> None:
        """Start a bar, in place of that of a training that did not end."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._numbers, self._select = {}, run.recipe.training.select
        title = f"{run.recipe.method}, seed {run.recipe.seed}"
        if not self._many and steps > step:
            left, every = steps - step, run.recipe.training.evaluate_every
            looks = f", evaluated every {every:,}" if every and every < left else ""
            self._console.say(f"{title}: {left:,} step{'s' * (left != 1)}{looks}")
        self._task = self._progress.add_task(title, total=steps, completed=step, unit="steps", numbers="")

    def paced(self, run: Run, seconds: float) -> None:
        """Say how long it takes, with advice if that is hours; of many runs, only of the first."""
        if self._many and self._paced:
            return
        self._paced = True
        name = "each run" if self._many else "training"
        if seconds > _LONG:
            settings = run.recipe.training
            length = (
                f"training.steps={settings.steps}"
                if settings.steps
                else f"training.epochs={settings.epochs:g}"
            )
            self._console.warn(
                f"{name} takes about {duration(seconds)} on {_place(run)}: to try things out, lower {length} "
                "or set training.patience; Ctrl-C stops with a checkpoint, and `mmb resume` continues"
            )
        elif seconds > _SHORT:
            self._console.say(f"{name} takes about {duration(seconds)}")

    def stepped(self, step: int, numbers: dict[str, float]) -> None:
        """Move the bar."""
        self._show(step, {"loss": f"{numbers['loss']:.4f}"})

    def evaluated(self, step: int, valid: dict[str, float]) -> None:
        """Show the evaluation beside the bar."""
        self._show(step, {self._select: f"{valid[self._select]:.4f}"})

    def end(self, run: Run, result: dict[str, Any]) -> None:
        """Remove the bar."""
        self._progress.remove_task(self._task)
        self._task = None

    def note(self, message: str) -> None:
        """Print above the bar."""
        self._console.say(message)

    def say(self, message: str) -> None:
        """Print above the bar, also beside JSON: something went wrong."""
        self._console.warn(message)

    def _show(self, step: int, numbers: dict[str, str]) -> None:
        self._numbers |= numbers
        names = sorted(self._numbers, key=lambda name: name == "loss")  # last: it is cut first
        text = "  ".join(f"{name} {self._numbers[name]}" for name in names)
        self._progress.update(self._task, completed=step, numbers=text)


def train_and_show(
    title: str, planned: Sequence[PlannedRun], jobs: int, console: Console, **options: Any
) -> dict[str, Exception]:
    """Train many runs, as `train_many` does with these options, under a bar that counts them."""
    with console.progress() as progress:
        bar = progress.add_task(title, total=len(planned), unit="runs", numbers="")
        observer = ProgressObserver(progress, console, many=True)
        moved = lambda done: progress.update(bar, completed=done)  # noqa: E731
        return train_many(planned, jobs, observer, moved=moved, **options)


def _place(run: Run) -> str:
    return "this GPU" if find_device(run.recipe.training.device).type == "cuda" else "this CPU"
