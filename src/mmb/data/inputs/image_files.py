"""Images on disk: decoded by worker processes ahead of their use, normalized and augmented on the device."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mmb._cores import available_cores
from mmb.data.errors import DataError
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.images import Pixels, StoredImages


@dataclass(frozen=True)
class ImageFiles(StoredImages):
    """Inputs that are decoded from files when they are needed."""

    folder: Path  # where the files are
    names: Sequence[str]  # path of each row's file in `folder`; an empty one stands for a black image
    decoder: Decoder  # how they become bytes
    pixels: Pixels  # how these are normalized and augmented
    # decoding processes of a `stream`: 0 decodes in this process, None is one for each core, at most eight
    workers: int | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def identity(self) -> list[str]:
        """What stands for the images in fingerprints: their names."""
        return list(self.names)

    def to(self, device: torch.device | str) -> Self:
        """The same files, giving model inputs on `device`."""
        return replace(self, pixels=self.pixels.to(device))

    def read(self, rows: Tensor) -> Tensor:
        """Bytes of some rows on the host, `uint8 [n, c, size, size]`."""
        blank = torch.zeros(self.decoder.shape, dtype=torch.uint8 if self.decoder.bits == 8 else torch.uint16)
        names = [self.names[row] for row in rows.tolist()]
        images = [self.decoder(self.folder / name) if name else blank for name in names]
        return torch.stack(images) if images else blank.new_empty(0, *blank.shape)

    def stream(
        self, batches: Iterable[Tensor], generator: torch.Generator | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of rows and model input, in order, decoded ahead by worker processes."""
        workers = min(8, available_cores()) if self.workers is None else self.workers
        loader = DataLoader(
            _Decoding(self),
            batch_size=None,
            sampler=(rows.tolist() for rows in batches),
            num_workers=workers,
            prefetch_factor=4 if workers else None,
            pin_memory=self.pixels.mean.is_cuda,
            generator=torch.Generator(),  # else it would draw from the global one
            worker_init_fn=_leave_interrupts,
        )
        for rows, images in loader:
            if isinstance(images, DataError):
                raise images
            yield rows, self.finish(images, generator)


def _leave_interrupts(_: int) -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the parent, which may still need a batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Decoding(Dataset[Any]):
    """What worker processes run, a batch at a time; an error travels back as a value, to be raised here."""

    def __init__(self, files: ImageFiles) -> None:
        self._files = files.to("cpu")

    def __getitem__(self, rows: list[int]) -> tuple[Tensor, Tensor | DataError]:
        found = torch.tensor(rows)
        try:
            return found, self._files.read(found)
        except DataError as error:
            return found, error
