"""Which runs a page is about, what they are called, and which of them repeat each other."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmb.training import METHODS, Run, RunError
from mmb.training.recipes.nested import flatten
from mmb.training.recipes.presets import method_of
from mmb.training.recipes.resolution import to_plain

# keys that may differ between runs of one method, also in their phases
_OF_ONE_RUN = re.compile(r"((pretrain|branches\.[^.]+)\.)?(seed|note|init_from)")


def find_runs(paths: Sequence[Path], opened: dict[Path, Run] | None = None) -> list[Run]:
    """Open runs, and those in the folder of a comparison, baselines before the paper's methods.

    Those among the `opened` ones are not opened again, and new ones are put there.
    """
    known = {} if opened is None else opened
    order = {method: place for place, method in enumerate(METHODS)}
    found: dict[Path, Run] = {}
    for path in paths:
        inside = {*_folders_with_recipes(path)}
        # a run in the folder of another is a phase of it
        here = [_open(one, known) for one in inside if inside.isdisjoint(one.parents)]
        if not here:
            raise RunError(f"no run in {path}, nor in its folders; give the folder of a run")
        here.sort(key=lambda run: (order.get(run.recipe.method, len(order)), run.path))
        found |= {run.path.resolve(): run for run in here}
    return list(found.values())


def phases_of(run: Run, opened: dict[Path, Run]) -> list[Run]:
    """The first phase and the branches of a run, those that have begun; `opened` as for `find_runs`."""
    return [_open(path, opened) for path in sorted(_folders_with_recipes(run.path)) if path != run.path]


def _open(path: Path, opened: dict[Path, Run]) -> Run:
    if path not in opened:
        opened[path] = Run.open(path)
    return opened[path]


def _folders_with_recipes(path: Path) -> Iterator[Path]:
    """The folders in a folder, and itself, that have a recipe; OSError if one cannot be read."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    return (Path(folder) for folder, _, files in os.walk(path, onerror=refuse) if "recipe.yaml" in files)


def methods_of(runs: Sequence[Run]) -> tuple[list[str], list[int]]:
    """Names of the methods (groups of runs that differ only in their seeds), and the method of each run.

    A name is the title and, if another method has the same title, the keys of the recipe that differ.
    """
    kinds: list[dict[str, Any]] = []
    member = []
    for run in runs:
        keys = {k: v for k, v in flatten(to_plain(run.recipe)).items() if not _OF_ONE_RUN.fullmatch(k)}
        if keys not in kinds:
            kinds.append(keys)
        member.append(kinds.index(keys))
    names = [_name(kind, kinds) for kind in kinds]
    names = [f"{n} #{names[:i].count(n) + 1}" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return names, member


def run_names(runs: Sequence[Run], methods: Sequence[str], member: Sequence[int]) -> list[str]:
    """A name for each run: that of its method and its seed, with the folder if that is not unique."""
    names = [f"{methods[k]}, seed {run.recipe.seed}" for run, k in zip(runs, member, strict=True)]
    return [
        f"{name} ({run.path})" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def _name(kind: dict[str, Any], kinds: list[dict[str, Any]]) -> str:
    title = method_of(kind["method"]).title
    same_title = [other for other in kinds if other["method"] == kind["method"]]
    differing = [key for key in kind if any(other.get(key) != kind[key] for other in same_title)]
    shown = [f"{key}={kind[key]}" for key in differing[:3]]
    if len(differing) > len(shown):
        shown.append("...")
    return f"{title} ({', '.join(shown)})" if shown else title
