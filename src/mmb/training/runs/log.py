"""The log of a run: one JSON line per event, and the same numbers for TensorBoard."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor

from mmb._atomic_files import writing
from mmb._checksums import checked_line, read_line
from mmb._extras import require


class RunLog:
    """The file `metrics.jsonl` and TensorBoard events of a run, from a checkpoint on.

    The file is cut to its length at the checkpoint (`position`), so that no step is ever in it twice.
    """

    def __init__(self, folder: Path, position: int, step: int, tensorboard: bool) -> None:
        self._file = open(folder / "metrics.jsonl", "ab")  # noqa: SIM115 -- closed in __exit__
        found = self._file.tell()
        self._file.truncate(min(position, found))
        self._file.seek(0, os.SEEK_END)
        if found < position:  # it was cut short: start a new line
            self._file.write(b"\n")
        self._step = step
        self._events = None
        if tensorboard:
            writer = require("torch.utils.tensorboard", extra="training").SummaryWriter
            self._events = writer(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        if kind is not None and issubclass(kind, Exception):  # a run that continues cuts this line off
            self._append({"kind": "error", "step": self._step, "error": kind.__name__, "message": str(error)})
        with writing(self._file.name):
            self._file.close()
        if self._events is not None:
            self._events.close()

    def write(
        self,
        kind: str,
        step: int,
        numbers: Mapping[str, float | None],
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write one line: its kind ("train", "valid"), step, numbers (None if not defined), other facts."""
        record: dict[str, Any] = {"kind": kind, "step": step}
        record |= {k: v if v is not None and math.isfinite(v) else None for k, v in numbers.items()}
        self._append({**record, **facts})
        self._step = step
        if self._events is not None:
            for name, value in numbers.items():
                if value is not None:
                    self._events.add_scalar(f"{kind}/{name}", value, step)

    def _append(self, record: dict[str, Any]) -> None:
        with writing(self._file.name):
            self._file.write(checked_line(record))
            self._file.flush()

    def sync(self) -> int:
        """Bring all lines to the disk; returns the length of the file."""
        with writing(self._file.name):
            os.fsync(self._file.fileno())
        return self._file.tell()


class NoLog(RunLog):
    """The log of a process that leaves logging to another."""

    def __init__(self) -> None:
        """Open nothing."""

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def write(
        self,
        kind: str,
        step: int,
        numbers: Mapping[str, float | None],
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write nothing."""

    def sync(self) -> int:
        """Nothing was written."""
        return 0


class Window:
    """Running means of the numbers that objectives return, kept on the device until they are asked for."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, numbers: dict[str, Tensor]) -> None:
        """Add the numbers of one step."""
        for name, value in numbers.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value.double()
        self._count += 1

    def take(self) -> dict[str, float]:
        """Means since the last call; waits for the device."""
        if not self._count:
            return {}
        means = torch.stack(list(self._sums.values())).div(self._count).tolist()
        names, self._sums, self._count = list(self._sums), {}, 0
        return dict(zip(names, means, strict=True))

    def loss(self) -> float:
        """Mean loss since the last call of `take`, zero if nothing was added; waits for the device."""
        return float(self._sums["loss"]) / self._count if self._count else 0.0

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {"sums": dict(self._sums), "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._sums, self._count = dict(state["sums"]), state["count"]


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All lines of a run's `metrics.jsonl`; see `read_lines`."""
    return read_lines(folder / "metrics.jsonl")


def validation_curve(log: Iterable[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """Steps and values of a metric on the validation rows, where it has one."""
    valid = (record for record in log if record["kind"] == "valid" and record.get(metric) is not None)
    return [(record["step"], record[metric]) for record in valid]


def planned_steps(log: Iterable[Mapping[str, Any]]) -> int | None:
    """Steps of the whole run; None before its log says so."""
    return next((record.get("steps") for record in log if record["kind"] == "start"), None)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records in a file with a JSON object on each line; none if there is no file.

    Lines that are still being written, were cut short or are damaged are left out.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    return [record for line in lines if (record := read_line(line)) is not None]


def append_record(path: Path, record: dict[str, Any]) -> None:
    """Append a record to a file of such lines; a last line that a kill cut short stays apart from it."""
    with writing(path), open(path, "a+b") as file:
        file.seek(max(file.tell() - 1, 0))
        if file.read() not in (b"", b"\n"):
            file.write(b"\n")
        file.write(checked_line(record))
        file.flush()
        os.fsync(file.fileno())
