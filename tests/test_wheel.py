"""A built wheel works without the repository: recipes, split files and page assets are inside."""

import json
import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

pytest.importorskip("setuptools", minversion="77")


def call(*words, **options):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(word) for word in words]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def needed(requirements, found):
    """Add the distributions that requirements of an environment lead to, as pip would install them."""
    for text in requirements:
        requirement = Requirement(text)
        distribution = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(distribution.version, prereleases=True), text
        extras = requirement.extras - found.get(distribution.name, (None, set()))[1]
        if extras or distribution.name not in found:
            known = found.setdefault(distribution.name, (distribution, set()))[1]
            known |= extras
            needed(chosen(distribution, extras), found)


def chosen(distribution, extras):
    """Requirements of a distribution with some of its extras on this machine."""
    for text in distribution.requires or []:
        marker = Requirement(text).marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield text


def link(distribution, packages):
    """Link the packages of a distribution, and its files outside of packages, into another environment."""
    root = Path(str(distribution.locate_file("")))
    for file in distribution.files:
        if file.parts[0] == "..":  # scripts
            continue
        folders = (Path(*file.parts[:depth]) for depth in range(1, len(file.parts)))
        place = next((folder for folder in folders if (root / folder / "__init__.py").exists()), Path(file))
        if not (packages / place).exists():
            (packages / place).parent.mkdir(parents=True, exist_ok=True)
            (packages / place).symlink_to(root / place)


@pytest.fixture(scope="module")
def mmb(tmp_path_factory):
    """The command `mmb` of a new environment that has only the wheel and what it says it needs.

    The wheel is installed; what it needs is linked from this environment, which saves a second copy.
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
    call(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    (installed,) = metadata.distributions(name="mmb", path=[str(packages)])
    found = {}
    needed(chosen(installed, {"training"}), found)
    for distribution, _ in found.values():
        link(distribution, packages)
    assert str(packages) in call(python, "-c", "import mmb; print(mmb.__file__)", cwd=folder)
    missing = "import importlib.util as u; print(u.find_spec('torch') is None, u.find_spec('pytest') is None)"
    assert call(python, "-c", missing) == "False True\n"
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
