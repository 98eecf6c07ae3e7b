"""Another process that compiles the kernels of a step, and keeps them for this one, which trains meanwhile.

It gets a copy of the network, the objective and one batch: a step's kernels depend on nothing else. It has
neither the data nor the run's folder.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from mmb.auc import Batch
from mmb.auc.objective import Objective
from mmb.cuda_graphs import WARM_UP, first_line
from mmb.training.loop.compiled_estimate import compiled_estimate
from mmb.training.loop.kept_kernels import is_kept, kept_kernels
from mmb.training.runs.scoring import autocast
from mmb.trees import tensors

_PROGRAM = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import main; main()"
_NICE = 5  # training goes first where processor cores are few


@dataclass(frozen=True)
class Work:
    """What is compiled.

    Attributes:
        model: The network.
        objective: The objective.
        batch: A batch of the shape that is trained on.
        by_rows: Whether batches are of rows.
        precision: That of the run.
    """

    model: nn.Module
    objective: Objective
    batch: Batch
    by_rows: bool
    precision: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(tensors(self.batch)).device


class BackgroundCompiler:
    """A process that compiles, from now on.

    It ends with `close`, and with the process that started it. Of several that compile the same step, one
    does, and the others wait for it without touching the GPU.

    Args:
        name: Of the step, by `step_name`.
        work: What to compile; it is copied at once.

    Raises:
        Exception: If the work cannot be sent to another process, or a GPU has no room for a second one.
    """

    def __init__(self, name: str, work: Work) -> None:
        room, products = _room(work.device), torch.get_float32_matmul_precision()
        header = {"name": name, "device": str(work.device), "room": room, "products": products}
        content = io.BytesIO()
        torch.save(work, content)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *(place or os.getcwd() for place in sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for this process alone
        )
        lines = json.dumps({**header, "size": content.tell()}).encode() + b"\n", content.getbuffer()
        self._sender = threading.Thread(target=self._send, args=lines, daemon=True)
        self._sender.start()
        self._started = time.monotonic()

    def _send(self, header: bytes, content: memoryview) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(OSError):  # the process has ended
            pipe.write(header)
            pipe.write(content)
            pipe.flush()

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._started

    @property
    def running(self) -> bool:
        """Whether it still compiles."""
        return self._process.poll() is None

    def problem(self) -> str | None:
        """Why it failed; None if it did not."""
        if self._process.wait() == 0:
            return None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process that compiled ended with {self._process.returncode}"

    def close(self) -> None:
        """End the process, and those that it started."""
        if self.running:
            _kill_group(self._process.pid)
            self._process.wait()
        self._sender.join()
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(OSError):
            pipe.close()
        self._errors.close()


def _kill_group(number: int) -> None:
    """Kill a process that leads a group, and the group."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(number, signal.SIGKILL)
        else:
            os.kill(number, signal.SIGTERM)


def _room(device: torch.device) -> int | None:
    """Bytes that another process may take on a GPU: half of the free ones, at least as many as this has."""
    if device.type != "cuda":
        return None
    room = torch.cuda.mem_get_info(device)[0] // 2
    if room < torch.cuda.max_memory_reserved(device):
        raise MemoryError("the GPU has no room for a second process that compiles")
    return room


def main() -> None:
    """Compile what the process that started this one sends through standard input."""
    pipe = sys.stdin.buffer
    header = json.loads(pipe.readline() or "{}")
    content = pipe.read(header.get("size", 0))
    if not content or len(content) < header["size"]:
        sys.exit(1)  # it has ended
    threading.Thread(target=_end_with_pipe, args=(pipe.fileno(),), daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    try:
        with kept_kernels(header["name"]):
            if not is_kept(header["name"]):  # by a process that was first
                _compile(content, torch.device(header["device"]), header["room"], header["products"])
    except Exception as error:
        print(first_line(error), file=sys.stderr)
        sys.exit(1)


def _end_with_pipe(number: int) -> None:
    """End this process, and those that it started, when the one that started it does."""
    os.read(number, 1)
    _kill_group(os.getpid())
    os._exit(1)


def _compile(content: bytes, device: torch.device, room: int | None, products: str) -> None:
    """Compute some steps, the optimizer's part left out; `products` says how precise they are in float32."""
    if products != torch.get_float32_matmul_precision():  # to set it to the same makes other kernels
        torch.set_float32_matmul_precision(products)
    if room is not None:
        torch.cuda.set_device(device)
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, room / whole))
    work: Work = torch.load(io.BytesIO(content), weights_only=False)
    estimate = compiled_estimate(work.objective, work.model, work.by_rows)
    warnings.filterwarnings("error", "the step could not be compiled")
    for _ in range(WARM_UP):
        for part in (work.model, work.objective):
            part.zero_grad()
        with autocast(device, work.precision):
            estimate(work.batch)
    if device.type == "cuda":
        torch.cuda.synchronize()
