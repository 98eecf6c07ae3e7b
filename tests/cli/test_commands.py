"""The command line, as people and machines call it."""

import argparse
import errno
import gc
import io
import json
import os
import re
import shutil
import sys
import weakref

import pytest

from mmb.cli import main
from mmb.cli.parser import COMMANDS, make_parsers
from mmb.training import Run, train_many
from mmb.training.processes.rendezvous import ProcessError

TINY = [
    *("data.rows=300", "data.tasks=3", "data.features=6", "data.positive_rate=0.1", "model.hidden=[8]"),
    *(
        "training.steps=20",
        "training.evaluate_every=10",
        "training.tensorboard=false",
        "sampler.batch_size=32",
    ),
    *("sampler.tasks_per_step=2", "sampler.rows_per_task=8", "training.device=cpu"),
]


@pytest.fixture
def call(capfd, tmp_path, monkeypatch):
    """Run a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_from_training_to_prediction(call, tmp_path):
    code, out, _ = call("train", "--data", "synthetic", "--method", "pauc", *TINY, "--json")
    assert code == 0
    trained = json.loads(out)  # nothing but JSON
    run = trained["run"]
    assert (tmp_path / run / "table.txt").exists()

    code, out, _ = call("evaluate", run, "--split", "test", "--json")
    assert code == 0
    assert json.loads(out)["mean"] == trained["test"]
    code, out, _ = call("evaluate", run, "--split", "valid")
    assert code == 0
    assert "task_2" in out

    (tmp_path / "new.csv").write_text("x0,x1,x2,x3,x4,x5\n" + "0,0,0,0,0,0\n" * 3 + "a,b,c,d,e,f\n")
    code, out, err = call("predict", run, "--input", "new.csv", "--output", "out.csv")
    assert code == 0
    assert re.search("1 rows.*problem.*not a number", err)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5

    code, out, _ = call("resume", run, "--json")  # finished already
    assert code == 0
    assert json.loads(out) == trained


def test_a_recipe_file_with_overrides(call, tmp_path):
    (tmp_path / "r.yaml").write_text("method: ce\ndata: {name: synthetic}\n")
    code, out, _ = call("train", "r.yaml", *TINY[:5], "--output", "here", *TINY[5:], "seed=3", "--json")
    assert code == 0
    assert json.loads(out)["seed"] == 3
    assert (tmp_path / "here" / "recipe.yaml").exists()


def test_compare(call, tmp_path, monkeypatch):
    jobs = []

    def here(planned, count, *given, **options):
        jobs.append(count)
        return train_many(planned, 1, *given, **options)  # many processes are tested with `train_many`

    monkeypatch.setattr("mmb.cli.watching.train_many", here)
    arguments = ["--data", "synthetic", "--methods", "ce,pauc", "--seeds", 2, "--jobs", 2, "--output", "c"]
    code, out, _ = call("compare", *arguments, *TINY)
    assert code == 0
    assert jobs == [2]
    for text in ("CE", "MMB-pAUC", "AUC", "pAUC 0.1", "over 2 seeds", "noise", "curves.png", "predict"):
        assert text in out
    assert (tmp_path / "c" / "curves.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = call("compare", *arguments, *TINY, "--json")  # all there already
    summary = json.loads(out)["methods"]
    values = summary["pauc"]["auc"]["values"]
    results = [
        json.loads((tmp_path / "c" / "pauc" / f"seed-{s}" / "result.json").read_text()) for s in (0, 1)
    ]
    assert values == [result["test"]["auc"] for result in results]
    assert summary["pauc"]["auc"]["mean"] == pytest.approx(sum(values) / 2)
    assert summary["pauc"]["auc"]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    code, _, err = call("compare", *arguments, *TINY, "optimizer.lr=1")
    assert code == 1
    assert "another recipe" in err
    assert "optimizer.lr (1.0 instead of " in err


def test_compare_refuses_what_is_not_fair(call, tmp_path):
    code, _, err = call(
        "compare", "--data", "synthetic", "--methods", "ce,auc-ct", *TINY, "sampler.batch_size=99"
    )
    assert code == 1
    assert re.search("fair.*rows per step", err)
    assert not (tmp_path / "runs").exists()


def test_data_commands(call):
    code, out, _ = call("data", "list", "--json")
    assert code == 0
    assert {"digits", "synthetic", "table"} <= json.loads(out).keys()
    code, out, _ = call("data", "describe", "synthetic", "rows=100", "tasks=2")
    assert code == 0
    assert "100 rows" in out
    code, out, _ = call("data", "describe", "synthetic", "rows=100", "tasks=2", "--json")
    assert json.loads(out)["tasks"] == 2
    for action in ("get", "prepare"):
        assert call("data", action, "synthetic", "--json")[0] == 0
    code, _, err = call("data", "describe", "synthetik")
    assert code == 2
    assert "'synthetic'" in err
    code, _, err = call("data", "describe")
    assert code == 2
    assert "mmb data list" in err


def test_keys_are_listed_with_help(call):
    code, out, _ = call("train", "--data", "digits", "--method", "pauc", "--keys")
    assert code == 0
    assert "\n  objective.max_fpr=0.1\n" in out
    assert "\n  training.steps=1000\n" in out  # as digits have it
    assert "Step size." in out
    assert "`" not in out
    code, out, _ = call("train", "--keys")
    assert code == 0
    assert "\n  training.steps=null\n" in out
    assert "  csv: data.path, data.labels" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "a command is needed"),
        (["trian"], 2, "did you mean 'train'"),
        (["train", "--metod", "ce"], 2, "did you mean '--method'"),
        (["train"], 2, "mmb train table.csv --labels"),
        (["tune", "digits"], 2, "missing: method"),
        (["train", "--data", "digits", "--method", "pauk"], 2, "did you mean 'pauc'"),
        (["train", "--data", "digit", "--method", "pauc"], 2, "did you mean 'digits'"),
        (
            ["train", "--data", "digits", "--method", "ce", "optimizer.lrr=1"],
            2,
            "did you mean 'optimizer.lr'",
        ),
        (["train", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["resume", "nowhere"], 2, "no run in nowhere"),
        (["evaluate", "nowhere", "--split", "tset"], 2, "tset"),
        (["predict", "nowhere"], 2, "--input"),
        (["resume", "nowhere", "key=value"], 2, "'key=value'"),
        (["compare", "--data", "digits", "--seeds", "0"], 2, "--seeds"),
        (["compare", "--data", "digits", "--jobs", "-1"], 2, "--jobs"),
        (["compare", "--data", "digits", "--methods", " ,"], 2, "--methods"),
        (["compare", "digits", "--methods", "ce", "ap"], 2, "--methods ce,ap"),
        (["data", "list", "digits"], 2, "mmb data describe digits"),
        (["data", "get", "digits", "seed=1"], 2, "seed=1"),
        (["data", "describe", "csv"], 2, "--path table.csv"),
        (["data", "describe", "synthetic", "rows=many"], 2, "rows: expected a whole number"),
        (["data", "describe", "synthetic", "row=5"], 2, "did you mean 'rows'"),
        (["data", "prepare", "tox21", "workrs=5"], 2, "did you mean 'workers'"),
        (["data", "prepare", "digits", "sed=5"], 2, "did you mean 'seed'"),
        (["watch", "nowhere", "--port", "99999"], 2, "65535"),
        (["train", "digits", "--folds", "2"], 2, "at least 3"),
        (["predict", "nowhere", "--input", "a", "--output", "b", "--fpr", "5%"], 2, "write 0.05"),
        (["--json"], 2, "mmb COMMAND --json"),
        (["--debug", "data", "list"], 2, "mmb COMMAND --debug"),
        (["train", "--data", "digits", "--method", "ce", "lr=1"], 2, "did you mean 'optimizer.lr'"),
    ],
)
def test_errors_are_one_line_with_an_exit_code(call, arguments, code, message):
    found, out, err = call(*arguments)
    assert found == code
    assert message in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert out == "" or "--json" in arguments
    _, out, err = call(*arguments, "--json")
    assert json.loads(out)["error"] in err


def test_a_run_that_could_not_start_leaves_no_folder(call, tmp_path):
    arguments = ["train", "--data", "csv", "--method", "ce", "--output", "here", *TINY[4:]]
    arguments += ["data.path=data.csv", "data.labels=y"]
    code, _, err = call(*arguments)
    assert code == 2
    assert "data.csv" in err
    assert not (tmp_path / "here").exists()
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{row % 9},{row % 2}\n" for row in range(100)))
    code, _, err = call(*arguments, "data.fractions=[1,0,0]")
    assert code == 1
    assert "validation rows" in err
    assert not (tmp_path / "here").exists()
    assert call(*arguments)[0] == 0  # the same command
    assert call(*arguments)[0] == 1
    assert (tmp_path / "here" / "result.json").exists()


def test_errors_for_machines_are_json_and_debug_shows_where(call, tmp_path):
    code, out, _ = call("resume", "nowhere", "--json")
    assert code == 2
    assert "no run" in json.loads(out)["error"]
    code, out, _ = call("data", "describe", "csv", "path=nowhere.csv", "labels=y", "--json")
    assert code == 2
    assert "nowhere.csv" in json.loads(out)["error"]
    (tmp_path / "empty.csv").touch()
    words = ("data", "describe", "csv", f"path={tmp_path / 'empty.csv'}", "labels=y")
    code, out, _ = call(*words, "--json")
    assert code == 1
    assert "empty.csv" in json.loads(out)["error"]
    with pytest.raises(Exception, match=r"empty\.csv"):
        call(*words, "--debug")


def test_of_many_processes_one_answers_with_json(call, monkeypatch):
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        _, out, err = call("resume", "nowhere", "--json")
        assert len(out.splitlines()) == lines
        assert "no run" in err


def test_a_terminal_without_unicode_shows_question_marks(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("größe,krank\n" + "1.5,1\n2.5,0\n3.5,0\n" * 20, encoding="utf-8")
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", output)
    assert main(["data", "describe", str(path), "labels=krank"]) == 0
    assert b"gr??e" in output.buffer.getvalue()


def test_a_full_disk_is_said_with_what_to_do(call, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mmb._atomic_files.os.fsync", full)
    code, _, err = call("train", "--data", "synthetic", "--method", "ce", *TINY)
    assert code == 1
    assert re.search("cannot write runs: No space left on device.*free.*command again", err)
    assert "resume" not in err


def test_a_folder_that_cannot_be_written_is_said_with_what_to_do(call, monkeypatch):
    def forbidden(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", forbidden)
    code, _, err = call("train", "--data", "synthetic", "--method", "ce", *TINY, "--output", "locked")
    assert code == 1
    assert re.search("locked.*Permission denied.*--output", err)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to this user"
)
def test_a_finished_run_is_read_where_nothing_can_be_written(call, tmp_path):
    assert call("train", "--data", "synthetic", "--method", "ce", *TINY, "--output", "locked/run")[0] == 0
    folders = [path for path in (tmp_path / "locked").rglob("*") if path.is_dir()]
    for path in (tmp_path / "locked", *folders):
        path.chmod(0o555)
    try:
        for command in (
            ["evaluate"],
            ["report", "--output", "page.html"],
            ["export", "--output", "exported"],
        ):
            assert call(command[0], "locked/run", *command[1:])[0] == 0
        assert call("export", "locked/run")[0] == 1
    finally:
        for path in (tmp_path / "locked", *folders):
            path.chmod(0o755)


def test_a_full_disk_after_a_checkpoint_says_how_to_go_on(call, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mmb.training.loop.outcome.result_table", full)
    code, _, err = call("train", "--data", "synthetic", "--method", "ce", *TINY, "--output", "my run")
    assert code == 1
    assert re.search("free.*`mmb resume 'my run'`", err)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    code, _, err = call("resume", "my run")
    assert code == 0
    assert "mmb predict 'my run' --input FILE --output FILE" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("output", [[], ["--json"]])
def test_a_full_disk_below_stdout_is_one_message(call, monkeypatch, output):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        code, _, err = call("data", "list", *output)
    assert code == 1
    assert err.startswith("mmb: error: cannot write to standard output: No space left on device")
    assert len(err.splitlines()) == 1


def test_columns_may_be_called_by_numbers_and_the_like(call, tmp_path):
    rows = "".join(f"{row % 9},{row % 2},{row % 3 // 2},{row % 5 // 4}\n" for row in range(200))
    (tmp_path / "d.csv").write_text(f"x,2021,no,2021-01-01\n{rows}")
    code, out, _ = call(
        "data", "describe", "csv", "path=d.csv", "labels=2021", "drop=[no,2021-01-01]", "--json"
    )
    assert code == 0
    assert json.loads(out)["task_names"] == ["2021"]
    arguments = ["--data", "csv", "data.path=d.csv", "data.drop=2021-01-01", *TINY[4:], "--json"]
    for labels, names in (("no", ["no"]), ("[2021, no]", ["2021", "no"])):
        code, out, _ = call("train", "--method", "ce", f"data.labels={labels}", *arguments)
        assert code == 0
        assert json.loads(out)["tasks"]["name"] == names


def test_a_run_works_from_any_folder(call, tmp_path, monkeypatch):
    (tmp_path / "d.csv").write_text("x,y\n" + "".join(f"{row % 9},{row % 2}\n" for row in range(100)))
    csv = ["--data", "csv", "data.path=d.csv", "data.labels=y"]
    assert call("train", "--method", "ce", *csv, *TINY[4:], "--output", "r")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "unfinished").mkdir()
    shutil.copy(tmp_path / "r" / "recipe.yaml", tmp_path / "unfinished")
    monkeypatch.chdir(tmp_path / "elsewhere")
    used = (("evaluate", "r"), ("resume", "unfinished"))
    for command, run in used:
        assert call(command, f"../{run}")[0] == 0
    (tmp_path / "d.csv").rename(tmp_path / "other.csv")
    (tmp_path / "unfinished" / "result.json").unlink()
    for command, run in used:
        code, _, err = call(command, f"../{run}")
        assert code == 1
        assert f"data.path in ../{run}/recipe.yaml" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out
    _, parsers = make_parsers([command])
    assert all(action.help for action in parsers[command]._actions)


def test_warnings_are_lines_on_stderr(call, tmp_path):
    rows = "\n".join(f"{k},{k % 2},1" for k in range(60))
    (tmp_path / "d.csv").write_text(f"x,y,z\n{rows}\n")
    csv = ["--data", "csv", "data.path=d.csv", "data.labels=y,z", "training.tensorboard=false"]
    code, out, err = call("train", "--method", "ce", *csv, "training.steps=2", "--json")
    assert code == 0
    assert re.search(r"1 of 2 tasks.*training rows.*left out: z\n", err)
    assert err.count("left out") == 1
    assert json.loads(out)["tasks"]["test_auc"][1] is None


def test_what_is_chosen_for_a_table_is_used_and_warnings_are_said_once(call, tmp_path):
    rows = "\n".join(f"{1e9 if k == 7 else k % 5},{int(k in (1, 2, 3))}" for k in range(200))
    (tmp_path / "d.csv").write_text(f"x,y\n{rows}\n")
    words = ["training.steps=40", "training.tensorboard=false", "model.hidden=[4]", "--output", "run"]
    code, _, err = call("train", "d.csv", "--labels", "y", *words)
    assert code == 0
    assert "data.split=stratified" in err
    for path in (tmp_path / "run", tmp_path / "run" / "pretrain"):
        assert Run.open(path).recipe.data["split"] == "stratified"
    assert err.count("that far out") == 1  # each phase loads the table


def test_what_a_lost_process_leaves_is_not_freed(monkeypatch):
    """Freeing what gloo shares with a process that has ended may wait for it without end."""

    class Shared:
        pass

    freed = []

    def fail(options, console):
        shared = Shared()
        weakref.finalize(shared, freed.append, True)
        raise ProcessError("another process has ended")

    monkeypatch.setattr("mmb.cli.parse", lambda words: argparse.Namespace(json=False, debug=False))
    monkeypatch.setattr("mmb.cli.function_of", lambda options: fail)
    assert main(["resume"]) == 1
    gc.collect()
    assert not freed


def test_a_table_of_ones_own_is_understood_and_judged(call, tmp_path):
    rows = [f"p{k},{k % 9},{'uv'[k % 2]},{'yes' if k % 9 > 5 else 'no'}" for k in range(240)]
    (tmp_path / "mine.csv").write_text("\n".join(["name,x,k,sick", *rows]))
    code, out, err = call("train", "mine.csv", "ce", "--labels", "sick", "--steps", 60, "--output", "run")
    assert code == 0
    for line in ("rows: 240 (192 train", "labels: sick (78 of 240 positive)", "numbers: x", "left out: name"):
        assert line in err
    assert "data.group=COLUMN" in err  # rows repeat
    assert re.search(r"^(Working|Cannot tell|Not working)", out, re.MULTILINE)
    code, out, err = call("resume", "run")
    assert code == 0
    assert "Working" not in out  # it says no more than the result
    code, out, err = call("predict", "run", "--input", "mine.csv", "--output", "out.csv")
    assert "mmb evaluate run --input mine.csv" in err
    code, out, _ = call("evaluate", "run", "--input", "mine.csv")
    assert code == 0
    assert re.search(r"sick +│ +78 +│ +162 +│ 1.0000", out)
    (tmp_path / "new.csv").write_text("x,k\n1,new\n")
    code, _, err = call("predict", "run", "--input", "new.csv", "--output", "out.csv")
    assert "'k': 1 of 1 rows" in err
    code, _, err = call("evaluate", "run", "run")
    assert (code, "--input" in err) == (2, True)


def test_an_interruption_names_the_run_to_go_on_with(call, monkeypatch):
    def stopped(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("mmb.cli.training_commands.train_together", stopped)
    code, _, err = call("train", "synthetic", "ce", *TINY, "--output", "my run")
    assert code == 130
    assert "`mmb resume 'my run'`" in err
