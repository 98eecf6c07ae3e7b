"""CelebA: 202,599 aligned face photographs, 40 attributes, the official partition.

By Liu et al. (ICCV 2015), for non-commercial research, available from
https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html after agreeing to its terms, so it is not downloaded here:
name the folder that has `list_attr_celeba.txt`, `list_eval_partition.txt` and `img_align_celeba/` (or
`img_align_celeba.zip`; the publisher's subfolders Anno, Eval and Img are searched). Split: as published,
162,770 / 19,867 / 19,962. Images are decoded by worker processes: the centered square, scaled.
"""

from pathlib import Path

import torch

from mmb.data.dataset import SPLITS, Dataset
from mmb.data.errors import DamagedDataError
from mmb.data.files.archives import unpack_zip, verify_sums
from mmb.data.files.locate_files import find, link
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.image_encoder import ImageEncoder
from mmb.data.inputs.image_files import ImageFiles
from mmb.data.inputs.images import Pixels

_ATTRIBUTES = "list_attr_celeba.txt"
_PARTITION = "list_eval_partition.txt"
_IMAGES = "img_align_celeba"
_SUBFOLDERS = ("Anno", "Eval", "Img")
_REMEDY = (
    "download it from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (its terms must be agreed to), "
    "and name the folder: mmb data get celeba --from DIR"
)


def get(root: Path, source: Path | None = None) -> Path:
    """Link to the files of a folder from `root`; images in an archive are unpacked to `root`.

    Unpacked images are compared with their checksums, also if they were unpacked before.
    """
    raw = root / "celeba" / "raw"
    folder = raw if source is None else source
    for name in (_ATTRIBUTES, _PARTITION):
        link(find("celeba", folder, [name], _REMEDY, _SUBFOLDERS), raw / name)
    images = find("celeba", folder, [_IMAGES, f"{_IMAGES}.zip"], _REMEDY, _SUBFOLDERS)
    if images.suffix != ".zip":
        link(images, raw / _IMAGES)
    elif not (raw / _IMAGES).exists():
        unpack_zip(images, _IMAGES, r"\d+\.jpg", raw / _IMAGES)
    verify_sums(raw / _IMAGES)
    return raw


def load(root: Path, *, size: int = 128, workers: int | None = None) -> Dataset:
    """Load CelebA; augmentation shifts by up to a sixteenth of the size and mirrors.

    Args:
        root: Where data sets are kept.
        size: Height and width of the scaled images.
        workers: Number of decoding processes; by default one per core, at most eight.
    """
    raw = root / "celeba" / "raw"
    lists = [find("celeba", raw, [name], _REMEDY) for name in (_ATTRIBUTES, _PARTITION)]
    find("celeba", raw, [_IMAGES], _REMEDY)
    count, header, *lines = lists[0].read_text().splitlines()
    attributes = header.split()
    rows = [line.split() for line in lines if line.strip()]
    parts = [line.split() for line in lists[1].read_text().splitlines() if line.strip()]
    if len(rows) != int(count) or any(len(row) != len(attributes) + 1 for row in rows):
        raise DamagedDataError(
            lists[0], f"it does not have {count} lines of {len(attributes)} attributes", _REMEDY
        )
    names = [row[0] for row in rows]
    if [part[0] for part in parts] != names or not {part[1] for part in parts} <= {"0", "1", "2"}:
        raise DamagedDataError(lists[1], f"its images are not those of {_ATTRIBUTES} with 0, 1 or 2", _REMEDY)
    part_of = torch.tensor([int(part[1]) for part in parts])
    # In this file -1 means that a face lacks the attribute: no label is missing.
    labels = torch.tensor([[cell == "1" for cell in row[1:]] for row in rows], dtype=torch.int8)
    decoder = Decoder(size)
    return Dataset(
        name="celeba",
        inputs=ImageFiles(raw / _IMAGES, names, decoder, Pixels.of(pad=size // 16, flip=True), workers),
        labels=labels,
        split={name: torch.nonzero(part_of == k).squeeze(1) for k, name in enumerate(SPLITS)},
        task_names=tuple(attributes),
        encoder=ImageEncoder(decoder),
        details={"size": size},
    )
