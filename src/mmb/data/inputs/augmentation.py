"""Random changes of images by name, made on the device for a whole batch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mmb._names import nearest

CHANGES = ("flip_vertical", "turn", "rotate", "zoom", "brightness", "contrast")
"""Augmentations beside `shift` and `flip`, which move bytes and need no interpolation."""
NAMES = ("shift", "flip", *CHANGES)
_DEGREES = 10.0  # of a rotation, each way
_FACTOR = 1.25  # of zoom, brightness and contrast, and its inverse


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of augmentations, all of which exist."""
    for name in names:
        if name not in NAMES:
            raise ValueError(f"augment: there is no augmentation {name!r}{nearest(name, NAMES)}; [] is none")
    return tuple(names)


def changed(images: Tensor, names: Sequence[str], generator: torch.Generator) -> Tensor:
    """Float images in [0, 1], `[n, c, h, w]` with `h = w`, each changed in its own way.

    `flip_vertical` mirrors half of them top to bottom; `turn` turns by quarters, `rotate` by up to 10
    degrees; `zoom`, `brightness` and `contrast` multiply by up to 1.25, or divide. What comes in at an edge
    is black. Random numbers are drawn where the generator is, so that a host generator gives the same images
    on every device.
    """
    n = len(images)
    drawn = torch.rand(len(CHANGES), n, generator=generator, device=generator.device)
    flip, turn, rotate, zoom, brightness, contrast = drawn.to(images.device, non_blocking=True)
    if n and not {"flip_vertical", "turn", "rotate", "zoom"}.isdisjoint(names):
        angle, scale, down = torch.zeros_like(turn), torch.ones_like(turn), torch.ones_like(turn)
        if "turn" in names:
            angle = angle + math.pi / 2 * (4 * turn).floor()
        if "rotate" in names:
            angle = angle + math.radians(_DEGREES) * (2 * rotate - 1)
        if "zoom" in names:
            scale = _factor(zoom)
        if "flip_vertical" in names:
            down = torch.where(flip < 0.5, -1.0, 1.0)
        # where each pixel comes from: rows of the matrices that take its place to that in the original
        cosine, sine, none = angle.cos() / scale, angle.sin() / scale, torch.zeros_like(angle)
        across = torch.stack([cosine, -sine, none], 1)
        along = down.unsqueeze(1) * torch.stack([sine, cosine, none], 1)
        grid = torch.nn.functional.affine_grid(
            torch.stack([across, along], 1), list(images.shape), align_corners=False
        )
        images = torch.nn.functional.grid_sample(images, grid, align_corners=False)
    if "brightness" in names:
        images = images * _factor(brightness).view(n, 1, 1, 1)
    if "contrast" in names:
        mean = images.mean((1, 2, 3), keepdim=True)
        images = mean + (images - mean) * _factor(contrast).view(n, 1, 1, 1)
    return images.clamp(0, 1)


def _factor(drawn: Tensor) -> Tensor:
    """A factor between 1 / 1.25 and 1.25, as often below as above one."""
    return torch.exp(math.log(_FACTOR) * (2 * drawn - 1))
