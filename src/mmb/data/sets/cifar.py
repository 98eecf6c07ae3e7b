"""CIFAR-10 and CIFAR-100: the archives they come in, their verification, their one-vs-rest tasks."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mmb._extras import require
from mmb.data.dataset import Dataset
from mmb.data.errors import DamagedDataError, DataError, MissingDataError
from mmb.data.files import cache
from mmb.data.files.archives import copy_file, read_members, verify
from mmb.data.files.download import DownloadError, from_address, from_npm
from mmb.data.files.restricted_pickle import load_arrays
from mmb.data.inputs.image_files import Decoder, ImageEncoder
from mmb.data.inputs.images import ImageTensor, Pixels
from mmb.data.splits import stratified_split
from mmb.label_values import MISSING

_PIXELS = 3072
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Archive:
    """One way in which a set is distributed.

    Attributes:
        file: Name of the archive; its `folder` unpacked is read as well.
        checksum: Of the archive; SHA-256, or the MD5 that its publisher gives.
        layout: `"binary"`, `"python"` (pickles) or `"sheets"` (one PNG of 10,000 lines per batch).
        folder: Folder of all members.
        train: Members with training images, in order.
        test: Members with test images.
        names: Member with the names of the classes, if any.
        label_key: Key of the labels in a pickle.
        label_bytes: Number of label bytes of a binary record; the last one counts.
    """

    file: str
    checksum: str
    layout: Literal["binary", "python", "sheets"]
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str = ""
    label_key: bytes = b"labels"
    label_bytes: int = 1

    @property
    def members(self) -> tuple[str, ...]:
        """All members that are read."""
        labels = ("train_lables.json", "test_lables.json") if self.layout == "sheets" else ()
        return (*self.train, *self.test, *labels, *([self.names] if self.names else []))


@dataclass(frozen=True)
class CifarSet:
    """One of the two sets; its bound methods are a data set module's functions.

    Attributes:
        name: Name of the data set here.
        classes: Number of classes.
        archives: Ways it is distributed, the preferred first.
        url: The publisher's address of the first archive.
        npm: `name@version` of the npm package that is the last archive, if there is one.
        mean: Of the pixels of each channel.
        std: Of the pixels of each channel.
        class_names: Used where an archive has no names.
        per_class: Number of training and of test images of each class.
    """

    name: str
    classes: int
    archives: tuple[Archive, ...]
    url: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    npm: str = ""
    class_names: tuple[str, ...] = ()
    per_class: tuple[int, int] = (5000, 1000)

    def get(self, root: Path, source: Path | None = None) -> Path:
        """Bring one of the archives to `root` and verify it.

        Args:
            root: Where data sets are kept.
            source: A folder that has one of the archives, or one unpacked; nothing is downloaded then.

        Returns:
            The folder of the raw files.

        Raises:
            MissingDataError: If no archive could be had; the message lists every attempt.
            DamagedDataError: If a checksum is wrong.
        """
        raw = root / self.name / "raw"
        if source is not None:
            archive, place = self._find(source)
            raw.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                shutil.copytree(place, raw / archive.folder, dirs_exist_ok=True)
            else:
                copy_file(verify(place, archive.checksum), raw / archive.file)
            return raw
        if any((raw / archive.file).exists() or (raw / archive.folder).exists() for archive in self.archives):
            archive, place = self._find(raw)
            if place.is_file():
                verify(place, archive.checksum)
            return raw
        self._download(raw)
        return raw

    def prepare(self, root: Path, *, progress: Callable[[int, int], None] | None = None) -> Path:
        """Decode the archive once into arrays that are opened memory-mapped; a damaged cache is built anew.

        Args:
            root: Where data sets are kept.
            progress: Called with the number of files read and of all.

        Returns:
            The folder of the cache.

        Raises:
            MissingDataError: If no archive is there; the message says how to get it.
            DamagedDataError: If it is damaged, or a class has not as many images as it should.
        """
        folder = root / self.name / "images"
        if cache.is_intact(folder):
            return folder
        np = require("numpy", extra="vision")
        archive, place = self._find(root / self.name / "raw")
        if place.is_dir():
            contents = {name: _file(place / name).read_bytes() for name in archive.members}
        else:
            found = read_members(place, [f"{archive.folder}/{name}" for name in archive.members])
            contents = {name.split("/", 1)[1]: content for name, content in found.items()}
        files = [*archive.train, *archive.test]
        parts = []
        for done, name in enumerate(files, 1):
            parts.append(_READERS[archive.layout](archive, contents, name, place))
            if progress is not None:
                progress(done, len(files))
        images = np.concatenate([part[0] for part in parts])
        classes = np.concatenate([part[1] for part in parts])
        cut = sum(len(part[1]) for part in parts[: len(archive.train)])
        for share, expected in ((classes[:cut], self.per_class[0]), (classes[cut:], self.per_class[1])):
            counts = np.bincount(share, minlength=self.classes)
            if counts.tolist() != [expected] * self.classes:
                raise DamagedDataError(
                    place,
                    f"its classes have {counts.tolist()} images, expected {expected} each",
                    f"remove it and get it again: mmb data get {self.name}",
                )
        names = contents[archive.names] if archive.names else b""
        class_names = _class_names(archive, names, place) or list(self.class_names)
        facts = {"train": cut, "class_names": class_names, "archive": archive.file}
        return cache.write(folder, {"images": images, "classes": classes}, facts)

    def load(
        self,
        root: Path,
        *,
        valid_per_class: float = 0.1,
        positive_rate: float | None = None,
        augment_pixels: int = 4,
        seed: int = 0,
    ) -> Dataset:
        """Load the data set, preparing it first where that was not done yet.

        Args:
            root: Where data sets are kept.
            valid_per_class: Share of each class's training images that is held out for validation.
            positive_rate: Makes positives rare in training: each task keeps so many of its positives, drawn
                at random, that they are this share of its labelled training images; the others are missing
                labels of that task, and negatives of the other tasks as before. Validation and test images
                keep all labels. None keeps all.
            augment_pixels: Augmentation shifts images by up to this many pixels, and mirrors half of them.
            seed: Seed of which images are held out, and of which positives are kept.

        Returns:
            The data set: one task per class, inputs `[n, 3, 32, 32]`.

        Raises:
            ValueError: If positives have a smaller share than `positive_rate` already, or none would be left.
            MissingDataError: If neither cache nor archive is there; the message says how to get it.
        """
        folder = root / self.name / "images"
        tensors, facts = cache.read(folder if cache.is_there(folder) else self.prepare(root))
        classes = tensors["classes"].long()
        generator = torch.Generator().manual_seed(seed)
        shares = (1 - valid_per_class, valid_per_class, 0.0)
        split = stratified_split(classes[: facts["train"]], shares, generator)
        split["test"] = torch.arange(facts["train"], len(classes))
        labels = torch.nn.functional.one_hot(classes, self.classes).to(torch.int8)
        if positive_rate is not None:
            labels[split["train"]] = with_rare_positives(labels[split["train"]], positive_rate, generator)
        return Dataset(
            name=self.name,
            inputs=ImageTensor(
                tensors["images"], Pixels.of(self.mean, self.std, pad=augment_pixels, flip=True)
            ),
            labels=labels,
            split=split,
            task_names=tuple(facts["class_names"]),
            encoder=ImageEncoder(Decoder(32), self.mean, self.std),
            details={"seed": seed, "archive": facts["archive"], "positive_rate": positive_rate},
        )

    def _find(self, folder: Path) -> tuple[Archive, Path]:
        places = []
        for archive in self.archives:
            for place in (folder / archive.file, folder / archive.folder, folder):
                unpacked = place.is_dir() and all((place / name).is_file() for name in archive.members)
                if place.is_file() or unpacked:
                    return archive, place
            places += [folder / archive.file, folder / archive.folder]
        remedy = f"mmb data get {self.name}, or mmb data get {self.name} --from DIR with a folder that has it"
        raise MissingDataError(f"{self.name}: an archive of its images", places, remedy)

    def _download(self, raw: Path) -> None:
        first, last = self.archives[0], self.archives[-1]
        attempts = []
        try:
            verify(from_address(self.url, raw / first.file), first.checksum)
            return
        except (DownloadError, DamagedDataError) as error:
            (raw / first.file).unlink(missing_ok=True)
            attempts.append(f"the publisher ({error})")
            if self.npm:
                _log.warning("%s: not from its publisher (%s); trying npm", self.name, error)
        if self.npm:
            try:
                from_npm(self.npm, last.checksum, raw / last.file)
                return
            except DataError as error:
                attempts.append(f"npm ({error})")
        raise MissingDataError(
            f"{self.name}: an archive of its images",
            attempts,
            f"download {self.url} elsewhere, and name its folder: mmb data get {self.name} --from DIR",
        )


def with_rare_positives(labels: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    r"""Labels of which each task keeps $\mathrm{round}(r\, n_- / (1 - r))$ positives, drawn uniformly.

    Args:
        labels: `int8 [n, m]` with -1 for gaps.
        rate: The share $r$ of positives among the labelled rows that is left.
        generator: Draws which.

    Returns:
        The labels, with -1 for the other positives.

    Raises:
        ValueError: If a task has fewer positives than that, or none would be left.
    """
    positive = labels == 1
    kept = (rate / (1 - rate) * (labels == 0).sum(0)).round().long() if 0 < rate < 1 else torch.zeros(1)
    if bool((kept < 1).any()) or bool((kept > positive.sum(0)).any()):
        most = float((positive.sum(0) / (labels >= 0).sum(0)).min())
        raise ValueError(
            f"positive_rate must leave each task a positive and be at most {most:g}, their share, got {rate}"
        )
    # Random numbers put positives in random order, before everything else.
    order = torch.rand(labels.shape, generator=generator).masked_fill(~positive, 2.0).argsort(0).argsort(0)
    return labels.masked_fill(positive & (order >= kept), MISSING)


def _file(path: Path) -> Path:
    if not path.is_file():
        raise MissingDataError(f"the file {path.name}", [path], "complete the folder from its archive")
    return path


def _read_binary(archive: Archive, contents: Mapping[str, bytes], name: str, place: Path) -> tuple[Any, Any]:
    np = require("numpy", extra="vision")
    record = archive.label_bytes + _PIXELS
    if len(contents[name]) % record:
        raise _wrong(place, name, f"{len(contents[name])} bytes are no multiple of {record}")
    records = np.frombuffer(contents[name], np.uint8).reshape(-1, record)
    return _planes(records[:, archive.label_bytes :]), records[:, archive.label_bytes - 1]


def _read_python(archive: Archive, contents: Mapping[str, bytes], name: str, place: Path) -> tuple[Any, Any]:
    np = require("numpy", extra="vision")
    batch = load_arrays(contents[name], place)
    batch = batch if isinstance(batch, dict) else {}
    data, labels = np.asarray(batch.get(b"data")), batch.get(archive.label_key, ())
    if data.dtype != np.uint8 or data.shape != (len(labels), _PIXELS):
        raise _wrong(place, name, f"it has no byte array 'data' and as many {archive.label_key.decode()!r}")
    return _planes(data), np.array(labels, np.uint8)


def _read_sheet(archive: Archive, contents: Mapping[str, bytes], name: str, place: Path) -> tuple[Any, Any]:
    np = require("numpy", extra="vision")
    image_module = require("PIL.Image", extra="vision")
    is_train = name in archive.train
    try:
        labels = json.loads(contents["train_lables.json" if is_train else "test_lables.json"])
        sheet = np.asarray(image_module.open(io.BytesIO(contents[name])).convert("RGB"))  # a line is an image
    except (OSError, SyntaxError, ValueError) as error:
        raise _wrong(place, name, str(error)) from error
    files = archive.train if is_train else archive.test
    lines = len(labels) // len(files)
    if sheet.shape != (lines, 1024, 3):
        raise _wrong(place, name, f"its shape is {sheet.shape}, expected {(lines, 1024, 3)}")
    start = files.index(name) * lines
    images = sheet.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images), np.array(labels[start : start + lines], np.uint8)


_READERS = {"binary": _read_binary, "python": _read_python, "sheets": _read_sheet}


def _planes(flat: Any) -> Any:
    return flat.reshape(-1, 3, 32, 32)


def _class_names(archive: Archive, content: bytes, place: Path) -> Sequence[str]:
    if archive.layout == "python":
        meta = load_arrays(content, place)
        names = meta[b"fine_label_names" if archive.label_key == b"fine_labels" else b"label_names"]
        return [name.decode() for name in names]
    return content.decode().split()


def _wrong(place: Path, name: str, problem: str) -> DamagedDataError:
    return DamagedDataError(place, f"in {name}, {problem}", "remove it and get the data set again")
