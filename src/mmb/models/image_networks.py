"""ResNet18 and DenseNet121 for images: MONAI's networks, with weights of torchvision if wanted."""

import re
from pathlib import Path
from typing import Literal, get_args

from torch import nn

from mmb._extras import require
from mmb.models.multitask import MultiTask
from mmb.models.pretrained import load_pretrained

Stem = Literal["cifar", "imagenet"]
_WIDTHS = (64, 128, 256, 512)  # of the stages


def resnet18(
    num_tasks: int,
    channels: int = 3,
    stem: Stem = "imagenet",
    weights: Path | str | None = None,
    sha256: str | None = None,
) -> MultiTask:
    """ResNet18 (He et al., 2016), and one head per task on its 512 features.

    Args:
        num_tasks: Number of heads.
        channels: Channels of the images `[n, channels, height, width]`.
        stem: `"imagenet"`: 7 x 7 convolution of stride 2 and max pooling, a quarter of the resolution;
            `"cifar"`: 3 x 3 convolution of stride 1 and no pooling, for images of about 32 pixels.
        weights: Local file with weights of the encoder with torchvision's names; random weights if None.
        sha256: Checksum that the file of weights must have; None does not look.

    Returns:
        A `MultiTask` model: logits `[n, num_tasks]`.

    Raises:
        ValueError: If the stem is unknown, or the weights do not fit.
        FileNotFoundError: If the file of weights does not exist.
        ImportError: If MONAI is not installed.
    """
    if stem not in get_args(Stem):
        raise ValueError(f"stem must be one of {get_args(Stem)}, got {stem!r}")
    small = stem == "cifar"
    encoder: nn.Module = require("monai.networks.nets.resnet", extra="vision").ResNet(
        block="basic",
        layers=[2, 2, 2, 2],
        block_inplanes=list(_WIDTHS),
        spatial_dims=2,
        n_input_channels=channels,
        conv1_t_size=3 if small else 7,
        conv1_t_stride=1 if small else 2,
        no_max_pool=small,
        bias_downsample=False,
        feed_forward=False,
    )
    if weights is not None:
        # MONAI's names are torchvision's
        load_pretrained(encoder, weights, rename=str, classifier="fc", sha256=sha256)
    return MultiTask(encoder, _WIDTHS[-1], num_tasks)


def densenet121(
    num_tasks: int,
    channels: int = 3,
    dropout: float = 0.0,
    weights: Path | str | None = None,
    sha256: str | None = None,
) -> MultiTask:
    """DenseNet121 (Huang et al., 2017), and one head per task on its 1024 features.

    Args:
        num_tasks: Number of heads.
        channels: Channels of the images `[n, channels, height, width]`.
        dropout: Share of the feature maps of each dense layer dropped in training.
        weights: Local file with weights of the encoder with torchvision's names, old or new; random if None.
        sha256: Checksum that the file of weights must have; None does not look.

    Returns:
        A `MultiTask` model: logits `[n, num_tasks]`.

    Raises:
        ValueError: If the weights do not fit.
        FileNotFoundError: If the file of weights does not exist.
        ImportError: If MONAI is not installed.
    """
    encoder: nn.Module = require("monai.networks.nets.densenet", extra="vision").DenseNet(
        spatial_dims=2, in_channels=channels, out_channels=1, dropout_prob=dropout
    )
    encoder.get_submodule("class_layers").out = nn.Identity()
    if weights is not None:
        load_pretrained(encoder, weights, rename=_monai_name, classifier="classifier", sha256=sha256)
    return MultiTask(encoder, 1024, num_tasks)


def _monai_name(name: str) -> str:
    """`denselayer1.norm1.` (in old files `denselayer1.norm.1.`) to `denselayer1.layers.norm1.`."""
    return re.sub(r"(denselayer\d+)\.(norm|conv)\.?(\d)\.", r"\1.layers.\2\3.", name)
