"""How many processor cores this process can use."""

import os


def available_cores() -> int:
    """Cores that this process may use; it may be limited to some of the machine's."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
