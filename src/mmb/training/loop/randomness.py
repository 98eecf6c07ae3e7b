"""Where a run's random numbers come from: one seed, one stream per purpose, nothing outside is touched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, purpose: str) -> int:
    """A seed for one purpose, so that no two purposes share a stream: 63 bits of SHA-256(seed, purpose)."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Give a block a random stream of its own, and put the world's back afterwards.

    Initialisation and dropout draw from torch's default generators, which take no generator as an argument;
    inside this block those start at a seed derived from `seed`, outside they are as if it had not run.

    Args:
        seed: The seed of the run.
        device: Where the run computes; its default generator is set too.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(derive_seed(seed, "model"))
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(derive_seed(seed, "model"))
        yield


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """State of the default generators that a run draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, torch.Tensor], device: torch.device) -> None:
    """Continue the default generators where `random_state` was taken."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "device" in state:
        torch.cuda.set_rng_state(state["device"], device)


def separate_streams(seed: int, rank: int, device: torch.device, augmentation: torch.Generator) -> None:
    """Let each of many processes draw its own dropout and augmentation from here on; the first as if alone.

    Args:
        seed: The seed of the run.
        rank: Number of the process.
        device: Where the run computes.
        augmentation: The generator of the augmentation.
    """
    if rank == 0:
        return
    own = derive_seed(seed, f"process {rank}")
    torch.default_generator.manual_seed(own)
    augmentation.manual_seed(derive_seed(own, "augmentation"))
    if device.type == "cuda":
        torch.cuda.manual_seed(own)
