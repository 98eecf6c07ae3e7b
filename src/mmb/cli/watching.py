"""Progress of training on the terminal."""

from collections.abc import Sequence
from typing import Any

from mmb.cli.console import Console
from mmb.training import Observer, PlannedRun, Run, train_many


class ProgressObserver(Observer):
    """Draws a bar with the loss and the last evaluation."""

    def __init__(self, progress: Any, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._numbers: dict[str, str] = {}
        self._task: Any = None

    def begin(self, run: Run, step: int, steps: int) -> None:
        """Start a bar, in place of that of a training that did not end."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._numbers = {}
        title = f"{run.recipe.data['name']}, {run.recipe.method}, seed {run.recipe.seed}"
        self._task = self._progress.add_task(title, total=steps, completed=step, unit="steps", numbers="")

    def stepped(self, step: int, numbers: dict[str, float]) -> None:
        """Move the bar."""
        self._show(step, {"loss": f"{numbers['loss']:.4f}"})

    def evaluated(self, step: int, valid: dict[str, float]) -> None:
        """Show the evaluation beside the bar."""
        self._show(step, {f"valid {name}": f"{value:.4f}" for name, value in valid.items()})

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
        text = "  ".join(f"{name} {value}" for name, value in self._numbers.items())
        self._progress.update(self._task, completed=step, numbers=text)


def train_and_show(
    title: str, planned: Sequence[PlannedRun], jobs: int, console: Console, **options: Any
) -> dict[str, Exception]:
    """Train many runs, as `train_many` does with these options, under a bar that counts them."""
    with console.progress() as progress:
        bar = progress.add_task(title, total=len(planned), unit="runs", numbers="")
        observer = ProgressObserver(progress, console)
        moved = lambda done: progress.update(bar, completed=done)  # noqa: E731
        return train_many(planned, jobs, observer, moved=moved, **options)
