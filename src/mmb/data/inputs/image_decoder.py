"""Image files as squares of bytes: PNG, JPEG and what else Pillow reads, 16-bit images, DICOM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import torch
from torch import Tensor

from mmb._checksums import is_no_damage
from mmb._extras import require
from mmb.data.errors import DamagedDataError, DataError, MissingDataError

Fit = Literal["crop", "stretch", "pad"]
_WHITE = 65535  # of 16-bit images
_MANY_FRAMES = ("GIF", "TIFF", "PNG", "WEBP")  # formats of which the first frame is not simply the image
_ORIENTATION = 0x0112  # in EXIF: how a camera was held
_AGAIN = "get this image again from where it comes from"


@dataclass(frozen=True)
class Decoder:
    """How a file becomes numbers `[c, size, size]`."""

    size: int  # height and width
    gray: bool = False  # one channel instead of three
    # `"crop"` cuts the largest centered square out first, `"stretch"` squeezes, `"pad"` adds black bars
    fit: Fit = "crop"
    bits: Literal[8, 16] = 8  # of the numbers
    # values of 16-bit and DICOM images that become black and white; None is the window that a DICOM file
    # states (or else the range of its values), and the whole range of other 16-bit images
    window: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size: expected at least 1, got {self.size}")
        if self.window is not None:
            if not (len(self.window) == 2 and self.window[0] < self.window[1]):
                raise ValueError(f"window: expected two numbers, the second larger, got {list(self.window)}")
            object.__setattr__(self, "window", tuple(self.window))  # a list, if it comes from JSON

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a decoded image."""
        return (1 if self.gray else 3, self.size, self.size)

    def __call__(self, path: Path) -> Tensor:
        """Decode one file, `uint8` (or `uint16`) `[c, size, size]`."""
        return self.decode(path)[0]

    def decode(self, path: Path) -> tuple[Tensor, float]:
        """The image in a file, and its largest value if it has 16 bits and no window, as a share of white."""
        try:
            with path.open("rb") as file:
                return self._decode(path, file)
        except FileNotFoundError:
            remedy = "complete the folder of images, or correct the name"
            raise MissingDataError(f"the image {path.name}", [path], remedy) from None
        except (IsADirectoryError, PermissionError):  # the latter on Windows
            if not path.is_dir():
                raise
            raise _unfit(path, "it is a folder", "name a file") from None

    def _decode(self, path: Path, file: IO[bytes]) -> tuple[Tensor, float]:
        np = require("numpy", extra="images")
        image_module = require("PIL.Image", extra="images")
        try:
            is_dicom = file.read(132)[128:] == b"DICM"
            file.seek(0)
            image, peak = self._dicom(path, file) if is_dicom else self._picture(path, file)
            image = self._square(image)
        except (DataError, ImportError, MemoryError):
            raise
        except image_module.DecompressionBombError as error:
            raise _unfit(path, f"it is too large: {error}", "scale it down first") from error
        except image_module.UnidentifiedImageError as error:
            if path.stat().st_size == 0:
                raise DamagedDataError(path, "it is empty", _AGAIN) from error
            problem = "Pillow knows no image format that begins like it, and it is no DICOM file"
            raise _unfit(path, problem, f"save it as PNG or JPEG; if it should be one, {_AGAIN}") from error
        except Exception as error:  # decoders raise whatever damage makes them stumble over
            if is_no_damage(error):
                raise
            raise DamagedDataError(path, f"{type(error).__name__}: {error}", _AGAIN) from error
        white = 255 if self.bits == 8 else _WHITE
        values = np.asarray(image).reshape(self.size, self.size, -1)
        if values.dtype == np.float32:  # between black and white
            values = (values * white + 0.5).astype(np.uint8 if self.bits == 8 else np.uint16)
        elif self.bits == 16:
            values = values.astype(np.uint16) * (white // 255)
        channels = np.broadcast_to(values, (self.size, self.size, self.shape[0])).transpose(2, 0, 1)
        return torch.from_numpy(np.array(channels, order="C")), peak

    def _picture(self, path: Path, file: IO[bytes]) -> tuple[Any, float]:
        """The image in a file that Pillow reads: one of 8 bits, or float between black and white."""
        np = require("numpy", extra="images")
        with require("PIL.Image", extra="images").open(file) as image:
            if image.format in _MANY_FRAMES and (frames := getattr(image, "n_frames", 1)) > 1:
                raise _unfit(path, f"it has {frames} images in it", "save each in a file of its own")
            image.draft(None, (self.size, self.size))  # lets the JPEG decoder skip detail that is scaled away
            if image.getexif().get(_ORIENTATION, 1) != 1:
                image = require("PIL.ImageOps", extra="images").exif_transpose(image)
            if image.mode == "LAB":
                raise _unfit(path, "its colors are of the space LAB", "save it in RGB")
            if not image.mode.startswith(("I", "F")):
                return image.convert("L" if self.gray else "RGB"), 1.0
            values = np.asarray(image, np.float32)
        low, high = float(values.min()), float(values.max())
        if not math.isfinite(low + high):
            raise DamagedDataError(path, "it has values that are not finite", _AGAIN)
        known = 0 <= low <= high <= _WHITE and image.mode != "F"
        if self.window is None and not known:
            raise _unfit(
                path,
                f"it has values from {low:g} to {high:g}, not those of 16 bits",
                "say which are black and white: data.window=[LOW,HIGH]",
            )
        black, white = self.window or (0, _WHITE)
        return self._between(values, black, white), 1.0 if self.window else high / _WHITE

    def _dicom(self, path: Path, file: IO[bytes]) -> tuple[Any, float]:
        """The image in a DICOM file, float between black and white, or of 8 bits if it has colors."""
        np = require("numpy", extra="dicom")
        found = require("pydicom", extra="dicom").dcmread(file)
        if int(found.get("NumberOfFrames") or 1) > 1:
            raise _unfit(path, f"it has {found.NumberOfFrames} frames", "save each in a file of its own")
        bits = int(found.get("BitsStored") or 8)
        try:
            stored = found.pixel_array
            if found.get("PhotometricInterpretation") == "PALETTE COLOR":  # numbers of colors in a table
                stored = require("pydicom.pixels", extra="dicom").apply_color_lut(stored, found)
                bits = 8 * stored.itemsize
            values = np.asarray(stored, np.float32)
        except (RuntimeError, NotImplementedError) as error:
            if "plugin" not in str(error) and "decompress" not in str(error):
                raise
            name = found.file_meta.TransferSyntaxUID.name
            raise _unfit(path, f"it is compressed as {name}", "pip install pylibjpeg[all]") from error
        if values.ndim == 3:
            values *= 255 / ((1 << bits) - 1)
            image = require("PIL.Image", extra="images").fromarray(values.round().astype(np.uint8), "RGB")
            return image.convert("L" if self.gray else "RGB"), 1.0
        values = values * float(found.get("RescaleSlope") or 1) + float(found.get("RescaleIntercept") or 0)
        black, white = self.window or _stated_window(found) or (float(values.min()), float(values.max()))
        if found.get("PhotometricInterpretation") == "MONOCHROME1":
            black, white = white, black
        return self._between(values, black, white), 1.0

    @staticmethod
    def _between(values: Any, black: float, white: float) -> Any:
        """A float image: 0 for black, 1 for white."""
        np = require("numpy", extra="images")
        shares = np.clip((values - black) / ((white - black) or 1), 0, 1).astype(np.float32)
        return require("PIL.Image", extra="images").fromarray(shares)

    def _square(self, image: Any) -> Any:
        operations = require("PIL.ImageOps", extra="images")
        bilinear = require("PIL.Image", extra="images").Resampling.BILINEAR
        square = (self.size, self.size)
        if self.fit == "stretch":
            return image.resize(square, bilinear)
        if self.fit == "pad":
            return operations.pad(image, square, bilinear, color=0)
        return operations.fit(image, square, bilinear)


def _stated_window(found: Any) -> tuple[float, float] | None:
    """The first window that a DICOM file states, as its darkest and its brightest value."""
    center, width = (found.get(name) for name in ("WindowCenter", "WindowWidth"))
    if center is None or width is None:
        return None
    middle, span = (float(value[0] if hasattr(value, "__len__") else value) for value in (center, width))
    return (middle - 0.5 - (span - 1) / 2, middle - 0.5 + (span - 1) / 2) if span > 1 else None


def _unfit(path: Path, problem: str, remedy: str) -> DataError:
    """An error about a file that is sound, but not what is needed."""
    return DataError(f"{path} cannot be used: {problem}.\n  what to do: {remedy}")
