"""One command runs all that needs a GPU, and says how every part of it ended."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import on_gpu

    return on_gpu


def test_all_tests_that_need_a_gpu_are_among_its_parts(on_gpu):
    asked = "not torch.cuda.is_available(), reason="
    found = {path for path in (ROOT / "tests").rglob("test_*.py") if asked in path.read_text()}
    listed = [ROOT / name for name in on_gpu.TESTS]
    assert all(path.exists() for path in listed)
    missing = {path for path in found if not {path, *path.parents} & set(listed)} - {Path(__file__)}
    assert not missing


def test_its_parts_take_ten_minutes_at_most(on_gpu):
    assert sum(part.seconds for part in on_gpu.parts("random", False)) <= 600


def test_a_part_that_fails_or_hangs_keeps_no_other_from_running(on_gpu, monkeypatch, tmp_path, capsys):
    programs = {
        "good": (30, "print('speed')"),
        "bad": (30, "raise SystemExit(3)"),
        "slow": (1, "import time; print('begun', flush=True); time.sleep(60)"),
        "last": (30, "print('end')"),
    }
    made = [on_gpu.Part(name, seconds, ("-c", text)) for name, (seconds, text) in programs.items()]
    monkeypatch.setattr(on_gpu, "parts", lambda *_: made)
    assert on_gpu.main(["--output", str(tmp_path / "logs")]) == 1
    logs = {path.stem: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert (logs["good"], logs["last"]) == ("speed\n", "end\n")
    for line in ("good  done", "bad  failed (3)", "slow  took too long", "last  done"):
        assert line in logs["summary"]
    assert on_gpu.main(["--output", str(tmp_path / "few"), "--only", "good", "last"]) == 0
    assert not (tmp_path / "few" / "bad.txt").exists()


def test_stacked_runs_are_the_runs(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import stacked_runs

    stacked_runs.main(["--small", "--networks", "table", "graphs", "--runs", "3"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["objective"] for row in found] == ["CE", "MMB-pAUC"] * 2
    assert max(row["apart"] for row in found) < 1e-9
