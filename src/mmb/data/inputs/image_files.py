"""Images on disk: decoded by worker processes ahead of their use, normalized and augmented on the device."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mmb._cores import available_cores
from mmb.data.dataset import NewRows
from mmb.data.errors import DataError
from mmb.data.files.table import is_blank
from mmb.data.files.table_formats import read_table
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.images import IMAGENET_MEAN, IMAGENET_STD, ImageTensor, Pixels

_HOST = torch.device("cpu")
_NEW_ROWS = 512  # images to predict for that are in memory at a time


@dataclass(frozen=True)
class ImageFiles:
    """Inputs that are decoded from files when they are needed."""

    folder: Path  # where the files are
    names: Sequence[str]  # path of each row's file in `folder`; an empty one stands for a black image
    decoder: Decoder  # how they become bytes
    pixels: Pixels  # how these are normalized and augmented
    # decoding processes of a `stream`: 0 decodes in this process, None is one for each core, at most eight
    workers: int | None = None
    device: torch.device = _HOST  # where model inputs are made

    def __len__(self) -> int:
        return len(self.names)

    @property
    def identity(self) -> list[str]:
        """What stands for the images in fingerprints: their names."""
        return list(self.names)

    def to(self, device: torch.device | str) -> Self:
        """The same files, giving model inputs on `device`."""
        return replace(self, device=torch.device(device), pixels=self.pixels.to(device))

    def decode(self, rows: Iterable[int]) -> Tensor:
        """Bytes of some rows on the host, `uint8 [n, c, size, size]`."""
        blank = torch.zeros(self.decoder.shape, dtype=torch.uint8 if self.decoder.bits == 8 else torch.uint16)
        names = [self.names[row] for row in rows]
        images = [self.decoder(self.folder / name) if name else blank for name in names]
        return torch.stack(images) if images else blank.new_empty(0, *blank.shape)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.augmented(rows, None)

    def augmented(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Normalized images of some rows, randomly shifted and mirrored if there is a generator."""
        return self._finish(self.decode(rows.tolist()), generator)

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
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # else it would draw from the global one
            worker_init_fn=_leave_interrupts,
        )
        for rows, images in loader:
            if isinstance(images, DataError):
                raise images
            yield rows, self._finish(images, generator)

    def _finish(self, images: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.pixels(images.to(self.device, non_blocking=True), generator)


def _leave_interrupts(_: int) -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the parent, which may still need a batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Decoding(Dataset[Any]):
    """What worker processes run, a batch at a time; an error travels back as a value, to be raised here."""

    def __init__(self, files: ImageFiles) -> None:
        self._files = replace(files, device=_HOST, pixels=files.pixels.to("cpu"))

    def __getitem__(self, rows: list[int]) -> tuple[Tensor, Tensor | DataError]:
        try:
            return torch.tensor(rows), self._files.decode(rows)
        except DataError as error:
            return torch.tensor(rows), error


@dataclass(frozen=True)
class ImageEncoder:
    """New images as model inputs: those of a folder, or those named in a CSV file."""

    decoder: Decoder  # how files become bytes
    mean: tuple[float, ...] = IMAGENET_MEAN  # of the pixels of each channel
    std: tuple[float, ...] = IMAGENET_STD  # of the pixels of each channel
    column: str = "path"  # column of the CSV file with file names, in its folder
    root: str | None = None  # another folder to look for them, if they are not there
    suffix: str = ""  # added to every name in a CSV file

    def batches(self, path: Path) -> Iterator[NewRows]:
        """The images of a folder (by name) or table, some at a time; black for one that cannot be decoded."""
        path = Path(path)
        if path.is_dir():
            names = sorted(f.name for f in path.iterdir() if f.is_file())
            folder, columns = path, {"file": names}
        else:
            table = read_table(path)
            folder, columns = path.parent, {name: table.cells(name) for name in table.column_names}
            names = [self._found(folder, name) for name in table.cells(self.column)]
        pixels = Pixels.of(self.mean, self.std)
        with ThreadPoolExecutor(available_cores()) as pool:
            for start in range(0, max(1, len(names)), _NEW_ROWS):
                rows = slice(start, start + _NEW_ROWS)
                found = list(pool.map(lambda name: self._decode(folder, name), names[rows]))
                images = torch.stack([self._black(), *(image for image, _ in found)])[1:]
                cells = {name: column[rows] for name, column in columns.items()}
                yield NewRows(cells, ImageTensor(images, pixels), [problem for _, problem in found])

    def _found(self, folder: Path, name: str) -> str:
        """The name of a file with its suffix, as a whole path where it is not in the folder; "" for none."""
        if is_blank(name):
            return ""
        name = f"{name.strip()}{self.suffix}"
        if self.root is None or (folder / name).exists():
            return name
        return str(Path(self.root, name))

    def _decode(self, folder: Path, name: str) -> tuple[Tensor, str]:
        """The image in a file, or a black one and what is wrong."""
        if not name:
            return self._black(), "no file is named"
        try:
            image = self.decoder(folder / name)
        except (DataError, ValueError) as error:  # the latter for names that no file can have
            return self._black(), str(error).splitlines()[0]
        return image if self.decoder.bits == 8 else image.view(torch.int16), ""  # which can be indexed

    def _black(self) -> Tensor:
        return torch.zeros(self.decoder.shape, dtype=torch.uint8 if self.decoder.bits == 8 else torch.int16)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `from_json` makes the same encoder."""
        return {"kind": "images", **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> ImageEncoder:
        """The encoder that `to_json` wrote."""
        return ImageEncoder(
            Decoder(**data["decoder"]),
            tuple(data["mean"]),
            tuple(data["std"]),
            data["column"],
            data.get("root"),
            data.get("suffix", ""),
        )
