"""What dividing blocks among processes costs and gives, on one machine: gloo over the loopback device.

    python benchmarks/distributed.py                    # 1 and 2 processes, 128 to 100,000 blocks
    python benchmarks/distributed.py --blocks 128 --rounds 1

A step samples 64 blocks (`_divided.py` has the problems), and every process works on those of them that it
owns. Beside the time of a step: the bytes that `torch.distributed` was given to reduce, the bytes that really
went over the loopback device (as the kernel counts them: headers included, and whatever else the machine
sent; the least of several spells), and the bytes of block state that each process holds. The time of a step
is predicted by

    t(N) = compute(k) + latency + 2 (N - 1) / N * bytes / bandwidth

with `compute` the line through the times of one process at 16, 32 and 64 sampled blocks, k the mean over
steps of the most blocks that a process had, and latency and bandwidth of bare all-reduces.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from _divided import CASES, Case
from _timing import machine, median_ms, print_json, print_table

SAMPLED = 64
SPELL = 10  # steps between two looks at the counters
REDUCED = [2**power for power in range(10, 25, 2)]  # bytes of the bare all-reduces
Found = dict[str, Any]


def run(case: Case, sampled: int, spells: int) -> Found:
    """Time steps; every process does this at the same time."""
    case.sample(sampled)
    for _ in range(3):
        case.step()
    case.shares.clear()
    seconds: list[float] = []
    wire: list[float] = []
    with counted_payload() as payload:
        for _ in range(spells):
            dist.barrier()
            before = loopback_bytes()
            for _ in range(SPELL):
                start = time.perf_counter()
                case.step()
                seconds.append(time.perf_counter() - start)
            wire.append((loopback_bytes() - before) / SPELL / dist.get_world_size())
    return {
        "seconds": seconds,
        "reduced": sum(payload) / len(seconds),
        "wire": min(wire),
        "block_bytes": case.block_bytes(),
        "shares": list(case.shares),
    }


@contextmanager
def counted_payload() -> Iterator[list[int]]:
    """The bytes of every all-reduce that is made meanwhile."""
    reduce, payload = dist.all_reduce, []

    def counting(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        payload.append(tensor.numel() * tensor.element_size())
        return reduce(tensor, *args, **kwargs)

    dist.all_reduce = counting
    try:
        yield payload
    finally:
        dist.all_reduce = reduce


def loopback_bytes() -> int:
    """Bytes that the loopback device has sent since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    return 0


