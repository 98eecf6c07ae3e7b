"""Published molecule sets: where their files come from, and how they are verified, prepared and loaded.

Files are looked for at the address of their publisher first. Where only package registries can be reached,
the source distribution of chemprop 1.6.1.dev0 on the Python package index carries the same tables; it is read
as an archive and never imported.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mmb.data.dataset import Dataset
from mmb.data.errors import DamagedDataError, DataError, MissingDataError
from mmb.data.files import cache
from mmb.data.files.archives import copy_file, copy_member, expand_gzip, verify
from mmb.data.files.delimited_text import read_table
from mmb.data.files.download import DownloadError, from_address, from_pypi
from mmb.data.inputs.featurize import Featuriser
from mmb.data.inputs.molecule_cache import build, open_dataset

CHEMPROP = "chemprop==1.6.1.dev0"
CHEMPROP_FILE = "chemprop-1.6.1.dev0.tar.gz"
CHEMPROP_SHA256 = "17e9063a5928afcd0ffd8c16607b93d5e31f496d2b83a532652a79b331283b4d"
TABLES_FILE = "data.tar.gz"
TABLES_MEMBER = "chemprop-1.6.1.dev0/data.tar.gz"
TABLES_SHA256 = "57c5b3514adfbb496ace2a27328096e81e24896e7053e08e0b1e5a889f1b7bdd"
_ASIDE = ("smiles", "mol_id")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MoleculeSet:
    """One published set of molecules; its bound methods are a data set module's functions.

    Attributes:
        name: Name of the data set here.
        rows: Numbers of molecules that a whole file may have, to verify it by.
        tasks: Number of label columns, likewise.
        url: The publisher's address: a `.csv.gz`, or a `.zip` with `zip_member` in it.
        table: Name of the table in the chemprop archive, `data/<table>.csv`.
        zip_member: Name of the `.csv.gz` inside the publisher's archive.
        scaffolds: Whether scaffolds are computed for a split.
        tables_sha256: Checksum of the archive of tables.
    """

    name: str
    rows: tuple[int, ...]
    tasks: int
    url: str
    table: str
    zip_member: str = ""
    scaffolds: bool = True
    tables_sha256: str = TABLES_SHA256

    def raw(self, root: Path) -> Path:
        """Where the table of this set is kept."""
        return root / self.name / "raw" / f"{self.table}.csv"

    def get(self, root: Path, source: Path | None = None) -> Path:
        """Bring the table to `root` and verify it.

        Args:
            root: Where data sets are kept.
            source: A folder with the table (`.csv`), the publisher's file, the chemprop source distribution
                or its `data.tar.gz`; nothing is downloaded then.

        Returns:
            The folder of the table.

        Raises:
            MissingDataError: If it could not be had; the message lists every attempt.
            DamagedDataError: If a file in `source` is damaged.
        """
        target = self.raw(root)
        fresh = not target.exists()
        if fresh and source is not None:
            self._from_folder(source, root, target)
        elif fresh:
            self._from_network(root, target)
        try:
            self._verify(target)
        except DamagedDataError:
            if fresh:
                target.unlink()  # or it would be in the way of a good one
            raise
        return target.parent

    def prepare(
        self,
        root: Path,
        *,
        features: Literal["graph", "fingerprint"] = "graph",
        radius: int = 2,
        bits: int = 2048,
        workers: int = 2,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Compute the features of every molecule once; a damaged cache is built anew.

        Args:
            root: Where data sets are kept.
            features: `"graph"` as the Open Graph Benchmark defines it, or `"fingerprint"` (Morgan).
            radius: Of the fingerprint, in bonds.
            bits: Length of the fingerprint.
            workers: Number of processes.
            progress: Called with the number of molecules done and of all.

        Returns:
            The folder of the cache.

        Raises:
            MissingDataError: If the table is not there.
        """
        folder, featuriser = self._cache(root, features, radius, bits)
        if cache.is_intact(folder):
            return folder
        table = read_table(self._verify(self.raw(root)))
        tasks = [name for name in table.columns if name not in _ASIDE]
        return build(folder, table, "smiles", tasks, featuriser, workers, progress)

    def load(
        self,
        root: Path,
        *,
        features: Literal["graph", "fingerprint"] = "graph",
        radius: int = 2,
        bits: int = 2048,
        split: Literal["scaffold", "random"] = "scaffold",
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
    ) -> Dataset:
        """Load the data set, preparing it first where that was not done yet.

        Args:
            root: Where data sets are kept.
            features: `"graph"` or `"fingerprint"`.
            radius: Of the fingerprint, in bonds.
            bits: Length of the fingerprint.
            split: `"scaffold"`, or `"random"` by the seed.
            fractions: Of train, valid and test.
            seed: Seed of the random split.

        Returns:
            The data set.

        Raises:
            MissingDataError: If neither cache nor table is there; the message says how to get it.
        """
        return open_dataset(self.name, self.opened(root, features, radius, bits), split, fractions, seed)

    def opened(self, root: Path, features: Literal["graph", "fingerprint"], radius: int, bits: int) -> Path:
        """The cache folder, prepared if need be; unlike `prepare` it does not read a cache that is there."""
        folder, _ = self._cache(root, features, radius, bits)
        if cache.is_there(folder):
            return folder
        return self.prepare(root, features=features, radius=radius, bits=bits)

    def _cache(
        self, root: Path, features: Literal["graph", "fingerprint"], radius: int, bits: int
    ) -> tuple[Path, Featuriser]:
        featuriser = Featuriser(features, radius, bits, strict=False, scaffolds=self.scaffolds)
        label = features if features == "graph" else f"{features}-{radius}-{bits}"
        return root / self.name / label, featuriser

    def _from_network(self, root: Path, target: Path) -> None:
        official = target.parent / self.url.rsplit("/", 1)[1]
        attempts = []
        try:
            from_address(self.url, official)
            self._from_official(official, target)
            self._verify(target)
            return
        except (DownloadError, DamagedDataError) as error:
            target.unlink(missing_ok=True)
            attempts.append(f"the publisher ({error})")
            _log.warning("%s: not from its publisher (%s); trying the Python package index", self.name, error)
        finally:
            official.unlink(missing_ok=True)
        tables = root / "downloads" / TABLES_FILE
        try:
            if not tables.exists():
                sdist = root / "downloads" / CHEMPROP_FILE
                from_pypi(CHEMPROP, CHEMPROP_SHA256, sdist)
                copy_member(sdist, TABLES_MEMBER, tables, self.tables_sha256)
                sdist.unlink()
            self._from_tables(tables, target)
        except DataError as error:
            attempts.append(f"the Python package index ({error})")
            raise MissingDataError(
                f"{self.name}: the table {self.table}.csv",
                attempts,
                f"download {self.url} elsewhere, and name its folder: mmb data get {self.name} --from DIR",
            ) from error

    def _from_folder(self, source: Path, root: Path, target: Path) -> None:
        official = self.url.rsplit("/", 1)[1]
        places = [source / name for name in (target.name, official, TABLES_FILE, CHEMPROP_FILE)]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            remedy = f"put one of these files there, or download them: mmb data get {self.name}"
            raise MissingDataError(f"{self.name}: the table {target.name}", places, remedy)
        if found.name == target.name:
            copy_file(found, target)
        elif found.name == official:
            self._from_official(found, target)
        elif found.name == TABLES_FILE:
            self._from_tables(found, target)
        else:
            tables = root / "downloads" / TABLES_FILE
            copy_member(found, TABLES_MEMBER, tables, self.tables_sha256)
            self._from_tables(tables, target)

    def _from_official(self, file: Path, target: Path) -> None:
        if not self.zip_member:
            expand_gzip(file, target)
            return
        inner = target.parent / "member.csv.gz"
        try:
            expand_gzip(copy_member(file, self.zip_member, inner), target)
        finally:
            inner.unlink(missing_ok=True)

    def _from_tables(self, tables: Path, target: Path) -> None:
        copy_member(verify(tables, self.tables_sha256), f"data/{self.table}.csv", target)

    def _verify(self, path: Path) -> Path:
        if not path.is_file():
            remedy = (
                f"mmb data get {self.name}, or mmb data get {self.name} --from DIR with a folder that has it"
            )
            raise MissingDataError(f"{self.name}: the table {path.name}", [path], remedy)
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            header = next(csv.reader(file), [])
            rows = sum(1 for line in file if line.strip())
        tasks = len({*header} - {*_ASIDE})
        if "smiles" not in header or rows not in self.rows or tasks != self.tasks:
            raise DamagedDataError(
                path,
                f"it has {rows} rows and {tasks} label columns, expected {self.rows[0]} and {self.tasks}",
                f"remove it and get it again: mmb data get {self.name}",
            )
        return path
