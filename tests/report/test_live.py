import shutil

import pytest

from mmb.report.live import LiveRuns, all_left, seconds_left, state_of, verdict_so_far
from mmb.training import Run, RunError, train
from mmb.training.runs.log import RunLog
from tiny_runs import tiny_recipe


def lines(*values, steps=100, every=10):
    """A log with an evaluation every ten steps, of two seconds each."""
    log = [{"kind": "start", "step": 0, "steps": steps}]
    for place, value in enumerate(values):
        facts = {"step": every * place, "seconds": 2.0 * place}
        log += [{"kind": "valid", "pauc": value, **facts}, {"kind": "train", "loss": 1.0, **facts}]
    return log


@pytest.mark.parametrize(
    ("log", "finished", "status", "words"),
    [
        (lines(0.5), False, "unknown", "1 evaluation so far"),
        (lines(0.5, 0.6, 0.7), False, "good", "Working so far: validation pAUC from 0.500 to 0.700"),
        (lines(0.5, 0.7, 0.7, 0.7), True, "good", "Finished: "),
        (lines(*[0.5] * 8), False, "remark", "not improved on its start"),
        (lines(*[0.5] * 3), False, "good", "Working so far"),  # it is early
        (lines(0.5, 0.8, 0.8, 0.8, 0.55), False, "remark", "collapsed"),
    ],
)
def test_the_verdict_so_far(log, finished, status, words):
    found = verdict_so_far(log, "pauc", finished)
    assert found["status"] == status
    assert words in found["verdict"]


@pytest.mark.parametrize(
    ("error", "words"), [("TrainingError", "diverged"), ("OSError", "ended with an error")]
)
def test_a_run_that_failed_says_why(error, words):
    log = [*lines(0.5, 0.6), {"kind": "error", "step": 10, "error": error, "message": "disk full"}]
    found = verdict_so_far(log, "pauc", False)
    assert found["status"] == "bad"
    assert words in found["verdict"]
    assert any("disk full" in one["text"] for one in found["checks"])
    assert state_of(log, 0.0) == "failed"


def test_time_left_follows_the_pace():
    assert seconds_left(lines(0.5, 0.5, 0.5)) == pytest.approx(80 * 0.2)
    assert seconds_left(lines(0.5)) is None
    assert seconds_left([]) is None


def test_silence_is_told_from_long_steps():
    assert state_of([], 1e9) == "waiting"
    assert state_of(lines(0.5, 0.6), 30.0) == "training"
    assert state_of(lines(0.5, 0.6), 61.0) == "silent"
    slow = [
        {**line, "seconds": 100 * line["seconds"]} if "seconds" in line else line for line in lines(0.5, 0.6)
    ]
    assert state_of(slow, 300.0) == "training"


def test_runs_that_wait_take_as_long_as_others_of_their_method():
    def run(state, method, seconds=None, left=None):
        return {"state": state, "method": method, "seconds": seconds, "seconds_left": left}

    runs = [run("finished", 0, 10.0), run("training", 1, 20.0, 10.0), run("waiting", 0), run("waiting", 1)]
    assert all_left(runs) == pytest.approx(10 + 10 + 30)
    assert all_left([*runs, run("training", 1, 25.0, 5.0)]) == pytest.approx(30)  # that of the longest
    assert all_left([*runs, run("training", 0, 5.0, 5.0), run("waiting", 1)]) == pytest.approx(85 / 2)
    assert all_left(runs[:1]) is None


def test_a_run_is_followed_from_nothing_to_its_end(tmp_path):
    run = Run.create(tmp_path / "ce", tiny_recipe("ce"))
    live = LiveRuns([tmp_path])
    (shown,) = live.content()["runs"]
    assert shown["state"] == "waiting"
    with RunLog(run.path, 0, 0, tensorboard=False) as log:
        log.write("start", 0, {"steps": 40})
        log.write("valid", 0, {"pauc": 0.5, "seconds": 0.0})
        assert live.content()["runs"][0]["curves"]["valid"]["pauc"] == [0.5]
        log.write("valid", 10, {"pauc": 0.7, "seconds": 1.0})
        with open(run.path / "metrics.jsonl", "a") as file:
            file.write('{"kind": "valid", "st')  # being written
        found = live.content()
    (shown,) = found["runs"]
    assert (shown["state"], shown["step"], shown["steps"], shown["best"]) == ("training", 10, 40, 0.7)
    assert found["seconds_left"] == shown["seconds_left"] == pytest.approx(3.0)
    train(run)
    other = Run.create(tmp_path / "auc", tiny_recipe("auc"))  # appears later
    found = live.content()
    assert found["finished"] == 1
    assert {one["state"] for one in found["runs"]} == {"finished", "waiting"}
    assert sorted(found["methods"]) == ["CE", "mAUC"]
    shutil.rmtree(other.path)
    assert len(live.content()["runs"]) == 1


def test_the_average_of_branches_is_no_step_of_training():
    values = [0.5, 0.8, 0.7, 0.65, 0.65, 0.65, 0.65, 0.65, 0.65, 0.8]
    log = [{"kind": "valid", "step": k, "pauc": value} for k, value in enumerate(values)]
    assert "still improving" in verdict_so_far(log, "pauc", True)["verdict"]
    assert "improving" not in verdict_so_far(log, "pauc", True, averaged=True)["verdict"]


def test_phases_have_their_own_lines(tmp_path):
    recipe = tiny_recipe("soup", branches={"ce": {}, "auc": {}}, soup={"share": 0.5}, training={"steps": 10})
    train(Run.create(tmp_path / "soup", recipe))
    found = LiveRuns([tmp_path]).content()
    names = [run["name"] for run in found["runs"]]
    assert [name.rsplit(", ", 1)[-1] for name in names] == ["auc", "ce", "pretrain", "seed 0"]
    assert len(found["methods"]) == 1


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(RunError, match="no run"):
        LiveRuns([tmp_path])
