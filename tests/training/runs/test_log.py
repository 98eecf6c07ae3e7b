"""The log of a run: cut at its checkpoint, read although damaged, and means between its lines."""

import math

import pytest
import torch

from mmb.training.runs.log import RunLog, Window, read_log


def test_the_log_is_cut_where_a_checkpoint_was_taken(tmp_path):
    with RunLog(tmp_path, 0, 0, tensorboard=False) as log:
        log.write("train", 1, {"loss": 0.5})
        position = log.sync()
        log.write("train", 2, {"loss": math.nan})
    assert read_log(tmp_path)[1] == {"kind": "train", "step": 2, "loss": None}
    with RunLog(tmp_path, position, 1, tensorboard=False) as log:
        log.write("train", 2, {"loss": 0.25})
    assert [record["loss"] for record in read_log(tmp_path)] == [0.5, 0.25]


def test_the_log_knows_its_length_after_it_was_cut(tmp_path):
    with RunLog(tmp_path, 0, 0, tensorboard=False) as log:
        log.write("train", 1, {"loss": 0.5})
        position = log.sync()
        log.write("train", 2, {"loss": 0.25})
    with RunLog(tmp_path, position, 1, tensorboard=False) as log:
        assert log.sync() == position  # a checkpoint before the first line


def test_a_log_that_was_damaged_is_continued_and_read(tmp_path):
    with RunLog(tmp_path, 0, 0, tensorboard=False) as log:
        for step in (1, 2):
            log.write("train", step, {"loss": 0.5})
        position = log.sync()
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[: position - 9])
    with RunLog(tmp_path, position, 2, tensorboard=False) as log:
        log.write("train", 3, {"loss": 0.5})
    assert b"\0" not in file.read_bytes()
    assert [record["step"] for record in read_log(tmp_path)] == [1, 3]
    file.write_bytes(b"\xff\xfe\n[1]\n" + file.read_bytes())
    assert [record["step"] for record in read_log(tmp_path)] == [1, 3]
    file.unlink()
    assert read_log(tmp_path) == []


def test_an_error_is_the_last_line_until_the_run_continues(tmp_path):
    with pytest.raises(ValueError), RunLog(tmp_path, 0, 0, tensorboard=False) as log:  # noqa: PT012
        log.write("train", 5, {"loss": 1.0})
        position = log.sync()
        raise ValueError("bad")
    assert read_log(tmp_path)[-1] == {"kind": "error", "step": 5, "error": "ValueError", "message": "bad"}
    with pytest.raises(KeyboardInterrupt), RunLog(tmp_path, position, 5, tensorboard=False):
        raise KeyboardInterrupt
    assert [line["kind"] for line in read_log(tmp_path)] == ["train"]


def test_windows_average_and_resume():
    window, resumed = Window(), Window()
    window.add({"loss": torch.tensor(1.0)})
    resumed.load_state_dict(window.state_dict())
    resumed.add({"loss": torch.tensor(2.0)})
    assert resumed.take() == {"loss": 1.5}
    assert resumed.take() == {}
