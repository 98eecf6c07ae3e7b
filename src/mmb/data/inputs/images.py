"""Images that live on the device as bytes, normalized and augmented there for the rows of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from mmb.data.inputs.augmentation import changed

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Pixels:
    """What happens to the bytes of an image before a model sees them."""

    mean: Tensor  # `[3, 1, 1]`, of pixels in [0, 1]
    std: Tensor  # `[3, 1, 1]`
    pad: int  # augmentation shifts an image by up to this many pixels each way; black comes in at the edge
    flip: bool  # whether augmentation mirrors half of the images left to right
    changes: tuple[str, ...] = ()  # other augmentations, names in `augmentation.CHANGES`

    @classmethod
    def of(
        cls,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        pad: int = 0,
        flip: bool = False,
        changes: tuple[str, ...] = (),
    ) -> Self:
        """From plain numbers; by default the pixels of ImageNet, without augmentation."""
        return cls(torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1), pad, flip, changes)

    def to(self, device: torch.device | str) -> Self:
        """The same on `device`."""
        return replace(self, mean=self.mean.to(device), std=self.std.to(device))

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Normalized float images `[n, 3, h, w]` of `[n, 1 or 3, h, w]`, augmented by a generator.

        Images are `uint8`, or `uint16` (also as the `int16` with the same bits, which can be indexed).
        """
        images = images.view(torch.int16) if images.dtype == torch.uint16 else images
        if generator is not None:
            images = self.augmented(images, generator)
        if images.dtype == torch.uint8:
            values = images.float() / 255
        else:
            values = (images.int() & 0xFFFF).float() / 0xFFFF
        if generator is not None and self.changes:
            values = changed(values, self.changes, generator)
        values = (values - self.mean) / self.std
        # The channels of a pixel lie side by side: tensor cores want that in half precision, and convolutions
        # hand it on from layer to layer, for any layout of the weights.
        return values.contiguous(memory_format=torch.channels_last)

    def augmented(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Randomly shifted and mirrored images `[n, c, h, w]`, still as integers.

        Random numbers are drawn where the generator is, so that a host generator gives the same images on
        every device.
        """
        n, _, height, width = images.shape
        shift = torch.randint(0, 2 * self.pad + 1, (2, n), generator=generator, device=generator.device)
        mirror = torch.rand(n, generator=generator, device=generator.device) < (0.5 if self.flip else 0.0)
        top, left = shift.to(images.device, non_blocking=True)
        mirror = mirror.to(images.device, non_blocking=True)
        across = torch.arange(width, device=images.device).expand(n, width)
        columns = left.unsqueeze(1) + torch.where(mirror.unsqueeze(1), across.flip(1), across)
        lines = top.unsqueeze(1) + torch.arange(height, device=images.device)
        padded = torch.nn.functional.pad(images, (self.pad,) * 4)
        row = torch.arange(n, device=images.device).view(n, 1, 1)
        return padded.permute(0, 2, 3, 1)[row, lines.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


class StoredImages:
    """Inputs that are stored as bytes, and normalized and augmented on a device for the rows of a batch."""

    pixels: Pixels
    """How they are normalized and augmented."""

    def read(self, rows: Tensor) -> Tensor:
        """The bytes of some rows, `[n, c, h, w]`."""
        raise NotImplementedError

    def finish(self, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Model input from the bytes of some rows."""
        return self.pixels(images.to(self.pixels.mean.device, non_blocking=True), generator)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.augmented(rows, None)

    def augmented(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Normalized images of some rows, randomly changed if there is a generator."""
        return self.finish(self.read(rows), generator)


@dataclass(frozen=True)
class ImageTensor(StoredImages):
    """Inputs that are small enough to live on the device."""

    images: Tensor  # `uint8 [n, c, h, w]`
    pixels: Pixels  # how they are normalized and augmented

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> Self:
        """The same images on `device`."""
        return replace(self, images=self.images.to(device), pixels=self.pixels.to(device))

    def read(self, rows: Tensor) -> Tensor:
        """The bytes of some rows."""
        return self.images[rows.to(self.images.device, non_blocking=True)]  # else it would wait for a GPU
