"""Binary features, eight to a byte, unpacked on the device for the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedBits:
    """`inputs[rows]` is float `[len(rows), 8 * bytes]` of zeros and ones.

    Attributes:
        packed: `uint8 [n, bytes]`, the first bit of each eight the highest, as `numpy.packbits` has it.
    """

    packed: Tensor

    def __len__(self) -> int:
        return len(self.packed)

    def to(self, device: torch.device | str) -> Self:
        """The same bits on `device`."""
        return type(self)(self.packed.to(device))

    def __getitem__(self, rows: Tensor) -> Tensor:
        chosen = self.packed[rows.to(self.packed.device, non_blocking=True)]
        shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=chosen.device)
        return ((chosen.unsqueeze(-1) >> shifts) & 1).flatten(1).float()
