"""Images decoded once: squares of bytes in one memory-mapped array, read ahead by threads."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from mmb._cores import available_cores
from mmb._extras import require
from mmb._processes import end_with_parent
from mmb.data.dataset import Progress
from mmb.data.errors import DataError
from mmb.data.files import cache
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.images import Pixels, StoredImages

_PIECE = 32  # images that a worker decodes before it takes more
_AHEAD = 4  # batches that are read before they are needed
_READERS = 4  # threads
_DARK = 0.25  # of the range of 16 bits: images that never reach it may need a window


class CachedImages(StoredImages):
    """Inputs that lie in a cache on disk; threads copy the rows of the next batches out of it.

    Args:
        images: `uint8` or `uint16` `[n, c, h, w]`, memory-mapped.
        pixels: How they are normalized and augmented.
        identity: What stands for the images in fingerprints.
    """

    def __init__(self, images: Tensor, pixels: Pixels, identity: str) -> None:
        self.images, self.pixels, self.identity = images, pixels, identity

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> Self:
        """The same images, giving model inputs on `device`."""
        return type(self)(self.images, self.pixels.to(device), self.identity)

    def stream(
        self, batches: Iterable[Tensor], generator: torch.Generator | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of rows and model input, in order, read ahead by threads."""
        waiting: deque[tuple[Tensor, Any]] = deque()
        with ThreadPoolExecutor(min(_READERS, available_cores())) as pool:
            for rows in batches:
                waiting.append((rows, pool.submit(self.read, rows)))
                if len(waiting) > _AHEAD:
                    first, found = waiting.popleft()
                    yield first, self.finish(found.result(), generator)
            for rows, found in waiting:
                yield rows, self.finish(found.result(), generator)

    def read(self, rows: Tensor) -> Tensor:
        """Copy rows out of the cache: one memory copy each, without the lock of the interpreter."""
        np = require("numpy", extra="images")
        shape = (len(rows), *self.images.shape[1:])
        found = torch.empty(shape, dtype=self.images.dtype, pin_memory=self.pixels.mean.is_cuda)
        np.take(self.images.numpy(), rows.cpu().numpy(), 0, out=found.numpy(), mode="clip")
        return found


Found = tuple[int, str, float]
"""The place of an image, what is wrong with it (or nothing), and its peak (see `Decoder.decode`)."""


def build_cache(
    folder: Path,
    paths: Sequence[Path | None],
    decoder: Decoder,
    workers: int | None,
    progress: Progress | None,
) -> Path:
    """Decode the files of all rows (None for a missing one) into a cache, with what is wrong with some."""
    np = require("numpy", extra="images")
    usable = np.array([path is not None for path in paths])
    facts: dict[str, Any] = {"decoder": asdict(decoder), "problems": {}}

    def images(target: Path) -> None:
        shape, kind = (len(paths), *decoder.shape), np.uint8 if decoder.bits == 8 else np.uint16
        np.lib.format.open_memmap(target, mode="w+", dtype=kind, shape=shape).flush()
        peaks, done = [], 0
        for found in _decoded(target, paths, decoder, workers):
            for place, problem, peak in found:
                peaks.append(peak)
                if problem:
                    usable[place] = False
                    facts["problems"][str(place)] = problem
            done += len(found)
            if progress is not None:
                progress(done, len(paths))
        if 0 < max(peaks, default=0.0) < _DARK:
            most = round(65535 * max(peaks))
            warnings.warn(
                f"no image has a value above {most} of 65535: if that is white, say data.window=[0,{most}]",
                stacklevel=2,
            )

    return cache.write(folder, {"images": images, "usable": lambda path: np.save(path, usable)}, facts)


def _decoded(
    target: Path, paths: Sequence[Path | None], decoder: Decoder, workers: int | None
) -> Iterator[list[Found]]:
    """What was found in each piece of the list, in order."""
    starts = range(0, len(paths), _PIECE)
    pieces = [paths[start : start + _PIECE] for start in starts]
    decode = partial(_decode_piece, target, decoder)
    count = min(len(pieces), available_cores() if workers is None else workers)
    if count < 2:
        yield from map(decode, starts, pieces)
        return
    with ProcessPoolExecutor(count, initializer=end_with_parent) as pool:
        yield from pool.map(decode, starts, pieces)


def _decode_piece(target: Path, decoder: Decoder, start: int, paths: Sequence[Path | None]) -> list[Found]:
    """Decode some files into their places of an array, from `start` on; a missing one stays black."""
    np = require("numpy", extra="images")
    array = np.lib.format.open_memmap(target, mode="r+")
    found = []
    for place, path in enumerate(paths, start):
        problem, peak = "", 0.0
        try:
            if path is not None:
                image, peak = decoder.decode(path)
                array[place] = image.numpy()
        except DataError as error:
            problem = str(error)
        found.append((place, problem, peak))
    array.flush()
    return found
