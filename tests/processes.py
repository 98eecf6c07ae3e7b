"""Real process groups on loopback."""

from __future__ import annotations

import multiprocessing
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

_PRELOADED = [
    "torch",
    "torch.nn.parallel",
    "torch._dynamo",  # optimizers import it in their first step
    "torch.distributed.checkpoint",
    "jsonargparse",
    "optuna",
    "safetensors.torch",
    "mmb.auc.sharded",
    "mmb.cli.training_commands",
    "mmb.training",
    "objective_bank",
]


def fork_server() -> Any:
    """A context whose processes start in milliseconds: their server has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


@contextmanager
def quick_workers() -> Iterator[None]:
    """Let `mmb.training.processes.workers` start its processes by the fork server, not by importing all."""
    from mmb.training.processes import workers  # not needed by tests of the core

    context = fork_server()
    with mock.patch.object(workers.multiprocessing, "get_context", return_value=context):
        yield


def in_processes(world: int, worker: Callable[..., Any], *arguments: Any, timeout: float = 60) -> list[Any]:
    """Run `worker(*arguments)` in each of a group of processes and return what they return, by rank.

    Answers must be plain (no tensors: those would be shared memory of a process that is gone). An error in
    one ends all of them.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = fork_server()
    pipes, processes = [], []
    for rank in range(world):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_entry, args=(there, rank, world, port, timeout, worker, arguments))
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    try:
        answers = [_answer(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    errors = [f"process {rank}: {answer}" for rank, (kind, answer) in enumerate(answers) if kind == "error"]
    assert not errors, "\n".join(errors)
    return [answer for _, answer in answers]


def _answer(pipe) -> tuple[str, Any]:
    try:
        return pipe.recv() if pipe.poll(300) else ("error", "no answer")
    except EOFError:
        return ("error", "the process has crashed")


def _entry(pipe, rank, world, port, timeout, worker, arguments):
    torch.set_num_threads(1)
    mock.patch("os.fsync").start()  # as in conftest.py
    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world, timeout=timedelta(seconds=timeout)
    )
    try:
        pipe.send(("answer", worker(*arguments)))
        dist.barrier()
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
        raise
    dist.destroy_process_group()


def in_turn(calls: list[tuple[Any, ...]]) -> list[Any]:
    """Call functions, each given with its arguments, in turn: one start of processes serves them all."""
    return [function(*arguments) for function, *arguments in calls]
