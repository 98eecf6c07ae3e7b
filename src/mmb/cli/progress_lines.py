"""Progress where there is no terminal, such as in a log file: a line now and then."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from mmb.cli.durations import duration

_FIRST = 0.01  # of the total: a first report of less says nothing about the pace
_ENOUGH = 5.0  # seconds of work before a line says how much is left


@dataclass
class _Task:
    description: str
    total: float
    completed: float
    unit: str
    numbers: str
    started: float  # when what is estimated from began
    start: float  # of `completed`, at that time
    begun: bool = False  # whether anything has been done


class ProgressLines:
    """Stands in for rich's `Progress`, with the methods that are used here.

    Args:
        say: Prints a line.
        every: Seconds between lines.
        clock: The time in seconds.
    """

    def __init__(
        self, say: Callable[[str], None], every: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._every, self._clock = say, every, clock
        self._tasks: dict[int, _Task] = {}
        self._made = 0
        self._last = clock()

    def add_task(
        self, description: str, total: float, completed: float = 0, unit: str = "", numbers: str = ""
    ) -> int:
        """Follow something; returns its number."""
        self._made += 1
        self._tasks[self._made] = _Task(
            description, total, completed, unit, numbers, self._clock(), completed
        )
        return self._made

    def update(
        self,
        task: int,
        completed: float | None = None,
        total: float | None = None,
        numbers: str | None = None,
    ) -> None:
        """Say where things are, if it is time."""
        found = self._tasks[task]
        found.completed = found.completed if completed is None else completed
        found.total = found.total if total is None else total
        if not found.begun and found.completed > found.start:
            found.begun = True
            if found.completed - found.start < _FIRST * found.total:  # most of its time was start-up
                found.started, found.start = self._clock(), found.completed
        found.numbers = found.numbers if numbers is None else numbers
        if self._clock() - self._last >= self._every:
            self._last = self._clock()
            self._say("; ".join(self._text(one) for one in self._tasks.values()))

    def remove_task(self, task: int) -> None:
        """Stop following it."""
        del self._tasks[task]

    def _text(self, task: _Task) -> str:
        total = f"/{task.total:,.0f}" if task.total else ""  # which is not always known
        text = f"{task.description}: {task.completed:,.0f}{total} {task.unit}"
        made, taken = task.completed - task.start, self._clock() - task.started
        if made > 0 and taken >= _ENOUGH and task.total:
            left = taken / made * (task.total - task.completed)
            text += f", {duration(left)} left"
        return f"{text}, {task.numbers}" if task.numbers else text
