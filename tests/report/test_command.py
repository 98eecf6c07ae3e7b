import argparse
import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from mmb.cli.console import Console
from mmb.cli.options import report_options
from mmb.cli.run_commands import run_report
from mmb.training import RunError


def call(*arguments, as_json=False):
    parser = argparse.ArgumentParser()
    report_options(parser)
    console = Console()
    console.json = as_json
    run_report(parser.parse_args([str(argument) for argument in arguments]), console)


def test_a_folder_of_runs_becomes_a_page(runs, tmp_path, capsys):
    path = tmp_path / "new" / "page.html"
    call(runs[0].path.parent, "-o", path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    said = capsys.readouterr().out
    assert "MMB-pAUC, seed 1: " in said
    assert "a mean partial AUC" in said.splitlines()[0]
    assert str(path) in said


def test_the_result_as_json(runs, tmp_path, capsys):
    path = tmp_path / "page.html"
    call(runs[0].path, "-o", path, "--max-fpr", 0.2, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == str(path)
    assert list(found["verdicts"]) == ["CE, seed 0"]


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(RunError, match="no run"):
        call(tmp_path, "-o", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(sys.platform == "win32", reason="no Ctrl-C for one process alone")
def test_watch_prints_an_address_and_ends_with_ctrl_c(runs):
    words = [sys.executable, "-m", "mmb", "watch", str(runs[0].path), "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = json.loads(process.stdout.readline())["address"]
        with urllib.request.urlopen(address.replace("/?", "/data?"), timeout=30) as answer:
            assert json.load(answer)["runs"][0]["state"] == "finished"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert err == ""
