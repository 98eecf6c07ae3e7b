"""New images as model inputs: those of a folder, or those named in a table."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb._cores import available_cores
from mmb.data.dataset import NewRows
from mmb.data.errors import DataError
from mmb.data.files.table import is_blank
from mmb.data.files.table_formats import read_table
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.images import IMAGENET_MEAN, IMAGENET_STD, ImageTensor, Pixels

_TOGETHER = 512  # images that are in memory at a time


@dataclass(frozen=True)
class ImageEncoder:
    """How the images of a folder, or those named in a CSV file, become model inputs."""

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
            for start in range(0, max(1, len(names)), _TOGETHER):
                rows = slice(start, start + _TOGETHER)
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
