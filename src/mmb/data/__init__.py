"""Data sets: rows on a device, labels with gaps, an official or reproducible split.

`load` opens a data set by name, `get` brings its raw files, `prepare` builds its cache, and
`available_datasets` lists the names. `files` reads raw files, `inputs` turns them into model inputs, `sets`
has one data set per module.
"""

from mmb._renamed import renamed_names
from mmb.data.dataset import SPLITS, Dataset, Encoder, Inputs, NewRows
from mmb.data.encoders import encoder_from_json
from mmb.data.errors import DamagedDataError, DataError, MissingDataError, TableError
from mmb.data.inputs.graphs import GraphBatch
from mmb.data.own_rows import make_dataset
from mmb.data.registry import (
    about,
    available_datasets,
    dataset_options,
    default_root,
    get,
    load,
    loader,
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
    "GraphBatch",
    "Inputs",
    "MissingDataError",
    "NewRows",
    "TableError",
    "about",
    "available_datasets",
    "dataset_options",
    "default_root",
    "encoder_from_json",
    "get",
    "load",
    "loader",
    "make_dataset",
    "prepare",
]

__getattr__ = renamed_names(
    __name__, {"available": "mmb.data.available_datasets", "options": "mmb.data.dataset_options"}
)
