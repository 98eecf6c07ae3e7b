"""A run is a folder: the recipe, the log, the checkpoints, the result."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from mmb._atomic_files import sync, write_new, write_whole
from mmb._checksums import check_signed, is_no_damage, signed, with_checksum, without_checksum
from mmb._extras import require
from mmb._import_paths import is_import_path
from mmb.data import MissingDataError
from mmb.training.recipes.nested import Fragment, told_apart
from mmb.training.recipes.reading import read_recipe
from mmb.training.recipes.recipe import Recipe, RecipeError
from mmb.training.recipes.renamed import translate
from mmb.training.recipes.resolution import resolve, to_plain
from mmb.training.runs.own_versions import as_trained, warn_of_other_versions

_RECIPE, _LOCK = "recipe.yaml", ".lock"
_RESULT = (  # keys of result.json
    *("method", "data", "seed", "steps", "best_step", "selected_by"),
    *("max_fpr", "seconds", "valid", "tasks"),
)
_UNSTARTED = {_RECIPE, _LOCK, "metrics.jsonl", "thresholds.jsonl", "tensorboard"}  # before any checkpoint
_PHASES = {"pretrain", "branches"}


class RunError(Exception):
    """A run cannot be used for this; the message says what to do about it."""


@dataclass(eq=False)
class Run:
    """The folder of a run.

    Attributes:
        path: The folder.
        recipe: What defines the run.
    """

    path: Path
    recipe: Recipe

    @classmethod
    def create(cls, path: Path | str, recipe: Recipe) -> Self:
        """Make the folder of a new run; RunError if there is a run in it already."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        sync(path.parent)
        text = require("yaml", extra="training").safe_dump(to_plain(recipe), sort_keys=False)
        try:
            write_new(path / _RECIPE, signed(text))
        except FileExistsError as error:
            raise RunError(
                f"there is a run in {path} already: continue it with `{command('resume', path)}`, or choose "
                "another folder with --output"
            ) from error
        return cls(path, recipe)

    @classmethod
    def find(cls, path: Path, recipe: Recipe) -> Self:
        """Open the folder of the run of this recipe, or make it; RunError if it has another recipe."""
        if not (path / _RECIPE).exists():
            return cls.create(path, recipe)
        run = cls.open(path)
        if run.recipe != recipe:
            what = told_apart(to_plain(run.recipe), to_plain(recipe))
            raise RunError(
                f"{path} has a run of another recipe, which differs in {what}: choose another folder with "
                "--output, or move it away"
            )
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open the folder of an existing run; RunError if it has no run or an unusable recipe."""
        path = Path(path)
        try:
            run = cls(path, resolve(translate(read_run_recipe(path))))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunError(f"there is no run in {path}: it has no {_RECIPE}") from error
        except RecipeError as error:
            raise RunError(
                f"the recipe of the run in {path} cannot be used: {error}{as_trained(path)}; correct "
                f"{path / _RECIPE}, or restore it"
            ) from error
        warn_of_other_versions(path, run.recipe)
        return run

    def discard_unstarted(self) -> None:
        """Remove the folder of a run that failed before its first checkpoint, or that of a phase of it.

        Any other folder stays, and one in which another process is training.
        """
        if not self._names() <= {*_UNSTARTED, *_PHASES}:
            return
        with suppress(RunError):
            with self.locked():
                for path in (self.path / "pretrain", *(self.path / "branches").glob("*")):
                    if (path / _RECIPE).exists():
                        Run(path, self.recipe).discard_unstarted()
                with suppress(OSError):  # some have begun, or there are none
                    (self.path / "branches").rmdir()
                if not self._names() <= _UNSTARTED:
                    return
                for path in self.path.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif path.name != _LOCK:
                        path.unlink()
            with suppress(OSError):  # another process uses the folder by now
                (self.path / _LOCK).unlink()  # after it is closed: Windows does not remove open files
                self.path.rmdir()

    def _names(self) -> set[str]:
        return {path.name for path in self.path.iterdir()}

    def pretraining(self) -> Run:
        """The run of the first phase, in a folder of this one."""
        path = self.path / "pretrain"
        if (path / _RECIPE).exists():
            return Run.open(path)
        assert self.recipe.pretrain is not None
        return Run.create(path, self.recipe.pretrain)

    def start(self) -> Run:
        """The run whose selected weights branches start from."""
        return self.pretraining() if self.recipe.init_from is None else Run.open(self.recipe.init_from)

    def branch(self, name: str, start: Run, more: float = 0.0) -> Run:
        """The run of a branch, in a folder of this one.

        Args:
            name: Its name in the recipe.
            start: The run it begins at or, if it is fresh, is measured by.
            more: By what share of its length it is trained longer.

        Returns:
            The run, made or found again.

        Raises:
            RunError: If its folder has a run of another recipe.
        """
        return self._follow(self.path / "branches" / name, self.recipe.branches[name], start, 1 + more)

    def longer(self, branch: Run, length: float) -> Run:
        """The run that continues a finished branch of this one, for `length` times as long, in its folder."""
        return self._follow(branch.path / "longer", branch.recipe, branch, length)

    def _follow(self, path: Path, recipe: Recipe, start: Run, length: float) -> Run:
        """The run of a recipe from the selected weights of another run, `length` times as long."""
        training = recipe.training.times(length)
        recipe = replace(recipe, init_from=str(start.path.resolve()), training=training)
        if not (path / _RECIPE).exists():
            return Run.create(path, recipe)
        known = Run.open(path).recipe  # the start may have been moved since
        if replace(known, init_from=recipe.init_from) != recipe:
            raise RunError(f"{path} has a run of another recipe than that branch of {self.path}")
        return Run(path, recipe)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def finished(self) -> bool:
        """Whether the run has its result; OSError if that cannot be seen, for lack of permission."""
        with suppress(FileNotFoundError, NotADirectoryError):
            (self.path / "result.json").stat()
            return True
        return False

    def result(self) -> dict[str, Any]:
        """The content of `result.json`; RunError if the run is not finished, or the file is damaged."""
        return self.outcome("result.json", _RESULT)

    def outcome(self, name: str, keys: Iterable[str]) -> dict[str, Any]:
        """The content of a JSON file of a finished run; RunError if it lacks one of these keys.

        OSError if it cannot be read, for example without permission, which is not damage.
        """
        if not self.finished:
            raise RunError(
                f"the run in {self.path} is not finished: wait for the process that trains it or, if there "
                f"is none, finish it with `{command('resume', self.path)}`"
            )
        try:
            content = read_outcome(self.path / name)
            if missing := [key for key in keys if key not in content]:
                raise ValueError(f"it lacks {', '.join(missing)}")
        except (OSError, ValueError) as error:
            if is_no_damage(error):
                raise
            raise self.damaged(name, error) from error
        return content

    def damaged(self, name: str, problem: Exception) -> RunError:
        """The error about a file that was written when the run was finished."""
        return RunError(
            f"{self.path / name} is damaged ({problem}): move {self.path / 'result.json'} elsewhere, and "
            f"`{command('resume', self.path)}` makes it again from the checkpoints"
        )

    def write_outcome(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file that `outcome` reads, with a checksum."""
        write_whole(self.path / name, json.dumps(with_checksum(content), indent=1))

    def best_checkpoint(self) -> Path:
        """The checkpoint of the selected weights; RunError if the run is not finished."""
        return self.checkpoints / f"{self.result()['best_step']:08d}"

    @contextmanager
    def own_data(self) -> Iterator[None]:
        """Around the loading of the run's data: say what to do if its file has another place now."""
        try:
            yield
        except MissingDataError as error:
            path = Path(str(self.recipe.data.get("path", "/")))
            if path.exists():
                raise
            raise MissingDataError(
                f"the file {path}, data of the run in {self.path},",
                [path.absolute()],
                f"bring it back, or change data.path in {self.path / _RECIPE} (and remove its first line, a "
                "checksum)",
            ) from error

    @contextmanager
    def locked(self, main: bool = True) -> Iterator[None]:
        """Keep other processes from training in this folder; the lock of a process that dies is released.

        Of processes that train together, the main one keeps it. RunError if another process is training.
        """
        try:
            lock = FileLock(self.path / _LOCK).acquire(blocking=False) if main else nullcontext()
        except Timeout as error:
            raise RunError(f"another process is training in {self.path}") from error
        with lock:
            yield


def data_title(data: Mapping[str, Any]) -> str:
    """The data of a recipe in names of folders: a user's own table is called like its file."""
    name, path = str(data["name"]), str(data.get("path") or "")
    return name if is_import_path(name) else Path(path).name.partition(".")[0] or name


def folder_name(name: str) -> str:
    """A name, also an import path, as part of the name of a folder on any system."""
    return name.replace(":", ".")


def command(*words: object) -> str:
    """The command `mmb WORDS` as a message shows it, with quotes where the shell needs them."""
    return shlex.join(["mmb", *map(str, words)])


def read_run_recipe(path: Path) -> Fragment:
    """The recipe in the folder of a run, or of its log, not resolved; RecipeError if it is damaged."""
    file = path / _RECIPE
    try:
        check_signed(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecipeError(f"{file}: {error}; if the change is intended, remove the first line") from error
    return read_recipe(file)


def read_outcome(path: Path) -> dict[str, Any]:
    """The content of a file of `write_outcome`; ValueError if it is damaged."""
    return without_checksum(json.loads(path.read_text(encoding="utf-8")))
