"""Data sets: rows on a device, labels with gaps, an official or reproducible split.

`load` opens a data set by name, `get` brings its raw files, `prepare` builds its cache, and `available`
lists the names.
"""

from mmb.data.dataset import SPLITS, Dataset, Encoder, Inputs
from mmb.data.errors import DamagedDataError, DataError, MissingDataError
from mmb.data.registry import (
    about,
    available,
    default_root,
    encoder_from_json,
    get,
    load,
    loader,
    options,
    prepare,
)
from mmb.label_values import MISSING

__all__ = [
    "MISSING",
    "SPLITS",
    "DamagedDataError",
    "DataError",
    "Dataset",
    "Encoder",
    "Inputs",
    "MissingDataError",
    "about",
    "available",
    "default_root",
    "encoder_from_json",
    "get",
    "load",
    "loader",
    "options",
    "prepare",
]
