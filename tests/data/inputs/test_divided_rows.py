import os
import random

import pytest
import torch

import mmb.data
from mmb.data.errors import TableError
from mmb.data.files import frames
from mmb.data.inputs import fit_columns
from mmb.training import Run, resolve, train
from mmb.training.loop import loop
from processes import in_processes, in_turn

pl = pytest.importorskip("polars")

OPTIONS = {"labels": ["y0", "y1"], "split": "stratified", "group": "who"}
FILES = 5


def write_folder(folder, rows=40):
    """Files of several lengths; a column is of numbers in all but the last of them."""
    draw = random.Random(0)
    folder.mkdir()
    for number in range(FILES):
        n = rows + 7 * number
        odd = number == FILES - 1
        columns = {
            "x": [draw.gauss(0, 1) if draw.random() < 0.9 else None for _ in range(n)],
            "z": [draw.gauss(3, 2) for _ in range(n)],
            "code": [draw.choice(["1", "2", "b"]) if odd else draw.choice([1, 2]) for _ in range(n)],
            "kind": [draw.choice("abcd"[: 2 + number // 2]) for _ in range(n)],
            "who": [f"p{number}-{row // 3}" for row in range(n)],
            "y0": [draw.choice([0, 0, 1, None]) for _ in range(n)],
            "y1": [draw.choice([0, 1]) for _ in range(n)],
        }
        pl.DataFrame(columns).write_parquet(folder / f"{number}.parquet")
    return folder


def load_here(folder, store, rows, looked_at=1 << 20):
    """What this process opens and sees of a divided table."""
    fit_columns._LOOKED_AT = looked_at
    opened, real = set(), frames.read_columnar

    def look(path, *rest):
        opened.add(path.name)
        return real(path, *rest)

    frames.read_columnar = look
    try:
        found = mmb.data.load("table", store, path=folder, divide=True, **OPTIONS)
    finally:
        frames.read_columnar = real
    return {
        "opened": sorted(opened),
        "kept": len(found.inputs.own),
        "encoder": found.encoder.to_json(),
        "labels": found.labels.tolist(),
        "split": {part: rows.tolist() for part, rows in found.split.items()},
        "batch": found.batch(torch.tensor(rows)).tolist(),
    }


@pytest.mark.parametrize("looked_at", [1 << 20, 50])  # training rows that columns are fitted to
def test_each_process_opens_its_own_files_and_sees_all_rows(tmp_path, monkeypatch, looked_at):
    folder, rows = write_folder(tmp_path / "folder"), [3, 261, 0, 100, 100, 50, 199]
    monkeypatch.setattr(fit_columns, "_LOOKED_AT", looked_at)
    whole = mmb.data.load("table", tmp_path / "store", path=folder, **OPTIONS)
    answers = in_processes(2, load_here, folder, tmp_path / "store", rows, looked_at)
    assert [answer["opened"] for answer in answers] == [
        ["0.parquet", "1.parquet"],
        ["2.parquet", "3.parquet", "4.parquet"],
    ]
    assert sum(answer["kept"] for answer in answers) == len(whole)
    for answer in answers:
        assert answer["encoder"] == whole.encoder.to_json()
        assert answer["labels"] == whole.labels.tolist()
        assert answer["split"] == {part: found.tolist() for part, found in whole.split.items()}
        torch.testing.assert_close(torch.tensor(answer["batch"]), whole.batch(torch.tensor(rows)))


class Stopped(Exception):
    pass


def train_here(path, store, last=None):
    """Train a run, or crash right after the checkpoint of a step."""
    os.environ["MMB_DATA"] = str(store)
    real = loop.save

    def save_and_stop(run, setup, progress, log):
        real(run, setup, progress, log)
        if progress.step == last:
            raise Stopped

    loop.save = save_and_stop
    try:
        return train(Run.open(path))["test"]
    except Stopped:
        return None
    finally:
        loop.save = real


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_training_is_that_of_one_process(tmp_path, monkeypatch, kind):
    """Also where one process has a batch of validation rows more, and where one continues what two began."""
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "store"))
    data = {"name": "table", "path": str(write_folder(tmp_path / "folder")), "divide": True, **OPTIONS}
    training = {"steps": 6, "evaluate_every": 3, "tensorboard": False, "device": "cpu"}
    training |= {"evaluation_batch_size": 1, "checkpoint_every": 2}
    model = {"hidden": [8], "dropout": 0.0}
    sampler = {"kind": kind, "batch_size": 16, "tasks_per_step": 2, "rows_per_task": 8}
    recipe = resolve(
        {"method": "pauc", "data": data, "model": model, "sampler": sampler, "training": training}
    )
    one, many, fewer = (Run.create(tmp_path / name, recipe).path for name in ("one", "many", "fewer"))
    alone = train_here(one, tmp_path / "store")
    calls = [(train_here, many, tmp_path / "store"), (train_here, fewer, tmp_path / "store", 4)]
    for answer, stopped in in_processes(2, in_turn, calls):
        assert answer == pytest.approx(alone, abs=1e-4)
        assert stopped is None
    assert train_here(fewer, tmp_path / "store") == pytest.approx(alone, abs=1e-4)


def fail_here(folder, store):
    try:
        load_here(folder, store, [0])
    except TableError as error:
        return str(error)
    return ""


def test_too_few_files(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    pl.DataFrame({"x": [1.0, 2.0], "y": [0, 1]}).write_parquet(folder / "only.parquet")
    for (message,) in in_processes(2, in_turn, [(fail_here, folder, tmp_path / "store")]):
        assert "1 files for 2 processes" in message


def test_files_of_parts_are_not_divided(tmp_path):
    folder = write_folder(tmp_path / "folder")
    with pytest.raises(ValueError, match=r"divide.*valid_path"):
        mmb.data.load("table", tmp_path, path=folder, labels="y1", divide=True, valid_path=folder)
