"""Commands that train one run: `train`, from a recipe or a data set and a method, and `resume`."""

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path

from mmb.cli.chosen_recipe import chosen_fragment, suited_fragment
from mmb.cli.console import Console
from mmb.cli.watching import ProgressObserver
from mmb.report.content import run_verdict
from mmb.training import Recipe, Run, RunError, resolve
from mmb.training.loop.loop import train_together
from mmb.training.loop.setup import find_device
from mmb.training.processes.group import Ranks, joined
from mmb.training.runs.run import command, data_title, folder_name
from mmb.training.runs.tables import MOST_ROWS, result_table


def run_train(options: argparse.Namespace, console: Console) -> None:
    """Train."""
    device = resolve({"method": "soup", **chosen_fragment(options)}).training.device
    with joined(find_device(device)) as ranks:
        # processes that divide their data load it together
        recipe = resolve(suited_fragment(options, console, quiet=not ranks.is_main))
        made = make_run(options.output, recipe, ranks)
        if ranks.is_main:
            console.say(f"training in {made.path}")
        try:
            train_one(made, console, ranks, options.jobs)
        except Exception:
            if ranks.is_main:
                made.discard_unstarted()  # so that the corrected command can be run again
            raise


def make_run(output: Path | None, recipe: Recipe, ranks: Ranks) -> Run:
    """Make the folder of a run in the main process; the others find it there."""
    path = ranks.from_main(make_folder(output, recipe) if ranks.is_main else Path())
    if not path.exists():
        raise RunError(
            f"process {ranks.rank} does not see the folder {path.resolve()} of the run: all processes need "
            "the same one, on a file system that their machines share"
        )
    return Run(path, recipe)


def make_folder(output: Path | None, recipe: Recipe) -> Path:
    """Make the folder of a run, by default a new one below runs/.

    When torchrun starts all processes again after a failure, it is the folder that they made before.
    """
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
        existing = [output] if output else list(takewhile(Path.exists, default_folders(recipe)))
        if existing and (existing[-1] / "recipe.yaml").exists() and Run.open(existing[-1]).recipe == recipe:
            return existing[-1]
    if output:
        return Run.create(output, recipe).path
    for path in default_folders(recipe):
        if not path.exists():
            with suppress(RunError):  # another process has just taken this name
                return Run.create(path, recipe).path
    raise AssertionError("there are always more names")


def default_folders(recipe: Recipe) -> Iterator[Path]:
    """Folders for runs of a recipe, in the order in which they are taken."""
    path = default_folder(recipe)
    yield path
    yield from (path.with_name(f"{path.name}-{number}") for number in count(2))


def default_folder(recipe: Recipe, kind: str = "") -> Path:
    """Where what is trained by a recipe is by default; `kind` says what it is, if it is more than a run."""
    title = f"{data_title(recipe.data)}-{recipe.method}-{recipe.seed}"
    return Path("runs") / folder_name(f"{kind}-{title}" if kind else title)


def train_one(run: Run, console: Console, ranks: Ranks, jobs: int, judged: bool = True) -> None:
    """Train a run to its end; the main process shows progress, the result and, if judged, a verdict."""
    if not ranks.is_main:
        warnings.simplefilter("ignore", UserWarning)  # the main process says the same
        train_together(run, ranks)
        return
    try:
        with console.progress() as progress:
            result = train_together(run, ranks, ProgressObserver(progress, console), jobs=jobs)
    except (OSError, KeyboardInterrupt) as error:
        if run.checkpoints.exists() or isinstance(error, KeyboardInterrupt):
            error.add_note(f"continue with `{command('resume', run.path)}`")
        raise
    console.show(result_table(result, MOST_ROWS, str(run.path / "table.txt")))
    if judged and "test" in result and ranks.size == 1:
        show_judgment(console, lambda: run_verdict(run))
    console.say(f"the run is in {run.path}; next: {', '.join(f'`{text}`' for text in next_steps(run))}")
    console.result({"run": str(run.path), **result})


def show_judgment(console: Console, judge: Callable[[], str]) -> None:
    """Show what a report would say about runs, unless the output is JSON or this cannot be said."""
    if console.json:
        return
    with suppress(OSError, ValueError, RunError), warnings.catch_warnings():  # the runs are there in any case
        warnings.simplefilter("ignore")  # training has said the same
        console.show(judge())


def next_steps(run: Run, *folders: Path) -> list[str]:
    """Commands that a finished run is ready for, or the folders of a study that it belongs to."""
    reads_files = run.outcome("predictor.json", ["encoder"])["encoder"] is not None
    places = folders or (run.path,)
    use = command("predict", *places, "--input", "FILE", "--output", "FILE")
    return [command("report", *places), use if reads_files else command("export", *places)]


def run_resume(options: argparse.Namespace, console: Console) -> None:
    """Continue the run where its newest whole checkpoint is."""
    opened = Run.open(options.run)
    with joined(find_device(opened.recipe.training.device)) as ranks:
        if opened.finished and ranks.is_main:
            console.say(f"the run in {opened.path} is finished already")
        with opened.own_data():
            train_one(opened, console, ranks, options.jobs, judged=not opened.finished)
