"""Recipes, tables and runs that a command names: whether they exist, and which one was meant if not."""

import argparse
import difflib
import sysconfig
from pathlib import Path

from mmb._names import first_few, nearest
from mmb.cli.table_head import is_table
from mmb.cli.usage import UsageError


def check_files(options: argparse.Namespace) -> None:
    """Refuse recipes and tables that do not exist, and folders without a run; the error names one nearby."""
    if getattr(options, "recipe", None):
        options.recipe = str(_shipped(Path(options.recipe)))
    if hasattr(options, "recipes"):
        options.recipes = _shipped(options.recipes)
    if getattr(options, "recipe", None) and not Path(options.recipe).exists():
        raise UsageError(f"there is no recipe {options.recipe}")
    for word in getattr(options, "overrides", []):
        key, _, value = word.partition("=")
        key = key.removeprefix("data.")
        if key in ("path", "valid_path", "test_path") and is_table(Path(value)) and not Path(value).exists():
            raise UsageError(_no_such_file(f"data.{key}", Path(value)))
    new_rows = getattr(options, "input", None)
    if new_rows is not None and not Path(new_rows).exists():
        raise UsageError(_no_such_file("--input", Path(new_rows)))
    given = getattr(options, "run", [])
    for path in given if isinstance(given, list) else [given]:
        ensemble = isinstance(given, list) and (path / "ensemble.json").exists()
        if not (path / "recipe.yaml").exists() and not ensemble:
            raise UsageError(_no_run(path))


def _shipped(path: Path) -> Path:
    """A path, or that of a recipe that was installed with the package, if there is one of that name."""
    installed = Path(sysconfig.get_path("data"), "share", "mmb", path)
    return installed if not path.exists() and installed.exists() else path


def _no_run(path: Path) -> str:
    if path.is_file():
        return f"{path} is a file: expected the folder of a run"
    inside = _runs_in(path)
    if inside:
        return f"there is no run in {path} itself; inside it are {first_few(inside)}"
    near = _runs_in(Path("runs"))
    hint = nearest(str(path), near) if near else ": it has no recipe.yaml"
    return f"there is no run in {path}{hint}"


def _runs_in(path: Path) -> list[str]:
    """The first two hundred runs in a folder, without their phases."""
    files = (file.parent for file in path.glob("**/recipe.yaml"))
    return sorted(str(run) for run in files if not {"branches", "pretrain"} & {*run.parts})[:200]


def _no_such_file(key: str, path: Path) -> str:
    """A message about a file that is not there; it names one beside it with nearly the same name."""
    message = f"{key}: there is no file {path} (from {Path.cwd()})"
    if path.is_symlink():
        return f"{message}: it is a link to {path.readlink()}, where there is none"
    try:
        beside = {file.name.lower(): file.name for file in path.parent.iterdir()}
    except OSError:
        return message
    near = difflib.get_close_matches(path.name.lower(), beside, 1, 0.7)
    return f"{message}; did you mean {path.with_name(beside[near[0]])}?" if near else message
