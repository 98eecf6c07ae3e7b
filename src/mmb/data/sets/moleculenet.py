"""Published molecule sets: where their files come from, and how they are verified, prepared and loaded.

Files are looked for at the address of their publisher first. Where only package registries can be reached,
the source distribution of chemprop 1.6.1.dev0 on the Python package index carries the same tables; it is read
as an archive and never imported.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mmb.data.dataset import Dataset, Progress
from mmb.data.errors import DamagedDataError
from mmb.data.files import cache
from mmb.data.files.archives import (
    SUMS,
    checksum_of,
    copy_file,
    copy_member,
    verify,
    verify_sums,
    write_sums,
)
from mmb.data.files.download import from_address, from_first, from_pypi
from mmb.data.files.locate_files import find
from mmb.data.files.table_formats import read_table
from mmb.data.inputs.featurize import Features, Featurizer
from mmb.data.inputs.molecule_cache import build_cache, open_dataset

CHEMPROP = "chemprop==1.6.1.dev0"
CHEMPROP_FILE = "chemprop-1.6.1.dev0.tar.gz"
CHEMPROP_SHA256 = "17e9063a5928afcd0ffd8c16607b93d5e31f496d2b83a532652a79b331283b4d"
TABLES_FILE = "data.tar.gz"
TABLES_MEMBER = "chemprop-1.6.1.dev0/data.tar.gz"
TABLES_SHA256 = "57c5b3514adfbb496ace2a27328096e81e24896e7053e08e0b1e5a889f1b7bdd"
_NOT_TASKS = ("smiles", "mol_id", "num", "name", "activity")


@dataclass(frozen=True)
class MoleculeSet:
    """One published set of molecules; its bound methods are a data set module's functions."""

    name: str
    rows: tuple[int, ...]  # numbers of molecules that a whole file may have, to verify it by
    tasks: int  # number of label columns, likewise
    url: str  # the publisher's address: a `.csv`, a `.csv.gz`, or a `.zip` with `zip_member` in it
    table: str  # name of the table in the chemprop archive, `data/<table>.csv`
    zip_member: str = ""  # name of the `.csv.gz` inside the publisher's archive
    scaffolds: bool = True  # whether scaffolds are computed for a split

    def raw(self, root: Path) -> Path:
        """Where the table of this set is kept."""
        return root / self.name / "raw" / f"{self.table}.csv"

    def get(self, root: Path, source: Path | None = None) -> Path:
        """Bring the table to `root` and verify it; returns its folder.

        A `source` is a folder with the table (`.csv`), the publisher's file, the chemprop source distribution
        or its `data.tar.gz`; nothing is downloaded then.
        """
        target = self.raw(root)
        if target.exists():
            self._verify(target)
            self._sign(target)
        elif source is None:
            self._download(root, target)
        else:
            names = (target.name, self._official, TABLES_FILE, CHEMPROP_FILE)
            remedy = f"put one of these files there, or download them: mmb data get {self.name}"
            self._extract(find(self.name, source, names, remedy), root, target)
        return target.parent

    def prepare(
        self,
        root: Path,
        *,
        features: Features = "graph",
        radius: int = 2,
        bits: int = 2048,
        workers: int = 2,
        progress: Progress | None = None,
    ) -> Path:
        """Compute the features of every molecule once; a damaged cache is built again."""
        folder = self._cache(root, features, radius, bits)
        if cache.is_intact(folder):
            return folder
        featurizer = Featurizer(features, radius, bits, strict=False, scaffolds=self.scaffolds)
        table = read_table(self._verify(self.raw(root)))
        tasks = [name for name in table.columns if name not in _NOT_TASKS]
        return build_cache(folder, table, "smiles", tasks, featurizer, workers, progress)

    def load(
        self,
        root: Path,
        *,
        features: Features = "graph",
        radius: int = 2,
        bits: int = 2048,
        split: Literal["scaffold", "random"] = "scaffold",
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
    ) -> Dataset:
        """Load the data set, preparing it first if needed.

        Args:
            root: Where data sets are kept.
            features: `"graph"` as the Open Graph Benchmark defines it, `"fingerprint"` (Morgan), or
                `"descriptors"`: numbers of RDKit besides it.
            radius: Of the fingerprint, in bonds.
            bits: Length of the fingerprint.
            split: `"scaffold"`, or `"random"` by the seed.
            fractions: Of train, valid and test.
            seed: Seed of the random split.
        """
        return open_dataset(self.name, self.prepared(root, features, radius, bits), split, fractions, seed)

    def prepared(self, root: Path, features: Features, radius: int, bits: int) -> Path:
        """The cache folder, prepared if need be; unlike `prepare`, this does not read an existing cache."""
        folder = self._cache(root, features, radius, bits)
        if cache.is_there(folder):
            return folder
        return self.prepare(root, features=features, radius=radius, bits=bits)

    def _cache(self, root: Path, features: Features, radius: int, bits: int) -> Path:
        return root / self.name / (features if features == "graph" else f"{features}-{radius}-{bits}")

    @property
    def _official(self) -> str:
        return self.url.rsplit("/", 1)[1]

    def _download(self, root: Path, target: Path) -> None:
        downloads = root / "downloads"
        official = downloads / self._official  # not beside the table: their names may differ in case alone

        def from_publisher() -> None:
            try:
                from_address(self.url, official)
                self._extract(official, root, target)
            finally:
                official.unlink(missing_ok=True)

        def from_package_index() -> None:
            if (downloads / TABLES_FILE).exists():
                self._extract(downloads / TABLES_FILE, root, target)
                return
            sdist = downloads / CHEMPROP_FILE
            from_pypi(CHEMPROP, CHEMPROP_SHA256, sdist)
            self._extract(sdist, root, target)
            sdist.unlink()

        sources = {"its publisher": from_publisher, "the Python package index": from_package_index}
        remedy = f"download {self.url} elsewhere, and name its folder: mmb data get {self.name} --from DIR"
        from_first(f"{self.name}: {target.name}", sources, remedy)

    def _extract(self, file: Path, root: Path, target: Path) -> None:
        """Write the table that a file is or has in it, and verify it; a wrong one is not kept."""
        (target.parent / SUMS).unlink(missing_ok=True)  # that of another table
        if file.name == CHEMPROP_FILE:
            file = copy_member(file, TABLES_MEMBER, root / "downloads" / TABLES_FILE, TABLES_SHA256)
        if file.name == TABLES_FILE:
            copy_member(verify(file, TABLES_SHA256), f"data/{self.table}.csv", target)
        elif file.suffix == ".zip":
            copy_member(file, self.zip_member, target)
        else:
            copy_file(file, target)
        try:
            self._verify(target)
        except DamagedDataError:
            target.unlink()  # or it would be in the way of a good one
            raise
        self._sign(target)

    @staticmethod
    def _sign(table: Path) -> None:
        """Write the checksum of a table beside it, if there is none."""
        if not (table.parent / SUMS).exists():
            write_sums(table.parent, {table.name: checksum_of(table)})

    def _verify(self, path: Path) -> Path:
        """Return the path of the table if its rows, label columns and checksum are right."""
        again = f"mmb data get {self.name}"
        find(self.name, path.parent, [path.name], f"{again}, or {again} --from DIR with a folder that has it")
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            header = next(csv.reader(file), [])
            rows = sum(1 for line in file if line.strip())
        tasks = len({*header} - {*_NOT_TASKS})
        if "smiles" not in header or rows not in self.rows or tasks != self.tasks:
            raise DamagedDataError(
                path,
                f"it has {rows} rows and {tasks} label columns, expected {self.rows[0]} and {self.tasks}",
                f"remove it and get it again: {again}",
            )
        verify_sums(path.parent)
        return path
