"""The random numbers of a run: one seed, one stream per purpose; nothing outside is touched."""

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
    """Give a block its own random stream, and put the caller's back afterwards.

    Initialization and dropout take no generator: they draw from torch's default ones. Inside this block those
    start at a seed derived from `seed`; outside they are as if it had not run.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        _seed_defaults(derive_seed(seed, "model"), device)
        yield


def _seed_defaults(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


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
    """Let each process draw its own dropout and augmentation from now on; the first draws as if alone."""
    if rank == 0:
        return
    own = derive_seed(seed, f"process {rank}")
    _seed_defaults(own, device)
    augmentation.manual_seed(derive_seed(own, "augmentation"))
