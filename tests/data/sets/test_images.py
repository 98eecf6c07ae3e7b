"""Own images: options, errors that say what to type, a cache that follows the files, prediction."""

import csv
import importlib
import json
import os
import random

import pytest
import torch

import mmb.data
from mmb.data import DataError, MissingDataError
from mmb.data.files import cache
from mmb.data.inputs.image_decoder import Decoder
from new_files import read_new

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")
Image = importlib.import_module("PIL.Image")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Options of a small set whose cache is in the temporary folder."""
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "store"))
    return image_sets.write_own(tmp_path / "mine", 30) | {"size": 12, "workers": 1}


def load(options, **changes):
    return mmb.data.load("images", **(options | changes))


def test_images_and_labels_are_those_of_the_table(own, tmp_path):
    dataset = load(own, augment=[])
    assert dataset.task_names == ("bright", "wide")
    assert dataset.labels[:5].tolist() == [[1, 0], [0, 0], [0, 0], [1, 0], [0, -1]]
    decoded = Decoder(12)(tmp_path / "mine" / "pictures" / "7.png").float() / 255
    expected = (decoded - dataset.inputs.pixels.mean) / dataset.inputs.pixels.std
    torch.testing.assert_close(dataset.batch(torch.tensor([7]))[0], expected)
    assert [len(dataset.split[part]) for part in ("train", "valid", "test")] == [24, 3, 3]
    assert load(own, fractions=(0.5, 0.3, 0.2)).split["train"].shape == (15,)


def test_a_file_for_each_part(own, tmp_path):
    whole = load(own, augment=[])
    table = tmp_path / "mine" / "labels.csv"
    header, *lines = table.read_text().splitlines()
    parts = {"path": lines[:20], "valid_path": lines[20:26], "test_path": lines[26:]}
    files = {key: table.with_name(f"{key}.csv") for key in parts}
    for key, rows in parts.items():
        files[key].write_text("\n".join([header, *rows]) + "\n")
    found = load(own, augment=[], **files)
    assert [found.split[part].tolist() for part in ("train", "valid", "test")] == [
        *(list(range(20)), list(range(20, 26)), list(range(26, 30)))
    ]
    assert torch.equal(found.labels, whole.labels)
    rows = torch.arange(30)
    torch.testing.assert_close(found.batch(rows), whole.batch(rows))
    only_test = load(own, path=files["path"], test_path=files["test_path"], fractions=(0.8, 0.1, 0.1))
    assert [len(only_test.split[part]) for part in ("train", "valid", "test")] == [18, 2, 4]
    files["valid_path"].write_text(files["valid_path"].read_text().replace("22.jpg", "gone.png"))
    with pytest.raises(DataError, match=r"valid_path.csv(.|\n)*data row 3: .*gone.png is missing"):
        load(own, **files)
    with pytest.raises(ValueError, match=r"valid_path.*folds"):
        load(own, **files, folds=3)
    with pytest.raises(DataError, match=r"valid_path.csv.*groups that another file has.* of .*path.csv"):
        load(own, **files, group="bright", labels="wide")


def test_columns_folders_and_suffixes_are_options(own, tmp_path):
    table = tmp_path / "mine" / "pictures" / "other.tsv"  # names start from its folder
    lines = ["picture\tpatient\tpart\tsick"]
    lines += [f"{k}\tp{k}\t{('train', 'valid', 'test')[k % 3]}\t{k % 2}" for k in range(1, 30, 2)]
    table.write_text("\n".join(lines) + "\n")
    options = {"path": table, "image": "picture", "suffix": ".png", "drop": "patient", "split_column": "part"}
    dataset = mmb.data.load("images", **options, size=8, gray=True, bits=16, fit="pad")
    assert dataset.task_names == ("sick",)
    assert dataset.split["valid"].tolist() == [0, 3, 6, 9, 12]
    assert dataset.inputs.images.shape == (15, 1, 8, 8)
    assert dataset.batch(torch.tensor([0])).shape == (1, 3, 8, 8)
    encoder = dataset.encoder
    inputs, usable = read_new(encoder, table)
    assert usable.all()
    torch.testing.assert_close(inputs[torch.arange(15)], dataset.batch(torch.arange(15)))


def test_no_patient_is_in_two_parts(own, tmp_path):
    lines = (tmp_path / "mine" / "labels.csv").read_text().splitlines()
    table = tmp_path / "mine" / "patients.csv"
    table.write_text("\n".join([f"{line},{'patient' if not k else k // 4}" for k, line in enumerate(lines)]))
    dataset = load(own, path=table, group="patient", fractions=(0.5, 0.25, 0.25))
    assert dataset.task_names == ("bright", "wide")
    patients = [{(row + 1) // 4 for row in rows.tolist()} for rows in dataset.split.values()]
    assert sum(map(len, patients)) == len(set().union(*patients)) == 8
    folds = [load(own, folds=3, fold=fold).split["test"] for fold in range(3)]
    assert torch.cat(folds).sort().values.tolist() == [*range(30)]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"image": "picture"}, DataError, r"labels\.csv.*'picture'.*'file'"),
        ({"root": "nowhere"}, MissingDataError, r"data\.root=nowhere(.|\n)*data\.root=DIR"),
        ({"suffix": ".jpeg"}, DataError, r"30 of 30.*'file'(.|\n)*row 1:.*0\.jpg\.jpeg(.|\n)*data\.suffix"),
        ({"augment": "flop"}, ValueError, r"augment.*'flip'"),
        ({"labels": "bright,file"}, ValueError, r"labels.*file"),
        ({"sizes": 3}, ValueError, "'size'"),
        ({"size": 0}, ValueError, "size"),
        ({"window": (2, 1)}, ValueError, "window"),
    ],
)
def test_wrong_options_are_named(own, changes, error, message):
    with pytest.raises(error, match=message):
        load(own, **changes)


def spoil(own, tmp_path):
    """Rows 2 and 7 get bad images, row 9 none at all, row 11 no name."""
    pictures = tmp_path / "mine" / "pictures"
    (pictures / "2.jpg").write_bytes(image_sets.photo(0, (60, 40))[:200])
    (pictures / "7.png").write_text("no image")
    (pictures / "9.png").unlink()
    table = tmp_path / "mine" / "labels.csv"
    table.write_text(table.read_text().replace("11.png,", ","))


def test_bad_images_are_refused_by_row_or_skipped(own, tmp_path):
    spoil(own, tmp_path)
    with pytest.raises(DataError, match=r"labels\.csv.*no file name in column 'file'.*12"):
        load(own)
    table = tmp_path / "mine" / "labels.csv"
    text = table.read_text()
    table.write_text(text.replace("\n,", "\n11.png,"))
    with pytest.raises(DataError, match=r"1 of 30(.|\n)*row 10:.*9\.png is missing(.|\n)*unreadable=skip"):
        load(own)
    (tmp_path / "mine" / "pictures" / "9.png").write_bytes(image_sets.photo(9, (30, 30)))
    with pytest.raises(DataError, match=r"2 of 30(.|\n)*row 3:.*2\.jpg.*damaged(.|\n)*row 8:.*7\.png"):
        load(own)
    (tmp_path / "mine" / "pictures" / "9.png").unlink()
    table.write_text(text)
    dataset = load(own, unreadable="skip")
    assert dataset.details["unusable_rows"] == [2, 7, 9, 11]
    used = torch.cat([*dataset.split.values()])
    assert {2, 7, 9, 11}.isdisjoint(used.tolist())
    assert len(used) == 26
    assert len(dataset) == 30


def test_a_set_without_any_image_is_refused_even_if_rows_may_be_skipped(own, tmp_path):
    for picture in (tmp_path / "mine" / "pictures").iterdir():
        picture.write_bytes(b"")
    with pytest.raises(DataError, match=r"30 of 30(.|\n)*row 1:.*empty"):
        load(own, unreadable="skip")


def test_the_cache_is_built_once_follows_the_files_and_heals(own, tmp_path):
    first = load(own)
    images = first.inputs.images.clone()  # the others are those in the file
    (folder,) = (tmp_path / "store" / "images").iterdir()
    before = (folder / "images.npy").stat().st_mtime_ns
    load(own, augment="flip", labels="wide", seed=3)  # none of which is about the images
    assert (folder / "images.npy").stat().st_mtime_ns == before
    with (folder / "images.npy").open("r+b") as file:  # damage that opening notices
        file.seek(500)
        file.write(b"damage")
    again = load(own)
    assert torch.equal(again.inputs.images, images)
    assert cache.is_intact(folder)
    (folder / "images.npy").unlink()
    assert mmb.data.prepare("images", **{k: own[k] for k in ("path", "image", "root", "size")}) == folder
    assert cache.is_intact(folder)
    picture = tmp_path / "mine" / "pictures" / "4.jpg"
    picture.write_bytes(image_sets.photo(99, (40, 40)))
    os.utime(picture, ns=(1, 1))
    changed = load(own)
    others = (changed.inputs.images != images).flatten(1).any(1)
    assert others.nonzero().flatten().tolist() == [4]
    assert changed.inputs.identity != first.inputs.identity


def test_any_mix_of_sizes_modes_and_formats_trains(own, tmp_path):
    """Images of every shape from one pixel to a long strip, in every mode, are rows like all others."""
    rng = random.Random(0)
    lines = ["file,odd"]
    for k in range(40):
        mode = rng.choice(["L", "RGB", "RGBA", "P", "1", "I;16"])
        size = (rng.choice([1, 2, 37, 700]), rng.choice([1, 3, 50, 900]))
        values = 65535 if mode == "I;16" else None
        picture = Image.new(mode, size, values) if values else Image.new("RGB", size, (k, 9, 9)).convert(mode)
        picture.save(tmp_path / f"{k}.png")
        lines.append(f"{k}.png,{k % 2}")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    dataset = mmb.data.load("images", path=tmp_path / "t.csv", size=16, augment="shift,turn")
    batch = dataset.batch(torch.arange(40), torch.Generator().manual_seed(0))
    assert batch.shape == (40, 3, 16, 16)
    assert batch.isfinite().all()


def small_recipe(own, **training):
    from mmb.training import resolve

    data = {"name": "images", **{key: own[key] for key in ("path", "image", "root", "size")}}
    return resolve(
        {
            "method": "pauc",
            "data": {**data, "fractions": [0.4, 0.3, 0.3], "augment": "shift,flip,rotate"},
            "model": {"name": "own_parts:small_cnn"},
            "sampler": {"batch_size": 4},
            "training": {"steps": 6, "evaluate_every": 3, "tensorboard": False, "device": "cpu", **training},
        }
    )


def test_a_resumed_run_is_the_undisturbed_one(own, tmp_path):
    """Also the augmentation, although batches are read ahead."""
    from mmb.training import Observer, Run, train
    from mmb.training.runs import checkpoint

    class Stop(Observer):
        def stepped(self, step, numbers):
            if step == 5:
                raise KeyboardInterrupt

    whole, cut = (
        Run.create(tmp_path / name, small_recipe(own, checkpoint_every=2, log_every=1)) for name in "ab"
    )
    train(whole)
    with pytest.raises(KeyboardInterrupt):
        train(cut, Stop())
    train(cut)
    states = [checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]["model"] for run in (whole, cut)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert whole.result()["test"] == cut.result()["test"]


def test_a_run_trains_and_predicts_from_new_tables(own, tmp_path):
    from mmb.training import Run, predict_file, train

    recipe = small_recipe(own)
    assert recipe.data["root"] == own["root"]
    run = Run.create(tmp_path / "run", recipe)
    train(run)
    pictures = tmp_path / "mine" / "pictures"
    (pictures / "bad.png").write_text("bad")
    new = tmp_path / "new.csv"  # not in the folder of the pictures
    new.write_text("id,file\na,3.png\nb,bad.png\nc,absent.png\nd,\ne,0.jpg\n")
    found = predict_file(Run.open(run.path), new, tmp_path / "scores.csv")
    with (tmp_path / "scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["usable"] for row in rows] == ["1", "0", "0", "0", "1"]
    assert [row["id"] for row in rows] == [*"abcde"]
    assert "bad.png" in rows[1]["problem"]
    assert found["unusable"] == 3
    assert json.loads(json.dumps(run.result()["test"]))


def test_mutated_tables_are_refused_or_read_right(own, tmp_path):
    """Whatever happens to the text of a table, no row gets the labels of another, and no error is bare."""
    rng, table = random.Random(1), tmp_path / "mine" / "labels.csv"
    sound = "\n".join(table.read_text().splitlines()[:9]) + "\n"  # 8 images
    read = 0
    for _ in range(300):
        text = sound
        for _ in range(rng.randint(1, 2)):
            place = rng.randrange(len(text))
            put = rng.choice(["", "1", "0", ",", "\n", '"', "-1", "x", "\x00", "é"])
            text = text[:place] + put + text[place + rng.randint(0, 2) :]
        table.write_text(text, encoding="utf-8")
        try:
            dataset = load(own, size=4, unreadable=rng.choice(["refuse", "skip"]), fractions=(0.4, 0.3, 0.3))
        except (DataError, ValueError) as error:
            assert len(str(error)) > 20  # noqa: PT017
            continue
        read += 1
        rows = list(csv.DictReader(text.lstrip("\ufeff").splitlines(), skipinitialspace=True))
        for row, (cells, labels) in enumerate(zip(rows, dataset.labels.tolist(), strict=True)):
            for name, label in zip(dataset.task_names, labels, strict=True):
                known = (cells.get(name) or "").strip().lstrip("0") or cells.get(name)  # 01 is a 1
                assert label == {"1": 1, "0": 0, "00": 0}.get(known, -1), (row, name, known)
    assert 20 < read < 280
