"""Small image sets in the exact layouts of their publishers."""

import io
import json
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
from PIL import Image

from mmb.data.files.archives import checksum_of
from mmb.data.sets import cifar10, cifar100
from mmb.data.sets.chexpert import OBSERVATIONS

CIFAR = {"cifar10": (cifar10._SET, 10), "cifar100": (cifar100._SET, 100)}


def cifar_images(count, classes, seed=0):
    """Random images, and labels with equally many of each class, shuffled."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3, 32, 32), np.uint8), rng.permutation(np.arange(count) % classes)


def small_cifar(name, layout, folder, per_class=(10, 2)):
    """Write an archive of a small CIFAR; returns the set that expects it, its images and its labels."""
    full, classes = CIFAR[name]
    archive = next(a for a in full.archives if a.layout == layout)
    train, test = (cifar_images(n * classes, classes, seed) for seed, n in enumerate(per_class))
    members = {}
    for files, (images, labels) in ((archive.train, train), (archive.test, test)):
        for k, file in enumerate(files):
            share = slice(k * len(labels) // len(files), (k + 1) * len(labels) // len(files))
            members[file] = _batch(archive, images[share], labels[share])
    names = [f"class_{k}" for k in range(classes)]
    if layout == "sheets":
        for member, (_, labels) in zip(archive.others, (train, test), strict=True):
            members[member] = json.dumps(labels.tolist()).encode()
        names = list(full.class_names)
    else:
        members[archive.others[0]] = "\n".join(names).encode() + b"\n\n"
    path = folder / archive.file
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for member, content in members.items():
            entry = tarfile.TarInfo(f"{archive.folder}/{member}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    small = replace(full, per_class=per_class, archives=(replace(archive, checksum=checksum_of(path)),))
    return small, np.concatenate([train[0], test[0]]), np.concatenate([train[1], test[1]]), names


def _batch(archive, images, labels):
    flat = images.reshape(len(images), -1)
    if archive.layout == "binary":
        coarse = np.zeros((len(labels), archive.label_bytes - 1), np.uint8)
        return np.concatenate([coarse, labels[:, None].astype(np.uint8), flat], 1).tobytes()
    sheet = images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)
    out = io.BytesIO()
    Image.fromarray(sheet).save(out, "PNG")
    return out.getvalue()


def photo(seed, size, gray=False):
    """A smooth random picture as JPEG bytes."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (4, 4) if gray else (4, 4, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(out, "JPEG")
    return out.getvalue()


def write_celeba(folder, images=12, zipped=False):
    """CelebA with its publisher's subfolders, for `images` faces."""
    for name in ("Anno", "Eval", "Img"):
        (folder / name).mkdir(parents=True)
    names = [f"{k + 1:06d}.jpg" for k in range(images)]
    attributes = ["5_o_Clock_Shadow", "Bald", "Smiling"]
    lines = [
        f"{n}  " + " ".join(" 1" if (k + j) % 3 == 0 else "-1" for j in range(3)) for k, n in enumerate(names)
    ]
    header = [str(images), " ".join(attributes) + " "]
    (folder / "Anno" / "list_attr_celeba.txt").write_text("\n".join([*header, *lines]) + "\n")
    parts = [min(2, max(0, k - images // 2)) for k in range(images)]
    text = "".join(f"{n} {p}\n" for n, p in zip(names, parts, strict=True))
    (folder / "Eval" / "list_eval_partition.txt").write_text(text)
    if zipped:
        with zipfile.ZipFile(folder / "Img" / "img_align_celeba.zip", "w") as bundle:
            bundle.writestr("../outside.jpg", b"")
            for k, name in enumerate(names):
                bundle.writestr(f"img_align_celeba/{name}", photo(k, (178, 218)))
    else:
        (folder / "Img" / "img_align_celeba").mkdir()
        for k, name in enumerate(names):
            (folder / "Img" / "img_align_celeba" / name).write_bytes(photo(k, (178, 218)))
    return folder


def write_chexpert(folder, train=9, valid=3):
    """CheXpert-v1.0-small with some patients."""
    base = folder / "CheXpert-v1.0-small"
    names = [*OBSERVATIONS[:12], "Fracture", OBSERVATIONS[12]]
    cells = ["1.0", "0.0", "-1.0", ""]
    for part, count in (("train", train), ("valid", valid)):
        lines = [",".join(["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *names])]
        for k in range(count):
            view = "lateral" if k % 3 == 2 else "frontal"
            path = f"{part}/patient{k + 1:05d}/study1/view1_{view}.jpg"
            (base / path).parent.mkdir(parents=True)
            (base / path).write_bytes(photo(k, (390, 320), gray=True))
            labels = [cells[(k + j) % (4 if part == "train" else 2)] for j in range(14)]
            lines.append(",".join([f"CheXpert-v1.0-small/{path}", "Male", "60", view.title(), "AP", *labels]))
        (base / f"{part}.csv").write_text("\n".join(lines) + "\n")
    return base


def write_own(folder, images=12):
    """Pictures of two formats and many sizes, and a table of two tasks with gaps; returns its options."""
    (folder / "pictures").mkdir(parents=True)
    lines = ["file,bright,wide"]
    for k in range(images):
        name = f"{k}.{'png' if k % 2 else 'jpg'}"
        picture = Image.open(io.BytesIO(photo(k, (20 + k % 9, 30 - k % 7))))
        if k % 3 == 0:
            picture = picture.point(lambda value: 200 + value // 5)
        picture.save(folder / "pictures" / name)
        lines.append(f"{name},{int(k % 3 == 0)},{'' if k % 5 == 4 else int(k % 9 > 4)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return {"path": str(folder / "labels.csv"), "image": "file", "root": str(folder / "pictures")}