def bare_all_reduces(repeats: int = 50) -> dict[int, list[float]]:
    """Seconds of all-reduces of several sizes."""
    found: dict[int, list[float]] = {}
    for size in REDUCED:
        tensor, found[size] = torch.zeros(size // 4), []
        for _ in range(repeats):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            found[size].append(time.perf_counter() - start)
    return found


def worker(rank: int, world: int, port: int, folder: str, blocks: list[int], spells: int) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", address, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    found: Found = {"all_reduce": bare_all_reduces() if world > 1 else {}}
    for name, make in CASES.items():
        for num_blocks in blocks:
            case = make(num_blocks)
            for sampled in (SAMPLED // 4, SAMPLED // 2, SAMPLED) if world == 1 else (SAMPLED,):
                found[name, num_blocks, sampled] = run(case, sampled, spells)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def measure(world: int, blocks: list[int], spells: int) -> list[Found]:
    """What each of `world` processes found."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        mp.start_processes(worker, (world, port, folder, blocks, spells), nprocs=world, start_method="spawn")
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def line(points: dict[int, float]) -> tuple[float, float]:
    """Value at zero and slope of the line through some points, each counted relative to its value."""
    x, y = (torch.tensor(values, dtype=torch.float64) for values in (list(points), list(points.values())))
    system = torch.stack([torch.ones_like(x), x], dim=1) / y[:, None]
    start, slope = torch.linalg.lstsq(system, torch.ones_like(x)[:, None]).solution.flatten().tolist()
    return start, slope


def summarize(name: str, m: int, rounds: list[list[Found]]) -> dict[str, Any]:
    """One line of the table; `rounds` have what each process found."""
    key = name, m, SAMPLED
    everyone = [rank[key] for ranks in rounds for rank in ranks]
    shares = [zip(*(rank[key]["shares"] for rank in ranks), strict=True) for ranks in rounds]
    return {
        "case": name,
        "m": m,
        "processes": len(rounds[0]),
        "ms": median_ms(second for found in everyone for second in found["seconds"]),
        "most_blocks": statistics.mean(max(step) for steps in shares for step in steps),
        "reduced": max(found["reduced"] for found in everyone),
        "wire": min(found["wire"] for found in everyone) if len(rounds[0]) > 1 else 0.0,
        "block_bytes": max(found["block_bytes"] for found in everyone),
    }


def report(alone: list[list[Found]], together: list[list[Found]], blocks: list[int]) -> dict[str, Any]:
    """Print the tables and return what they say."""
    times = {
        size: statistics.median(s for ranks in together for rank in ranks for s in rank["all_reduce"][size])
        for size in REDUCED
    }
    latency, per_byte = line(times)  # of two processes: 2 (N - 1) / N = 1
    lines: list[dict[str, Any]] = []
    for name in CASES:
        for m in blocks:
            one, two = summarize(name, m, alone), summarize(name, m, together)
            fixed, per_block = line(
                {
                    sampled: statistics.median(
                        s for ranks in alone for s in ranks[0][name, m, sampled]["seconds"]
                    )
                    for sampled in (SAMPLED // 4, SAMPLED // 2, SAMPLED)
                }
            )
            one["compute_ms"] = [1e3 * fixed, 1e3 * per_block]
            two["predicted_ms"] = 1e3 * (
                fixed + per_block * two["most_blocks"] + latency + two["reduced"] * per_byte
            )
            lines += [one, two]
    print_table(
        f"{SAMPLED} blocks a step, with 1 and 2 processes; bytes are per process and step",
        ["", "m", "processes", "ms", "predicted", "reduced", "sent", "block state MB"],
        [
            [
                found["case"],
                f"{found['m']:,}",
                str(found["processes"]),
                f"{found['ms']:.2f}",
                f"{found['predicted_ms']:.2f}" if "predicted_ms" in found else "",
                f"{found['reduced']:,.0f}",
                f"{found['wire']:,.0f}",
                f"{found['block_bytes'] / 1e6:,.3f}",
            ]
            for found in lines
        ],
    )
    print_table(
        "Bare all-reduce between two processes, and the line through these",
        ["bytes", "microseconds", "line"],
        [[f"{n:,}", f"{1e6 * t:,.0f}", f"{1e6 * (latency + n * per_byte):,.0f}"] for n, t in times.items()],
    )
    print(f"\nlatency {1e6 * latency:.0f} microseconds, bandwidth {1e-9 / per_byte:.2f} GB/s")
    return {
        "lines": lines,
        "latency_us": 1e6 * latency,
        "bandwidth_GBs": 1e-9 / per_byte,
        "all_reduce_us": {str(size): 1e6 * seconds for size, seconds in times.items()},
    }


def rounded(value: Any) -> Any:
    """The same with five digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, nargs="+", default=[128, 1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=2, help="how often each number of processes is started")
    parser.add_argument("--spells", type=int, default=3, help=f"times {SPELL} steps in each")
    options = parser.parse_args()
    alone, together = [], []
    for _ in range(options.rounds):  # in turns, so that a busy spell of the machine falls on both alike
        alone.append(measure(1, options.blocks, options.spells))
        together.append(measure(2, options.blocks, options.spells))
    result = rounded(report(alone, together, options.blocks))
    print_json({"benchmark": "distributed", "blocks_per_step": SAMPLED, "machine": machine(), **result})


if __name__ == "__main__":
    main()
