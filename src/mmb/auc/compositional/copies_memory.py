"""The memory that weight copies need, before it is allocated, and what would fit instead."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from mmb import memory
from mmb.memory import NoRoomError, readable_bytes

_SMALLER = (torch.float32, torch.bfloat16)  # dtypes to offer, largest first


@dataclass(frozen=True)
class Footprint:
    """The size of a matrix of weight copies."""

    rows: int  # tasks of this process
    width: int  # weights of one copy
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes(self) -> int:
        """`rows * width * (bytes of a number)`."""
        return self.rows * self.width * self.dtype.itemsize

    def __str__(self) -> str:
        return (
            f"{self.rows:,} weight copies of {self.width:,} weights in {_name(self.dtype)} on {self.device}: "
            f"{readable_bytes(self.bytes)}"
        )

    def fits(self, sharers: int = 1) -> bool:
        """Whether there is room for one in each of the processes that share the memory."""
        free = memory.free_bytes(self.device)
        return free is None or self.bytes * sharers <= free

    def check(self, sharers: int = 1) -> None:
        """Raise NoRoomError if it does not fit, saying what is needed, what is free and what would fit."""
        if self.fits(sharers):
            return
        free = memory.free_bytes(self.device) or 0
        each = f" for each of {sharers} processes" if sharers > 1 else ""
        fitting = list(self._alternatives(sharers, free))
        what = "what would fit: " + "; ".join(fitting) if fitting else "not even one copy would fit"
        raise NoRoomError(
            f"{self}{each}, but {readable_bytes(free)} are free there; {what}. Parameters of the encoder "
            "that do not require gradients are not copied"
        )

    def _alternatives(self, sharers: int, free: int) -> Iterator[str]:
        dtypes = [self.dtype, *(dtype for dtype in _SMALLER if dtype.itemsize < self.dtype.itemsize)]
        devices = [self.device, torch.device("cpu")] if self.device.type != "cpu" else [self.device]
        for device in devices:
            for dtype in dtypes:
                other = replace(self, dtype=dtype, device=device)
                if other.fits(sharers):
                    chosen = [f"copies_dtype={_name(dtype)}"] if dtype != self.dtype else []
                    chosen += [f"copies_device={device}"] if device != self.device else []
                    yield f"{' and '.join(chosen)} ({readable_bytes(other.bytes)})"
        for dtype in dtypes:
            room = free // sharers // (self.width * dtype.itemsize)
            if room:
                times = -(-self.rows // room)
                part = replace(self, rows=-(-self.rows // times), dtype=dtype)
                yield (
                    f"{times} times as many processes, each with as much memory, in {_name(dtype)} "
                    f"({readable_bytes(part.bytes)} each)"
                )
                break


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
