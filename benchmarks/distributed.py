"""What dividing blocks among processes costs and gives, on one machine: gloo over the loopback device.

    python benchmarks/distributed.py                    # 1 and 2 processes, 128 to 100,000 blocks
    python benchmarks/distributed.py --blocks 128 --rounds 1

A step samples 64 blocks (`_divided.py` has the problems), and every process works on those of them that it
owns. Beside the time of a step: the bytes that `torch.distributed` was given to reduce, the bytes that really
went over the loopback device (as the kernel counts them: headers included, and everything else the machine
sent; the least of several spells), and the bytes of block state that each process holds. The time of a step
is predicted by

    t(N) = compute(k) + latency + 2 (N - 1) / N * bytes / bandwidth

with `compute` the line through the times at 16, 32 and 64 sampled blocks of two processes that do the same,
each in its own group (so that they share the machine's memory and caches, but nothing is sent), k the
mean over steps of the most blocks that a process had, and latency and bandwidth of bare all-reduces. The
same formula says what more processes would give with another bandwidth.

Two processes on two cores suffer from other work. Steps are timed in spells, and a spell in
which others used more than a twentieth of the machine is made again, for a while; the quietest count.
"""

from __future__ import annotations

import argparse
import os
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

from _divided import CASES, AllReduce, Case
from _timing import machine, median_ms, print_json, print_table
from mmb.distributed import Shard

