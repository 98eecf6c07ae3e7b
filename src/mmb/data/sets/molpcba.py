"""ogbg-molpcba: 437,929 molecules, 128 bioassays, the official scaffold split of the Open Graph Benchmark.

From PubChem BioAssay through MoleculeNet; published by the Open Graph Benchmark (Hu et al., NeurIPS 2020,
MIT license). 1.4% of the measured labels are positive and 39% of all labels are missing. Split: 350,343 /
43,793 / 43,793 molecules, as published; the row numbers come with this package, because scaffolds computed by
newer versions of RDKit differ. Graph features are those of the `ogb` package; two molecules (rows 5823 and
303198) are read without RDKit's check of valences. Preparing takes some minutes on two cores.
"""

import lzma
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from mmb._extras import require
from mmb.data.dataset import Dataset
from mmb.data.inputs.featurize import Features
from mmb.data.inputs.molecule_cache import open_dataset
from mmb.data.sets.moleculenet import MoleculeSet

_ROWS = 437_929
_SET = MoleculeSet(
    name="molpcba",
    rows=(_ROWS,),
    tasks=128,
    url="http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/pcba.zip",
    zip_member="pcba/mapping/mol.csv.gz",
    table="pcba",
    scaffolds=False,
)
get, prepare = _SET.get, _SET.prepare


def load(root: Path, *, features: Features = "graph", radius: int = 2, bits: int = 2048) -> Dataset:
    """Load ogbg-molpcba, preparing it first if needed.

    Args:
        root: Where data sets are kept.
        features: `"graph"`, `"fingerprint"` (Morgan), or `"descriptors"`: numbers of RDKit besides it.
        radius: Of the fingerprint, in bonds.
        bits: Length of the fingerprint.
    """
    return open_dataset("molpcba", _SET.prepared(root, features, radius, bits), official_split())


def official_split() -> dict[str, Tensor]:
    """Rows of train, valid and test as the Open Graph Benchmark publishes them (`split/scaffold/*.csv.gz`).

    Kept as packed bits: one for each row that says whether it is held out (valid or test), then one for each
    held-out row that says whether it is a test row.
    """
    np = require("numpy", extra="molecules")
    packed = lzma.decompress(resources.files("mmb.data.sets").joinpath("molpcba_split.xz").read_bytes())
    border = -(-_ROWS // 8)
    held_out = np.unpackbits(np.frombuffer(packed[:border], np.uint8), count=_ROWS).astype(bool)
    is_test = np.unpackbits(np.frombuffer(packed[border:], np.uint8), count=held_out.sum()).astype(bool)
    rows = np.flatnonzero(held_out)
    parts = {"train": np.flatnonzero(~held_out), "valid": rows[~is_test], "test": rows[is_test]}
    return {part: torch.from_numpy(part_rows) for part, part_rows in parts.items()}
