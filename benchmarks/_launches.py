"""What the host does in a training step: operations that launch a kernel, and seconds, by phase."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mmb.models import graph_isomorphism, message_passing

PHASES = ("assembly", "forward", "objective", "backward", "optimizer")
_FREE = re.compile(
    r"aten::(new_)?empty|aten::(detach|lift_fresh|promote_types|_unsafe_view|scalar_tensor|_local_scalar_dense)$"
    r"|profiler::"
)


class Launches(TorchDispatchMode):
    """Counts operations that compute something, by phase and name."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = PHASES[0]
        self.counts: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        aliases = [found.alias_info for found in func._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in aliases)
        if not view and not _FREE.match(name):
            self.counts[self.phase][name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def phases(
    model: nn.Module, optimizer: torch.optim.Optimizer, enter: Callable[[str], None]
) -> Iterator[None]:
    """Call `enter` with the name of each phase of a step as it begins; a step begins with its assembly."""
    backward = Tensor.backward

    def watched(*args: Any, **kwargs: Any) -> None:
        enter("backward")
        backward(*args, **kwargs)
        enter("objective")

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Tensor, "backward", watched))
        for hook in (
            model.register_forward_pre_hook(lambda *_: enter("forward")),
            model.register_forward_hook(lambda *_: enter("objective")),
            optimizer.register_step_pre_hook(lambda *_: enter("optimizer")),
            optimizer.register_step_post_hook(lambda *_: enter("assembly")),
        ):
            stack.callback(hook.remove)
        yield


class Launched:
    """In place of a kernel: one operation that writes to its output, the argument at a place."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        return lambda *arguments: arguments[self.place].zero_()


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Let the graph network take the operations of a GPU, with kernels that compute nothing."""
    kernels = {"forward_kernel": Launched(8), "backward_kernel": Launched(7), "bonds_kernel": Launched(6)}
    triton = SimpleNamespace(cdiv=lambda size, step: -(-size // step))
    with (
        mock.patch.object(graph_isomorphism, "in_kernels", return_value=True),
        mock.patch.object(message_passing, "triton", triton),
        mock.patch.object(message_passing, "kernels", SimpleNamespace(**kernels), create=True),
    ):
        yield


def count(
    step: Callable[[], None], model: nn.Module, optimizer: torch.optim.Optimizer, steps: int
) -> tuple[dict[str, Counter[str]], dict[str, float]]:
    """Operations of one step by phase, and host milliseconds of a step by phase, the median of some."""
    for _ in range(10):
        step()
    with Launches() as seen, phases(model, optimizer, lambda phase: setattr(seen, "phase", phase)):
        step()
    laps: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for _ in range(steps):
        spent, last = dict.fromkeys(PHASES, 0.0), [PHASES[0], time.thread_time()]

        def enter(phase: str, spent: dict[str, float] = spent, last: list[Any] = last) -> None:
            now = time.thread_time()
            spent[last[0]] += now - last[1]
            last[:] = phase, now

        with phases(model, optimizer, enter):
            step()
            enter("assembly")
        for phase, seconds in spent.items():
            laps[phase].append(1e3 * seconds)
    return seen.counts, {phase: sorted(all_)[len(all_) // 2] for phase, all_ in laps.items()}
