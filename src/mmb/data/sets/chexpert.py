"""CheXpert: 224,316 chest radiographs, 13 observations with uncertain labels.

By Irvin et al. (AAAI 2019), for research under the Stanford University data set agreement, available from
https://stanfordmlgroup.github.io/competitions/chexpert after registering, so it is not downloaded here: name
the folder `CheXpert-v1.0-small` (with `train.csv`, `valid.csv` and the images), its parent folder, or one
with `CheXpert-v1.0-small.zip`. Of the 14 observations, Fracture is left out: the official validation images
have no positive for it. Split: the official validation images are for testing, the last 1,000 training
images for validation. Images are decoded by worker processes, in one channel that is repeated on the device.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from mmb.data.dataset import SPLITS, Dataset
from mmb.data.errors import DamagedDataError
from mmb.data.files.archives import unpack_zip, verify_sums
from mmb.data.files.locate_files import find, link
from mmb.data.files.table_formats import read_table
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.image_encoder import ImageEncoder
from mmb.data.inputs.image_files import ImageFiles
from mmb.data.inputs.images import Pixels
from mmb.label_values import MISSING

OBSERVATIONS = (
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Support Devices",
)
# The policy that worked best on validation for the competition's observations, and zeros for the others.
_ONES_IN_MIX = ("Edema", "Atelectasis")
_FOLDER = "CheXpert-v1.0-small"
_REMEDY = (
    "register at https://stanfordmlgroup.github.io/competitions/chexpert, download CheXpert-v1.0-small, "
    "and name its folder: mmb data get chexpert --from DIR"
)


def get(root: Path, source: Path | None = None) -> Path:
    """Link from `root` to `CheXpert-v1.0-small`, the source or inside it, or unpack its archive there.

    Unpacked images are compared with their checksums, also if they were unpacked before.
    """
    raw = root / "chexpert" / "raw"
    folder = source or raw
    if not (folder / "train.csv").exists():
        folder = find("chexpert", folder, [_FOLDER, f"{_FOLDER}.zip"], _REMEDY)
    if folder.suffix == ".zip":
        images = r"(train|valid)/patient\d+/study\d+/view\d+_[a-z]+\.jpg"
        unpack_zip(folder, _FOLDER, rf"train\.csv|valid\.csv|{images}", raw / _FOLDER)
    else:
        link(folder, raw / _FOLDER)
    for name in ("train.csv", "valid.csv", "train", "valid"):
        find("chexpert", raw / _FOLDER, [name], _REMEDY)
    verify_sums(raw / _FOLDER)
    return raw


def load(
    root: Path,
    *,
    uncertain: Literal["mix", "zeros", "ones", "ignore"] = "mix",
    unmentioned: Literal["zeros", "ignore"] = "zeros",
    frontal_only: bool = False,
    held_out: int = 1000,
    size: int = 224,
    workers: int | None = None,
) -> Dataset:
    """Load CheXpert; augmentation shifts by up to a twentieth of the size and never mirrors.

    Args:
        root: Where data sets are kept.
        uncertain: What an uncertain label (-1 in the file) becomes: `"zeros"` negative, `"ones"`
            positive, `"ignore"` missing, `"mix"` positive for Edema and Atelectasis and negative for the
            others.
        unmentioned: What a blank label becomes: `"zeros"` negative, as is usual, or `"ignore"` missing.
        frontal_only: Leave out lateral views.
        held_out: Number of images at the end of the training list that are for validation.
        size: Height and width of the scaled images.
        workers: Number of decoding processes; by default one per core, at most eight.
    """
    if uncertain not in ("mix", "zeros", "ones", "ignore") or unmentioned not in ("zeros", "ignore"):
        raise ValueError(
            "uncertain must be 'mix', 'zeros', 'ones' or 'ignore' and unmentioned 'zeros' or 'ignore', "
            f"got {uncertain!r} and {unmentioned!r}"
        )
    folder = root / "chexpert" / "raw" / _FOLDER
    lists = [find("chexpert", folder, [f"{part}.csv"], _REMEDY) for part in ("train", "valid")]
    (train_names, train_labels), (test_names, test_labels) = (
        _read(path, uncertain, unmentioned, frontal_only) for path in lists
    )
    if not 0 < held_out < len(train_names):
        raise ValueError(
            f"held_out must leave some of the {len(train_names)} training images, got {held_out}"
        )
    rows = torch.arange(len(train_names) + len(test_names))
    sizes = [len(train_names) - held_out, held_out, len(test_names)]
    decoder = Decoder(size, gray=True, fit="stretch")
    policy = {"uncertain": uncertain, "unmentioned": unmentioned}
    return Dataset(
        name="chexpert",
        inputs=ImageFiles(folder, [*train_names, *test_names], decoder, Pixels.of(pad=size // 20), workers),
        labels=torch.cat([train_labels, test_labels]),
        split=dict(zip(SPLITS, torch.split(rows, sizes), strict=True)),
        task_names=OBSERVATIONS,
        encoder=ImageEncoder(decoder),
        details={**policy, "frontal_only": frontal_only, "size": size},
    )


def _read(path: Path, uncertain: str, unmentioned: str, frontal_only: bool) -> tuple[list[str], Tensor]:
    """Names and labels of the images that a list has."""
    table = read_table(path)
    # Paths in the file start with the name of the folder itself.
    names = [name.partition("/")[2] for name in table.cells("Path")]
    values = torch.stack([table.numbers(name) for name in OBSERVATIONS], 1)
    known = (values.isnan() | (values == 0) | (values == 1) | (values == -1)).all(1)
    known &= table.fits
    if not known.all():
        row = int((~known).nonzero()[0])
        raise DamagedDataError(path, f"data row {row + 1} has a label that is not 1, 0, -1 or blank", _REMEDY)
    if "" in names:
        row = names.index("")
        problem = f"data row {row + 1} has the path {table.cells('Path')[row]!r}, expected folder/file"
        raise DamagedDataError(path, problem, _REMEDY)
    if uncertain == "mix":
        doubt = torch.tensor([float(name in _ONES_IN_MIX) for name in OBSERVATIONS], dtype=values.dtype)
    else:
        doubt = values.new_tensor({"zeros": 0, "ones": 1, "ignore": MISSING}[uncertain])
    values = torch.where(values == -1, doubt, values)
    labels = values.nan_to_num(nan=MISSING if unmentioned == "ignore" else 0).to(torch.int8)
    if frontal_only:
        keep = [row for row, view in enumerate(table.cells("Frontal/Lateral")) if view == "Frontal"]
        return [names[row] for row in keep], labels[keep]
    return names, labels
