"""A built wheel works without the repository: recipes, split files and page assets are inside."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytest.importorskip("setuptools", minversion="77")


def call(*words, **options):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(word) for word in words]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def mmb(tmp_path_factory):
    """The command `mmb` of a new environment, in which only the wheel and what it needs can be imported.

    With MMB_EMPTY_ENVIRONMENT=1, as in CI, what it needs is installed as well, which takes 1.5 GB;
    else it is that of this environment.
    """
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    building = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    source = folder / "source"  # not the repository itself, in which files of earlier builds may be
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    shutil.copytree(ROOT / "recipes", source / "recipes")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    call(*pip, "wheel", *building, source)
    (wheel,) = folder.glob("mmb-*.whl")
    venv.create(folder / "env", with_pip=False)
    bin_folder = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    python = bin_folder / ("python.exe" if os.name == "nt" else "python")
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    if os.environ.get("MMB_EMPTY_ENVIRONMENT"):
        versions = ["--constraint", ROOT / "constraints.txt"]
        call(*pip, "--python", python, "install", *versions, f"{wheel}[training]")
    else:  # without the packages that this environment links to
        call(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
        (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert str(packages) in call(python, "-c", "import mmb; print(mmb.__file__)", cwd=folder)
    return lambda *words: call(bin_folder / "mmb", *words, cwd=folder)


@pytest.mark.slow
def test_the_commands_of_the_demo_work(mmb):
    assert mmb("--version").startswith("mmb 0.2")
    tiny = [
        "training.steps=20",
        "training.evaluate_every=10",
        "model.hidden=[8]",
        "training.tensorboard=false",
    ]
    mmb("compare", "digits", "--methods", "ce,pauc", "--seeds", "1", "--jobs", "1", "--output", "demo", *tiny)
    assert "report.html" in mmb("report", "demo", "--output", "demo/report.html")
    assert "data.bits=1024" in mmb("train", "recipes/tox21.yaml", "--keys")
    assert "tox21" in json.loads(mmb("data", "list", "--json"))
    assert "training.epochs=" in mmb("completion", "bash")
