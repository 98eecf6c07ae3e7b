"""Timing on a machine that others use too, and the form every benchmark reports in."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)


class Lap(NamedTuple):
    """What one step cost, in seconds."""

    wall: float
    cpu: float  # of the process: the same as wall on an idle machine with one thread
    aside: float  # part of wall that the step spent on preparing its batches


def lap(step: Callable[[], float | None]) -> Lap:
    """Time one step; the step may return the seconds it spent on preparing its batches."""
    cpu, wall = time.process_time(), time.perf_counter()
    aside = step() or 0.0
    return Lap(time.perf_counter() - wall, time.process_time() - cpu, aside)


def round_robin(
    steps: dict[Key, Callable[[], float | None]], *, rounds: int, turn: float = 0.2
) -> dict[Key, list[Lap]]:
    """Time the steps in turns, so that a busy spell of the machine falls on all of them.

    What is to be compared most closely should stand next to each other.

    Args:
        steps: What to time. Each is called twice more beforehand, to warm up.
        rounds: How often each gets its turn.
        turn: Seconds a turn takes at most; steps that take longer get three turns of one step.

    Returns:
        The laps of every step.
    """
    laps: dict[Key, list[Lap]] = {key: [] for key in steps}
    sizes = {key: int(turn / min(lap(step).wall for _ in range(2))) for key, step in steps.items()}
    for number in range(rounds):
        for key, step in steps.items():
            if sizes[key]:
                laps[key] += [lap(step) for _ in range(sizes[key])]
            elif number < 3:
                laps[key].append(lap(step))
    return laps


def median_ms(values: Iterable[float]) -> float:
    """Median in milliseconds."""
    return 1e3 * statistics.median(values)


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print an aligned table, first column to the left, the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}\n")
    for line in lines:
        first, *others = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())


def machine() -> dict[str, Any]:
    """What a figure depends on, apart from the code."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,  # of the last minute
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def print_json(result: dict[str, Any]) -> None:
    """Print the result as one JSON line, the last thing a benchmark does."""
    print("\n" + json.dumps(result, allow_nan=False))
