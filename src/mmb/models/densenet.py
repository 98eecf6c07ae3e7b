"""DenseNet121 for images: MONAI's network."""

from __future__ import annotations

import re
from pathlib import Path

from torch import nn

from mmb._extras import require
from mmb.models.multitask import MultiTask
from mmb.models.pretrained import load_pretrained


def densenet121(
    num_tasks: int,
    channels: int = 3,
    dropout: float = 0.0,
    weights: Path | str | None = None,
) -> MultiTask:
    """DenseNet121 (Huang et al., 2017), and one head per task on its 1024 features.

    Args:
        num_tasks: Number of heads.
        channels: Channels of the images `[n, channels, height, width]`.
        dropout: Share of the feature maps of each dense layer dropped in training.
        weights: Local file with weights of the encoder with torchvision's names, old or new; random if None.

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
        load_pretrained(encoder, weights, rename=_monai_name, classifier="classifier")
    return MultiTask(encoder, 1024, num_tasks)


def _monai_name(name: str) -> str:
    """`denselayer1.norm1.` (in old files `denselayer1.norm.1.`) to `denselayer1.layers.norm1.`."""
    return re.sub(r"(denselayer\d+)\.(norm|conv)\.?(\d)\.", r"\1.layers.\2\3.", name)
