"""Versions of a user's own parts: kept with a run, and compared when it is opened."""

import warnings
from pathlib import Path

from mmb._checksums import read_line
from mmb._import_paths import is_import_path, version_at
from mmb.training.recipes.recipe import Recipe

KEY = "versions"
"""Of the first line of a log."""


def own_versions(recipe: Recipe) -> dict[str, str | None]:
    """The version of each part of a recipe that is named by its import path; see `version_at`."""
    parts = [part["method"] for part in recipe.objective.get("parts", {}).values()]
    named = (recipe.method, *parts, recipe.data["name"], recipe.model["name"], recipe.sampler.kind)
    return {path: version_at(path) for path in named if is_import_path(path)}


def kept_versions(folder: Path) -> dict[str, str | None]:
    """Those that the run in a folder was trained with; none if they are not known."""
    try:
        with (folder / "metrics.jsonl").open(encoding="utf-8", errors="replace") as file:
            first = read_line(file.readline().rstrip("\n"))
    except OSError:
        first = None
    found: dict[str, str | None] = {} if first is None else first.get(KEY, {})
    return {path: version for path, version in found.items() if is_import_path(path)}


def warn_of_other_versions(folder: Path, recipe: Recipe) -> None:
    """Warn of parts that have another version than when the run in a folder was started."""
    now = own_versions(recipe)
    before = kept_versions(folder) if now else {}
    changed = [path for path, version in now.items() if before.get(path, version) != version]
    if changed:
        listed = "; ".join(f"{path} is {now[path]}, and was {before[path]}" for path in changed)
        warnings.warn(
            f"{folder}: versions have changed since the run was started: {listed}. Results may differ",
            stacklevel=2,
        )


def as_trained(folder: Path) -> str:
    """The end of a message about parts that cannot be used: the versions that the run was trained with."""
    known = [f"{path} {version}" for path, version in kept_versions(folder).items()]
    return f" (the run was started with {', '.join(known)})" if known else ""
