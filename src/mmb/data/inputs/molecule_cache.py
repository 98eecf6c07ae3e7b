"""Molecules prepared for training: features and labels of a table with SMILES, cached and opened again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from mmb._extras import require
from mmb.data.dataset import SPLITS, Dataset, Inputs, NewRows, Progress
from mmb.data.files import cache
from mmb.data.files.table import TextTable
from mmb.data.files.table_formats import read_batches
from mmb.data.inputs.descriptors import COUNT
from mmb.data.inputs.featurize import Featurizer
from mmb.data.inputs.graphs import GraphInputs
from mmb.data.inputs.label_reader import read_labels
from mmb.data.splits import grouped_split, split_rows


@dataclass(frozen=True)
class PackedBits:
    """Fingerprints, eight bits to a byte; `inputs[rows]` is float `[rows, 8 * bytes]` of zeros and ones.

    If there are descriptors, they follow the bits.
    """

    packed: Tensor  # `uint8 [n, bytes]`, the first bit of each eight the highest, as `numpy.packbits` has it
    descriptors: Tensor | None = None  # `float [n, descriptors]`

    def __len__(self) -> int:
        return len(self.packed)

    def to(self, device: torch.device | str) -> Self:
        """The same on `device`."""
        return type(self)(
            self.packed.to(device), None if self.descriptors is None else self.descriptors.to(device)
        )

    def __getitem__(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.packed.device, non_blocking=True)
        shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=rows.device)
        bits = ((self.packed[rows].unsqueeze(-1) >> shifts) & 1).flatten(1).float()
        return bits if self.descriptors is None else torch.cat([bits, self.descriptors[rows]], 1)


@dataclass(frozen=True)
class MoleculeEncoder:
    """A file with a column of SMILES as model inputs; JSON keeps the first version's key `featuriser`."""

    smiles: str  # name of the column
    featurizer: Featurizer  # what is computed for each molecule

    def batches(self, path: Path) -> Iterator[NewRows]:
        """The rows of a file, some at a time, with its own columns."""
        head = next(read_batches(Path(path)))
        head.check_needed([self.smiles])
        names = head.column_names
        for table in read_batches(Path(path), text=names):
            cells = {name: table.cells(name) for name in names}
            texts = table.cells(self.smiles)
            tensors = {name: torch.from_numpy(array) for name, array in self.featurizer(texts).items()}
            problems = [
                "" if fine else f"RDKit cannot read the SMILES {text!r}" if text.strip() else "no SMILES"
                for fine, text in zip(tensors["usable"].tolist(), texts, strict=True)
            ]
            for row in (~table.fits).nonzero().flatten().tolist():
                problems[row] = "it has more or fewer cells than the header"
            yield NewRows(cells, _inputs(tensors), problems)

    @property
    def numeric_places(self) -> list[int]:
        """Places of the descriptors among the inputs, which are more than zeros and ones."""
        bits = self.featurizer.bits
        return list(range(bits, bits + COUNT)) if self.featurizer.features == "descriptors" else []

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `from_json` makes the same encoder."""
        return {"kind": "molecules", "smiles": self.smiles, "featuriser": asdict(self.featurizer)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> MoleculeEncoder:
        """The encoder that `to_json` wrote."""
        return MoleculeEncoder(data["smiles"], Featurizer(**data["featuriser"]))


def build_cache(
    folder: Path,
    table: TextTable,
    smiles: str,
    tasks: Sequence[str],
    featurizer: Featurizer,
    workers: int,
    progress: Progress | None,
    positive: str | Sequence[str] | None = None,
) -> Path:
    """Featurize the molecules of a table and write them with their labels to a cache folder."""
    texts, labels = table.cells(smiles), read_labels(table, tasks, positive)
    arrays = featurizer(texts, workers, progress)
    facts = {
        "smiles": smiles,
        "tasks": list(tasks),
        "featuriser": asdict(featurizer),
        "rdkit": require("rdkit", extra="molecules").__version__,
    }
    return cache.write(folder, {**arrays, "labels": labels.numpy()}, facts)


def open_dataset(
    name: str,
    folder: Path,
    split: str | Mapping[str, Tensor],
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Dataset:
    """Open a cache as a data set, memory-mapped; rows that RDKit refused are in no part of the split.

    The split is `"scaffold"`, `"random"`, or the rows of each part. Fractions and seed are for the first two.
    """
    tensors, facts = cache.read(folder)
    usable = usable_rows(name, tensors, facts)
    if isinstance(split, Mapping):
        parts = {part: split[part][tensors["usable"][split[part]]] for part in SPLITS}
    else:
        if split not in ("scaffold", "random"):
            raise ValueError(f"split must be 'scaffold' or 'random', got {split!r}")
        if split == "scaffold":
            places = grouped_split(tensors["scaffold"][usable].long(), fractions)
        else:
            places = split_rows(len(usable), fractions, seed)
        parts = {part: usable[rows] for part, rows in places.items()}
    # New molecules are held to RDKit's rules, and need no scaffold.
    featurizer = replace(Featurizer(**facts["featuriser"]), strict=True, scaffolds=False)
    unusable = torch.nonzero(~tensors["usable"]).squeeze(1).tolist()
    return Dataset(
        name=name,
        inputs=_inputs(tensors),
        labels=tensors["labels"],
        split=parts,
        task_names=tuple(facts["tasks"]),
        encoder=MoleculeEncoder(facts["smiles"], featurizer),
        details={
            "features": featurizer.features,
            "split": split if isinstance(split, str) else "given",
            "seed": seed,
            "unusable_rows": unusable,
            "rdkit": facts["rdkit"],
        },
    )


def usable_rows(name: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Tensor:
    """Rows of a cache that RDKit could read, of which there must be some."""
    usable = torch.nonzero(tensors["usable"]).squeeze(1)
    if not len(usable):
        raise ValueError(
            f"{name}: RDKit cannot read any of the {len(tensors['usable'])} SMILES in column "
            f"{facts['smiles']!r}; name the column that has them (data.smiles=NAME)"
        )
    return usable


def _inputs(tensors: Mapping[str, Tensor]) -> Inputs:
    if "packed" in tensors:
        return PackedBits(tensors["packed"], tensors.get("descriptors"))
    return GraphInputs.from_arrays(tensors)
