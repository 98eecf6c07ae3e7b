"""What all samplers share: epochs, a generator, exact resumption, and lists of rows by task and class."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from mmb._numbers import check_whole
from mmb.auc.labels import Labels

_Draw = TypeVar("_Draw")
_CHUNK = 1 << 24  # label entries listed at a time: bounds the temporaries of a big matrix


class Sampler(ABC, Generic[_Draw]):
    """An endless, resumable source of draws, counted in epochs.

    Iterating gives the rest of the current epoch; iterating again gives the next one. `state_dict` taken
    between two draws and loaded into a sampler made with the same arguments continues bit for bit.

    Your own sampler implements `draw`, and `begin_epoch` if something stays fixed for an epoch. All that is
    random comes from `generator`: then it resumes as well.

    Args:
        device: Where draws are made: that of the labels.
        steps_per_epoch: Draws in an epoch.
        generator: A generator on this device, or its seed.

    Attributes:
        epoch: Whole epochs drawn so far.
        step: Draws made in the current epoch.
    """

    def __init__(
        self, device: torch.device, steps_per_epoch: int, generator: torch.Generator | int = 0
    ) -> None:
        check_whole("steps_per_epoch", steps_per_epoch, 1)
        if not isinstance(generator, torch.Generator):
            generator = torch.Generator(device).manual_seed(generator)
        elif generator.device.type != device.type:
            raise ValueError(
                f"generator: expected one on the labels' device {device}, got one on {generator.device}; "
                f"make it with torch.Generator({str(device)!r})"
            )
        self.device = device
        self.generator = generator
        self.steps_per_epoch = steps_per_epoch
        self.epoch = 0
        self.step = 0
        self._epoch_start = generator.get_state()

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[_Draw]:
        while self.step < self.steps_per_epoch:
            if self.step == 0:
                self._epoch_start = self.generator.get_state()
                self.begin_epoch()
            draw = self.draw()
            self.step += 1
            yield draw
        self.epoch, self.step = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Counters and generator, a few kilobytes."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "epoch_start": self._epoch_start,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, of a sampler made with the same arguments."""
        missing = sorted({"epoch", "step", "epoch_start", "generator"} - state.keys())
        if missing:
            raise ValueError(f"state: expected what state_dict() returned, got one without {missing}")
        if not 0 <= state["step"] <= self.steps_per_epoch:
            raise ValueError(
                f"state: got step {state['step']}, but an epoch has {self.steps_per_epoch} steps; "
                "make the sampler with the arguments of the one that was saved"
            )
        self.epoch, self.step, self._epoch_start = state["epoch"], state["step"], state["epoch_start"]
        self.generator.set_state(self._epoch_start)
        self.begin_epoch()  # what an epoch fixes at its start is drawn again rather than stored
        self.generator.set_state(state["generator"])

    def begin_epoch(self) -> None:
        """Draw what stays fixed for an epoch; by default nothing."""

    @abstractmethod
    def draw(self) -> _Draw:
        """Make the next draw; iterating calls this, and counts."""

    def _integers(self, *size: int) -> Tensor:
        """Random integers so large that their remainders are uniform to one part in 2**30."""
        return torch.randint(1 << 62, size, generator=self.generator, device=self.device)

    def _positions(self, counts: Tensor, size: int) -> Tensor:
        """Samples without replacement: `size` positions in [0, count) for each count, repeated if too few."""
        counts = counts.unsqueeze(1)
        # Candidates: all positions if they are few, else independent draws. In both cases, a random choice of
        # those that are valid and different is a simple random sample. Draws of a count above num_candidates
        # give 1.26 * size different ones on average, so that fewer than size are very unlikely (and would
        # only repeat a position).
        num_candidates = 2 * size + 16
        every = torch.arange(num_candidates, device=self.device)
        drawn = (self._integers(len(counts), num_candidates) % counts).sort(1).values
        candidates = torch.where(counts <= num_candidates, every, drawn)
        valid = candidates < counts
        valid[:, 1:] &= candidates[:, 1:] != candidates[:, :-1]
        keys = torch.rand(candidates.shape, generator=self.generator, device=self.device)
        order = torch.where(valid, keys, 2.0).argsort(1)
        chosen = order.gather(1, every[:size] % valid.sum(1, keepdim=True))
        return candidates.gather(1, chosen)


class RowLists:
    """For every task its rows with label `value`, end to end in one tensor (compressed columns)."""

    def __init__(self, labels: Labels, value: int) -> None:
        parts = torch.split(labels.values, max(_CHUNK // labels.num_rows, 1), dim=1)
        places = ((part == value).T.reshape(-1).nonzero().squeeze(1) for part in parts)
        self.rows = torch.cat([flat.remainder_(labels.num_rows).int() for flat in places])
        self.counts = labels.positives if value == 1 else labels.negatives  # [m]
        self._starts = self.counts.cumsum(0) - self.counts

    def at(self, tasks: Tensor, positions: Tensor) -> Tensor:
        """Rows at the positions [..., k, r] of the lists of the tasks [k], int64."""
        return self.rows[self._starts[tasks].unsqueeze(1) + positions].long()

    def sum_by_row(self, shares: Tensor, num_rows: int) -> Tensor:
        """For every row, the sum of the shares [m] of the tasks in whose lists it is, [num_rows]."""
        total = torch.zeros(num_rows, dtype=shares.dtype, device=shares.device)
        return total.index_add_(0, self.rows, shares.repeat_interleave(self.counts))
