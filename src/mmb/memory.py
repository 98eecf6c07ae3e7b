"""How much memory is free, and the error for what does not fit.

What the system does not tell is not known: on macOS and Windows that is the free memory of the host.
"""

from pathlib import Path

import torch

_CGROUPS = (  # folder, limit, use: of a container, as seen from inside
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class NoRoomError(RuntimeError):
    """Something does not fit in memory; the message says what is needed, what is free and what would fit."""


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device; None if they are not known.

    On a GPU: what the driver has free, and what torch has reserved and does not use. On the host: what Linux
    calls available (it counts caches that can be given up), up to the limit of the container, if any.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    known = [found for found in (_machine_bytes(), *map(_container_bytes, _CGROUPS)) if found is not None]
    return min(known, default=None)


def readable_bytes(count: int) -> str:
    """A number of bytes for people, such as `41.6 GiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def _machine_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        return None


def _container_bytes(cgroup: tuple[str, str, str]) -> int | None:
    folder, limit, use = Path(cgroup[0]), *cgroup[1:]
    try:
        left = int((folder / limit).read_text()) - int((folder / use).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(left + int(stat.get("inactive_file", 0)), 0)  # caches that can be given up
    except (OSError, ValueError):  # not in a container, or in one without a limit
        return None
