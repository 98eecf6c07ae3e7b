"""Completion: the scripts offer commands, options, names and keys; bash runs its own."""

import shutil
import subprocess

import pytest

from mmb.cli import main
from mmb.cli.parser import COMMANDS


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tr"], ["train"]),
        (["train", "--da"], ["--data"]),
        (["train", "--data", "tox"], ["tox21", "toxcast"]),
        (["train", "--method", "pauc-"], ["pauc-full", "pauc-pairwise"]),
        (["train", "training.ep"], ["training.epochs="]),
        (["train", "digi"], ["digits"]),
        (["evaluate", "--split", "t"], ["train", "test"]),
        (["completion", "z"], ["zsh"]),
        (["data", "des"], ["describe"]),
    ],
)
def test_bash_completes(words, offered, capsys):
    line = f"""{script("bash", capsys)}
compopt() {{ :; }}
COMP_WORDS=(mmb {" ".join(words)}); COMP_CWORD={len(words)}; _mmb; echo "${{COMPREPLY[@]}}"
"""
    found = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert found.stdout.split() == offered
    assert found.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell, capsys):
    text = script(shell, capsys)
    for word in (
        *COMMANDS,
        "tox21",
        "pauc-pairwise",
        "training.epochs=",
        "data" if shell == "fish" else "--data",
    ):
        assert word in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=text, text=True, check=True)
