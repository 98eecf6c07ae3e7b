"""SMILES to arrays: graphs as the Open Graph Benchmark defines them, or Morgan fingerprints and descriptors.

Worker processes each take a piece of the list. A molecule that RDKit refuses is marked and becomes a single
unknown atom (or zeros), so that rows keep their places.
"""

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

from mmb._extras import require
from mmb._processes import end_with_parent
from mmb.data.dataset import Progress
from mmb.data.inputs.descriptors import describe
from mmb.data.inputs.graphs import ATOM_DIMS, BOND_DIMS

Features = Literal["graph", "fingerprint", "descriptors"]
_PIECE = 1000
_UNKNOWN_ATOM = (118, 4, 11, 11, 9, 5, 5, 0, 0)  # "misc" of every feature that has one


@dataclass(frozen=True)
class Featurizer:
    """What is computed for every molecule."""

    features: Features = "graph"  # or `"fingerprint"`, Morgan bits; `"descriptors"` are numbers besides them
    radius: int = 2  # of the fingerprint, in bonds
    bits: int = 2048  # length of the fingerprint, a multiple of 8
    strict: bool = True  # refuse molecules with impossible valences; if not, they are read without that check
    scaffolds: bool = False  # also compute Bemis-Murcko scaffolds, and tell which molecules are the same

    def __post_init__(self) -> None:
        if self.features not in get_args(Features):
            raise ValueError(f"features must be one of {get_args(Features)}, got {self.features!r}")
        if self.bits < 8 or self.bits % 8 or self.radius < 0:
            raise ValueError(
                f"need radius >= 0 and bits a positive multiple of 8, got {self.radius}, {self.bits}"
            )

    def __call__(
        self, smiles: Sequence[str], workers: int = 2, progress: Progress | None = None
    ) -> dict[str, Any]:
        """NumPy arrays by name for one SMILES per row; a short list is done in this process.

        Always `usable` (bool `[n]`); `scaffold` and `canonical` (`int32 [n]`, equal for rows with the same
        scaffold or the same molecule, numbered by first appearance) if scaffolds are asked for; for graphs
        the arrays of `GraphInputs.from_arrays`; for fingerprints `packed`, `uint8 [n, bits / 8]`, and with
        descriptors also those, `float32 [n, COUNT]`.
        """
        pieces = [smiles[start : start + _PIECE] for start in range(0, len(smiles), _PIECE)]
        done, results = 0, []
        for piece, result in zip(pieces, self._map(pieces, workers), strict=True):
            results.append(result)
            done += len(piece)
            if progress is not None:
                progress(done, len(smiles))
        return self._join(results)

    def _map(self, pieces: list[Sequence[str]], workers: int) -> Iterator[dict[str, Any]]:
        if workers < 2 or len(pieces) < 2:
            yield from map(self._piece, pieces)
            return
        with ProcessPoolExecutor(min(workers, len(pieces)), initializer=_become_worker) as pool:
            yield from pool.map(self._piece, pieces)

    def _piece(self, smiles: Sequence[str]) -> dict[str, Any]:
        np = require("numpy", extra="molecules")
        with require("rdkit.rdBase", extra="molecules").BlockLogs():
            molecules = [parse(text, self.strict) for text in smiles]
            arrays = _graphs(molecules) if self.features == "graph" else self._fingerprints(molecules)
            if self.features == "descriptors":
                arrays["descriptors"] = describe(molecules)
            arrays["usable"] = np.array([molecule is not None for molecule in molecules])
            if self.scaffolds:
                arrays["scaffold"] = [_scaffold(molecule) for molecule in molecules]
                arrays["canonical"] = [_canonical(molecule) for molecule in molecules]
        return arrays

    def _fingerprints(self, molecules: list[Any]) -> dict[str, Any]:
        np = require("numpy", extra="molecules")
        module = require("rdkit.Chem.rdFingerprintGenerator", extra="molecules")
        morgan = module.GetMorganGenerator(radius=self.radius, fpSize=self.bits)
        bits = np.zeros((len(molecules), self.bits), np.uint8)
        for row, molecule in enumerate(molecules):
            if molecule is not None:
                bits[row] = morgan.GetFingerprintAsNumPy(molecule)
        return {"packed": np.packbits(bits, axis=1)}

    def _join(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        np = require("numpy", extra="molecules")
        results = results or [self._piece([])]
        joined = {
            key: np.concatenate([result[key] for result in results])
            for key in results[0]
            if key not in ("scaffold", "canonical")
        }
        for kind in ("scaffold", "canonical") if self.scaffolds else ():
            numbers: dict[str, int] = {}
            names = chain.from_iterable(result[kind] for result in results)
            joined[kind] = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
        if self.features == "graph":
            codes, inverse = np.unique(joined.pop("atoms"), return_inverse=True)
            joined["atom_codes"] = inverse.astype(np.int16)  # molpcba has some hundred distinct atoms
            joined["atom_table"] = np.stack(np.unravel_index(codes, ATOM_DIMS), 1).astype(np.uint8)
            largest = joined["neighbours"].max(initial=0)
            joined["neighbours"] = joined["neighbours"].astype(np.uint8 if largest < 256 else np.int16)
        return joined


def _become_worker() -> None:
    end_with_parent()
    # Collecting garbage would walk everything a forked worker shares with its parent, again and again;
    # a piece makes no reference cycles.
    gc.disable()


def parse(smiles: str, strict: bool) -> Any:
    """An RDKit molecule, or None if RDKit refuses it or it has no atoms.

    If not strict, a molecule that fails RDKit's check of valences (as two of ogbg-molpcba do in newer
    versions) is read without it; rings, aromaticity, conjugation and hybridization are still worked out.
    """
    chem = require("rdkit.Chem", extra="molecules")
    smiles = smiles.strip()
    molecule = chem.MolFromSmiles(smiles)
    if molecule is None and not strict:
        molecule = chem.MolFromSmiles(smiles, sanitize=False)
        if molecule is not None:
            molecule.UpdatePropertyCache(strict=False)
            flags = chem.SanitizeFlags.SANITIZE_ALL ^ chem.SanitizeFlags.SANITIZE_PROPERTIES
            if chem.SanitizeMol(molecule, flags, catchErrors=True) != chem.SanitizeFlags.SANITIZE_NONE:
                chem.FastFindRings(molecule)
    return molecule if molecule is not None and molecule.GetNumAtoms() else None


def _scaffold(molecule: Any) -> str:
    """Bemis-Murcko scaffold as SMILES without chirality; empty for a molecule without rings."""
    to_smiles = require("rdkit.Chem.Scaffolds.MurckoScaffold", extra="molecules").MurckoScaffoldSmiles
    try:
        return "" if molecule is None else str(to_smiles(mol=molecule, includeChirality=False))
    except (RuntimeError, ValueError):  # RDKit cannot take apart what it would not sanitize
        return ""


def _canonical(molecule: Any) -> str:
    """The one SMILES of a molecule, however it was written; empty for one that RDKit refused."""
    to_smiles = require("rdkit.Chem", extra="molecules").MolToSmiles
    try:
        return "" if molecule is None else str(to_smiles(molecule))
    except (RuntimeError, ValueError):  # RDKit cannot write what it would not sanitize
        return ""


def _graphs(molecules: list[Any]) -> dict[str, Any]:
    np = require("numpy", extra="molecules")
    ogb = require("ogb.utils.features", extra="molecules")
    atoms: list[Sequence[int]] = []
    bonds: list[Sequence[int]] = []
    ends: list[tuple[int, int]] = []
    counts: list[tuple[int, int]] = []
    for molecule in molecules:
        if molecule is None:
            atoms.append(_UNKNOWN_ATOM)
            counts.append((1, 0))
            continue
        atoms.extend(map(ogb.atom_to_feature_vector, molecule.GetAtoms()))
        for bond in molecule.GetBonds():
            bonds.append(ogb.bond_to_feature_vector(bond))
            ends.append((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        counts.append((molecule.GetNumAtoms(), molecule.GetNumBonds()))
    atom_counts, bond_counts = np.array(counts, np.int32).reshape(-1, 2).T
    first_atom = np.repeat(np.cumsum(atom_counts) - atom_counts, bond_counts)
    local = np.array(ends, np.int64).reshape(-1, 2)
    codes = np.ravel_multi_index(np.array(bonds, np.int64).reshape(-1, len(BOND_DIMS)).T, BOND_DIMS)
    source, target = np.concatenate([local, local[:, ::-1]]).T  # each bond in both directions
    target = target + np.tile(first_atom, 2)
    order = np.lexsort((source, target))  # by target, so that a batch comes out ready for segment sums
    return {
        "atoms": np.ravel_multi_index(np.array(atoms, np.int64).reshape(-1, len(ATOM_DIMS)).T, ATOM_DIMS),
        "atom_counts": atom_counts,
        "edge_counts": 2 * bond_counts,
        "degrees": np.bincount(target, minlength=len(atoms)).astype(np.uint8),
        "neighbours": source[order].astype(np.int16),
        "bond_codes": np.tile(codes, 2)[order].astype(np.uint8),
    }
