"""Recording what a GPU does in a step once, and then launching all of it at once.

Small steps take longer to launch, kernel by kernel, than to compute. A CUDA graph has the kernels of a step
and the addresses they work on. So a step that can be recorded reads and writes the same tensors at every
call, has shapes that do not depend on values, and never waits for the device.
"""

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from mmb.trees import map_tensors, tensors

Found = TypeVar("Found")
_WAITED = "called a synchronizing CUDA operation"  # how torch warns of it
WARM_UP = 3  # calls before a step is recorded, to compile kernels and make the state of optimizers


class WaitsError(RuntimeError):
    """A step cannot be recorded because it waits for the device."""

    def __init__(self) -> None:
        super().__init__("it waits for the device, as .item() and boolean masks do")


class Recorder(Protocol):
    """What runs and records on a device; tests have one for the CPU."""

    def run(self, step: Callable[[], Found]) -> tuple[Found, bool]:
        """Run a step outside of a recording: what it returns, and whether it waited for the device."""

    def record(self, step: Callable[[], Found]) -> tuple[Found, Callable[[], None]]:
        """Record a step without computing it: what it returns, filled by the function that replays it."""

    def recover(self) -> None:
        """Make the device usable again after a recording that failed."""


class CudaGraph:
    """Runs and records on a separate stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, step: Callable[[], Found]) -> tuple[Found, bool]:
        """Run a step on that stream, between what comes before and after on the current one."""
        mode = torch.cuda.get_sync_debug_mode()
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                with torch.cuda.stream(self._stream):
                    found = step()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
                current.wait_stream(self._stream)
        messages = [str(warning.message) for warning in seen]
        for message, warning in zip(messages, seen, strict=True):
            if "ynchroni" not in message:  # another, for the user; of this mode, torch warns as well
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return found, any(_WAITED in message for message in messages)

    def record(self, step: Callable[[], Found]) -> tuple[Found, Callable[[], None]]:
        """Record a step as a graph; what other threads do meanwhile, such as reading ahead, does no harm."""
        graph = torch.cuda.CUDAGraph()
        record = torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local")
        with _no_garbage_collection(), record:
            found = step()
        return found, graph.replay

    def recover(self) -> None:
        """Let random numbers be drawn outside of a graph again."""
        generator = torch.cuda.default_generators[self._stream.device_index]
        generator.graphsafe_set_state(generator.clone_state())


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage now, and then not: freeing an earlier graph would spoil one that is being recorded."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Captured:
    """A step that is recorded after a few calls; see `capture`.

    Args:
        step: The step.
        otherwise: What to call where the recording does not fit; the step itself if None.
        recorder: Makes what records on a device.
        failed: Called with the error if the step cannot be recorded, after which `otherwise` is all there is.
            Errors are raised if it is None.
        state: Tensors that the step changes, to be put back if it fails in the middle.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        otherwise: Callable[..., Any] | None = None,
        *,
        recorder: Callable[[torch.device], Recorder] = CudaGraph,
        failed: Callable[[Exception], None] | None = None,
        state: Callable[[], Iterable[Tensor]] = tuple,
    ) -> None:
        self._step, self._otherwise = step, otherwise or step
        self._make_recorder, self._failed, self._state = recorder, failed, state
        self._recorder: Recorder | None = None
        self._inputs: tuple[Any, ...] = ()
        self._kind: Any = None
        self._last: Any = None  # the kind of the last inputs
        self._calls = 0
        self._found: Any = None
        self._replay: Callable[[], None] | None = None
        self.impossible = False  # to record this step

    @property
    def recorded(self) -> bool:
        """Whether calls replay a recording."""
        return self._replay is not None

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What a recording reads; nothing before the first call, and if there can be none."""
        return self._inputs

    def __call__(self, *inputs: Any) -> Any:
        """Take the step; what it returns is a copy that later calls leave alone."""
        if self.impossible or not self._fits(inputs):
            return self._otherwise(*inputs)
        with torch.no_grad():
            for place, value in zip(tensors(self._inputs), tensors(inputs), strict=True):
                place.copy_(value, non_blocking=True)
        if self._replay is None:
            found = self._begin() if self._failed is None else self._try(inputs, self._failed)
            if self._replay is None:
                return found
        self._replay()
        return map_tensors(Tensor.clone, self._found)

    def _fits(self, inputs: tuple[Any, ...]) -> bool:
        """Whether inputs are like those of the recording.

        The first ones say what these are, or later ones that are alike twice in a row: the first batch may be
        the last of an epoch.
        """
        kind = kind_of(inputs)
        again, self._last = kind == self._last, kind
        if self._recorder is None:
            devices = {value.device for value in tensors(inputs)}
            if len(devices) != 1 or (self._make_recorder is CudaGraph and devices.pop().type != "cuda"):
                return False
            self._recorder = self._make_recorder(next(tensors(inputs)).device)
            self._expect(inputs, kind)
        elif kind != self._kind and again and not self.recorded:
            self._expect(inputs, kind)
        return bool(kind == self._kind)

    def _expect(self, inputs: tuple[Any, ...], kind: Any) -> None:
        """Record a step on inputs like these, after the first calls with them."""
        self._inputs = map_tensors(lambda value: value.detach().clone(), inputs)
        self._kind, self._calls = kind, 0

    def _begin(self) -> Any:
        """Compute one of the first calls, or record the step and compute nothing."""
        assert self._recorder is not None
        self._calls += 1
        if self._calls > WARM_UP:
            self._found, self._replay = self._recorder.record(lambda: self._step(*self._inputs))
            return None
        found, waited = self._recorder.run(lambda: self._step(*self._inputs))
        if waited and self._calls == WARM_UP and self._failed is not None:
            self.impossible, self._inputs = True, ()
            self._failed(WaitsError())
        return found

    def _try(self, inputs: tuple[Any, ...], failed: Callable[[Exception], None]) -> Any:
        """As `_begin`, but a step that fails is taken back, and taken without a recording."""
        assert self._recorder is not None
        before: list[tuple[Tensor, Tensor]] = []
        try:
            before = [(part, part.detach().clone()) for part in self._state()]
            return self._begin()
        except Exception as error:
            self.impossible, self._inputs = True, ()
            self._recorder.recover()
            with torch.no_grad():
                for part, old in before:
                    part.copy_(old)
            failed(error)
            return self._otherwise(*inputs)


def capture(step: Callable[..., Any]) -> Captured:
    """Launch all kernels of a training step at once: on a GPU, record it as a CUDA graph and replay it.

    ```python
    @mmb.capture
    def step(inputs, labels):
        optimizer.zero_grad()
        loss = objective(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()
    ```

    The first three calls compute as usual, on another stream. The fourth records, and later ones copy their
    arguments to where the recording reads them and replay it. Calls with other shapes, or other arguments
    that are not tensors, compute as usual; so do all calls on a CPU, and all calls after a recording that
    failed, with a warning that says why.

    What is recorded is what the GPU does, not what Python does: the step must not print, count or wait for
    the device (`.item()`), and must set gradients to None itself, as above. Optimizers need
    `capturable=True`, and a step size that changes is a tensor: `torch.optim.Adam(..., lr=torch.tensor(1e-3,
    device="cuda"), capturable=True)`, changed by `group["lr"].fill_(...)`.

    Args:
        step: A function of tensors, or of nests of them, on the GPU. It returns a nest of tensors, or None.

    Returns:
        The function to call instead.
    """

    def failed(error: Exception) -> None:
        warnings.warn(f"the step is not captured: {first_line(error)}", stacklevel=4)

    return Captured(step, failed=failed)


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def kind_of(value: Any) -> Any:
    """What must be the same at every call of a recording: shapes, types, and what is not a tensor."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.device
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), [kind_of(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return {key: kind_of(part) for key, part in value.items()}
    return [kind_of(part) for part in value] if isinstance(value, list | tuple) else value