SAMPLED = 64
COMPUTED = (SAMPLED // 4, SAMPLED // 2, SAMPLED)
SPELL = 0.25  # seconds between two looks at the counters, about
QUIET = 0.05  # share of the machine that others may use
PROCESSES = [1, 2, 4, 8, 16, 32, 64]  # of the model
REDUCED = [2**power for power in range(10, 25, 2)]  # bytes of the bare all-reduces
Found = dict[str, Any]


def run(case: Case, sampled: int, spells: int, patience: float) -> Found:
    """Time steps; every process does this at the same time."""
    case.sample(sampled)
    length = steps_in(case, SPELL)
    case.shares.clear()
    made: list[Found] = []
    begin = time.perf_counter()
    while True:
        with watched() as use:
            laps, reduced, before = [], [], loopback_bytes()
            with counted_payload(reduced):
                for _ in range(length):
                    start = time.perf_counter()
                    case.step()
                    laps.append(time.perf_counter() - start)
            dist.barrier()  # a few hundred bytes, once a spell
            wire = (loopback_bytes() - before) / length / dist.get_world_size()
        made.append({"others": use[0], "seconds": laps, "wire": wire, "reduced": sum(reduced) / length})
        quiet = [spell for spell in made if spell["others"] <= QUIET]
        if agree(len(quiet) >= spells or (len(made) >= spells and time.perf_counter() - begin > patience)):
            break
    best = sorted(made, key=lambda spell: spell["others"])[:spells]
    return {
        "seconds": [lap for spell in best for lap in spell["seconds"]],
        "others": max(spell["others"] for spell in best),
        "reduced": made[0]["reduced"],
        "wire": min(spell["wire"] for spell in made),
        "block_bytes": case.block_bytes(),
        "shares": list(case.shares),
    }


def steps_in(case: Case, seconds: float) -> int:
    """How many steps take so long, the same number in every process; at least five."""
    case.step()
    start = time.perf_counter()
    for _ in range(3):
        case.step()
    length = torch.tensor(max(5.0, 3 * seconds / (time.perf_counter() - start)))
    dist.broadcast(length, 0)
    return int(length)


def agree(enough: bool) -> bool:
    """What the first process says."""
    answer = torch.tensor(enough)
    dist.broadcast(answer, 0)
    return bool(answer)


@contextmanager
def watched() -> Iterator[list[float]]:
    """Gives the share of the machine that was used meanwhile by other programs, once it is over."""
    use: list[float] = []
    dist.barrier()
    machine_before, own_before, start = busy_seconds(), time.process_time(), time.perf_counter()
    yield use
    dist.barrier()
    own = torch.tensor(time.process_time() - own_before, dtype=torch.float64)
    busy, wall = busy_seconds() - machine_before, time.perf_counter() - start
    dist.all_reduce(own)
    others = torch.tensor((busy - float(own)) / wall / (os.cpu_count() or 1), dtype=torch.float64)
    dist.broadcast(others, 0)
    use.append(max(0.0, float(others)))


def busy_seconds() -> float:
    """Processor seconds that the machine has spent on anything since it started; stolen ones count."""
    user, nice, system, _, _, irq, softirq, steal, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


@contextmanager
def counted_payload(payload: list[int]) -> Iterator[None]:
    """Adds the bytes of every all-reduce that is made meanwhile."""
    reduce = dist.all_reduce

    def counting(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        payload.append(tensor.numel() * tensor.element_size())
        return reduce(tensor, *args, **kwargs)

    dist.all_reduce = counting
    try:
        yield
    finally:
        dist.all_reduce = reduce


def loopback_bytes() -> int:
    """Bytes that the loopback device has sent since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    return 0


def worker(rank: int, world: int, port: int, folder: str, blocks: list[int], *effort: float) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", address, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    found: Found = {}
    groups = [dist.new_group([number]) for number in range(world)]
    for size in REDUCED if world > 1 else []:
        found["all_reduce", size] = run(AllReduce(size), 0, *effort)["seconds"]
    for name, make in CASES.items():
        for m in blocks:
            if world > 1:
                whole = make(m, Shard.of_this_process(m, groups[rank]))
                for sampled in COMPUTED:
                    found["compute", name, m, sampled] = run(whole, sampled, *effort)["seconds"]
                del whole
            case = make(m, Shard.of_this_process(m) if world > 1 else None)
            found[name, m] = run(case, SAMPLED, *effort)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def measure(world: int, blocks: list[int], *effort: float) -> list[Found]:
    """What each of `world` processes found."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        mp.start_processes(worker, (world, port, folder, blocks, *effort), nprocs=world, start_method="spawn")
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def line(points: dict[int, float]) -> tuple[float, float]:
    """Value at zero and slope of the line through some points, each counted relative to its value."""
    x, y = (torch.tensor(values, dtype=torch.float64) for values in (list(points), list(points.values())))
    system = torch.stack([torch.ones_like(x), x], dim=1) / y[:, None]
    start, slope = torch.linalg.lstsq(system, torch.ones_like(x)[:, None]).solution.flatten().tolist()
    return start, slope


def summarize(name: str, m: int, rounds: list[list[Found]]) -> dict[str, Any]:
    """One line of the table; `rounds` have what each process found."""
    key = name, m
    everyone = [rank[key] for ranks in rounds for rank in ranks]
    shares = [zip(*(rank[key]["shares"] for rank in ranks), strict=True) for ranks in rounds]
    return {
        "case": name,
        "m": m,
        "processes": len(rounds[0]),
        "ms": median_ms(second for found in everyone for second in found["seconds"]),
        "others": max(found["others"] for found in everyone),
        "most_blocks": statistics.mean(max(step) for steps in shares for step in steps),
        "reduced": max(found["reduced"] for found in everyone),
        "wire": min(found["wire"] for found in everyone) if len(rounds[0]) > 1 else 0.0,
        "block_bytes": max(found["block_bytes"] for found in everyone),
    }


def extrapolate(lines: list[dict[str, Any]], latency: float, bandwidth: float) -> list[list[Any]]:
    """Case, number of blocks, and ms per step with each number of processes, by the formula."""
    generator = torch.Generator().manual_seed(0)
    most = []  # blocks that the busiest process has, in the mean
    for number in PROCESSES:
        owners = torch.randint(number, (1000, SAMPLED), generator=generator)
        counts = torch.zeros(1000, number).scatter_add_(1, owners, torch.ones(1000, SAMPLED))
        most.append(float(counts.amax(1).mean()))
    found = []
    for one, two in zip(lines[::2], lines[1::2], strict=True):
        fixed, per_block = one["compute_ms"]
        times = [
            fixed
            + per_block * blocks
            # a ring has 2 (N - 1) hops, of which the latency of two processes has 2
            + (number - 1) * 1e3 * latency
            + 2 * (number - 1) / number * two["reduced"] / bandwidth * 1e-6
            for number, blocks in zip(PROCESSES, most, strict=True)
        ]
        found.append([one["case"], one["m"], times])
    return found


def report(
    alone: list[list[Found]], together: list[list[Found]], blocks: list[int], bandwidth: float
) -> dict[str, Any]:
    """Print the tables and return what they say."""
    times = {
        size: statistics.median(s for ranks in together for rank in ranks for s in rank["all_reduce", size])
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
                        s for ranks in together for rank in ranks for s in rank["compute", name, m, sampled]
                    )
                    for sampled in COMPUTED
                }
            )
            one["compute_ms"] = [1e3 * fixed, 1e3 * per_block]
            two["predicted_ms"] = 1e3 * (
                fixed + per_block * two["most_blocks"] + latency + two["reduced"] * per_byte
            )
            lines += [one, two]
    print_table(
        f"{SAMPLED} blocks a step, with 1 and 2 processes; bytes are per process and step",
        ["", "m", "processes", "ms", "predicted", "reduced", "sent", "block state MB", "others"],
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
                f"{found['others']:.0%}",
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
    model = extrapolate(lines, latency, bandwidth)
    print_table(
        f"Model, not measured: ms per step with {bandwidth:g} GB/s between machines, at the latency above",
        ["", "m", *(f"N={number}" for number in PROCESSES)],
        [[name, f"{m:,}", *(f"{ms:.2f}" for ms in times)] for name, m, times in model],
    )
    return {
        "lines": lines,
        "model": {"bandwidth_GBs": bandwidth, "processes": PROCESSES, "ms": model},
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
    parser.add_argument(
        "--spells", type=int, default=4, help=f"quiet ones of {SPELL} seconds to time steps in"
    )
    parser.add_argument("--patience", type=float, default=5.0, help="seconds to look for quiet ones")
    parser.add_argument("--bandwidth", type=float, default=1.25, help="GB/s of the model; 1.25 is 10 Gbit/s")
    options = parser.parse_args()
    alone, together = [], []
    for _ in range(options.rounds):  # in turns, so that a busy spell of the machine falls on both
        alone.append(measure(1, options.blocks, options.spells, options.patience))
        together.append(measure(2, options.blocks, options.spells, options.patience))
    result = rounded(report(alone, together, options.blocks, options.bandwidth))
    print_json({"benchmark": "distributed", "blocks_per_step": SAMPLED, "machine": machine(), **result})


if __name__ == "__main__":
    main()
