"""Every data set has the same shape and obeys the same rules, whatever it is made of."""

import importlib
import json
from dataclasses import replace

import pytest
import torch

import mmb.data
from data import molecule_files
from mmb.data import MISSING, SPLITS, Dataset


def _leaves(batch):
    return [batch] if isinstance(batch, torch.Tensor) else list(batch.tensors())


def _same(a, b):
    return all(torch.equal(x, y) for x, y in zip(_leaves(a), _leaves(b), strict=True))


def _synthetic(root):
    return {"rows": 60, "tasks": 3, "missing_rate": 0.2, "positive_rate": 0.3}


def _table(root):
    path = root / "table.csv"
    lines = ["age,kind,sick,old"] + [f"{r},{'ab'[r % 2]},{r % 3 // 2},{r // 20 or ''}" for r in range(40)]
    path.write_text("\n".join(lines))
    return {"path": path, "labels": "sick,old"}


def _own_images(root):
    pytest.importorskip("PIL")
    from data import image_sets

    return image_sets.write_own(root / "source", 40) | {"size": 16, "gray": True, "augment": "shift,zoom"}


def _molecules(root, **options):
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    path = root / "molecules.csv"
    path.write_text(molecule_files.table_text(2))
    return {"path": path, "fractions": (0.6, 0.2, 0.2), **options}


def _published_molecules(root, monkeypatch, name):
    """A published set cut down to ten molecules, everything else being as it is."""
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    module = importlib.import_module(f"mmb.data.sets.{name}")
    small = replace(module._SET, rows=(10,), tasks=2)
    for function in ("get", "prepare", "load"):
        if name != "molpcba" or function != "load":
            monkeypatch.setattr(module, function, getattr(small, function))
    monkeypatch.setattr(module, "_SET", small)
    if name == "molpcba":
        rows = {"train": torch.arange(8), "valid": torch.tensor([8]), "test": torch.tensor([9])}
        monkeypatch.setattr(module, "official_split", lambda: rows)
    source = root / "source"
    source.mkdir()
    (source / f"{small.table}.csv").write_text(molecule_files.table_text(2))
    mmb.data.get(name, root, source)
    return {} if name == "molpcba" else {"fractions": (0.6, 0.2, 0.2)}


def _images(root, monkeypatch, name):
    pytest.importorskip("PIL")
    from data import image_sets

    if name == "celeba":
        mmb.data.get(name, root, image_sets.write_celeba(root / "source"))
        return {"size": 16, "workers": 1}
    if name == "chexpert":
        mmb.data.get(name, root, image_sets.write_chexpert(root / "source"))
        return {"size": 16, "workers": 1, "held_out": 2}
    small, *_ = image_sets.small_cifar(name, "binary", root, per_class=(10, 1))
    module = importlib.import_module(f"mmb.data.sets.{name}")
    for function in ("get", "prepare", "load"):
        monkeypatch.setattr(module, function, getattr(small, function))
    mmb.data.get(name, root, root)
    return {}


@pytest.fixture(scope="module", params=[*mmb.data.available_datasets(), "fingerprint", "descriptors"])
def case(request, tmp_path_factory):
    """Name, root and options of a data set whose files are there, in the layout of its publisher."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield _case(request.param, tmp_path_factory.mktemp("root"), monkeypatch)


def _case(name, root, monkeypatch):
    if name in ("fingerprint", "descriptors"):
        return "molecules", root, _molecules(root, features=name, bits=64)
    if name == "digits":
        pytest.importorskip("sklearn")
        return name, root, {}
    own = {"synthetic": _synthetic, "table": _table, "molecules": _molecules, "images": _own_images}
    if name in own:
        return name, root, own[name](root)
    make = _images if name in ("cifar10", "cifar100", "celeba", "chexpert") else _published_molecules
    return name, root, make(root, monkeypatch, name)


@pytest.fixture(scope="module")
def dataset(case) -> Dataset:
    name, root, options = case
    return mmb.data.load(name, root, **options)


def test_labels_are_int8_with_gaps(dataset):
    assert dataset.labels.shape == (len(dataset), len(dataset.task_names))
    assert set(dataset.labels.unique().tolist()) <= {MISSING, 0, 1}
    assert len(set(dataset.task_names)) == len(dataset.task_names)


def test_split_is_a_partition_of_rows(dataset):
    rows = torch.cat([dataset.split[part] for part in SPLITS])
    assert len(rows.unique()) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(dataset)
    assert all(len(dataset.split[part]) for part in SPLITS)


def test_loading_twice_gives_the_same(case, dataset):
    name, root, options = case
    again = mmb.data.load(name, root, **options)
    assert torch.equal(again.labels, dataset.labels)
    assert all(torch.equal(again.split[part], dataset.split[part]) for part in SPLITS)
    rows = torch.arange(min(8, len(dataset)))
    assert _same(again.batch(rows), dataset.batch(rows))


def test_rows_come_in_the_order_asked_for(dataset):
    few = torch.tensor([3, 0, 3])
    one_by_one = [dataset.batch(few[k : k + 1]) for k in range(3)]
    together = _leaves(dataset.batch(few))
    first = [_leaves(batch)[0] for batch in one_by_one]
    assert torch.equal(together[0], torch.cat(first))


def test_stream_gives_the_batches_in_order(dataset):
    batches = [torch.tensor([2, 1]), torch.tensor([0]), torch.tensor([5, 4, 3])]
    streamed = list(dataset.stream(iter(batches)))
    assert [rows.tolist() for rows, _ in streamed] == [rows.tolist() for rows in batches]
    assert all(_same(batch, dataset.batch(rows)) for rows, batch in streamed)


def test_augmentation_is_a_function_of_the_generator(dataset):
    rows = torch.arange(6)
    first, second = (dataset.batch(rows, torch.Generator().manual_seed(1)) for _ in range(2))
    assert _same(first, second)


def test_to_keeps_everything_but_the_device(dataset):
    moved = dataset.to("cpu")
    assert moved.device.type == "cpu"
    assert moved.encoder is dataset.encoder
    assert _same(moved.batch(torch.tensor([1])), dataset.batch(torch.tensor([1])))


def test_description_is_json_and_adds_up(dataset):
    description = json.loads(json.dumps(dataset.describe()))
    assert description["rows"] == len(dataset)
    for part in SPLITS:
        counts = description["counts"][part]
        sums = torch.tensor([counts[key] for key in ("positive", "negative", "missing")]).sum(0)
        assert sums.tolist() == [len(dataset.split[part])] * len(dataset.task_names)
        assert counts["positive"] == (dataset.labels[dataset.split[part]] == 1).sum(0).tolist()


def test_encoder_survives_json(dataset):
    if dataset.encoder is None:
        pytest.skip("this data set defines no file format for new rows")
    data = json.loads(json.dumps(dataset.encoder.to_json()))
    assert mmb.data.encoder_from_json(data) == dataset.encoder


def test_prepare_is_done_once(case):
    name, root, options = case
    known = mmb.data.dataset_options(name, "prepare")
    chosen = {key: value for key, value in options.items() if key in known}
    folder = mmb.data.prepare(name, root, **chosen)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert mmb.data.prepare(name, root, **chosen) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_it_says_what_it_is(case):
    about = mmb.data.about(case[0])
    assert mmb.data.available_datasets()[case[0]] == about.splitlines()[0]
    assert "split" in about.lower()
