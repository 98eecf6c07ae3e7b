"""The paper's tables on a data set: recipes are run, their logs kept, and tables made from the logs alone.

A study is a folder with a recipe per method and `study.yaml`, which says what it is about. Its runs go to one
folder, with checkpoints; their logs (recipe, `metrics.jsonl`, `result.json`: small text) to another, which is
kept with the project. Everything shown is made from the latter, so that it can be made again and compared.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.training.compare import check_fair
from mmb.training.files import write_whole
from mmb.training.log import read_log
from mmb.training.presets import METHODS
from mmb.training.recipe import Recipe
from mmb.training.resolve import RecipeError, merge, read_recipe, resolve
from mmb.training.run import Run, RunError

_ABOUT = "study.yaml"
_LOGS = ("recipe.yaml", "metrics.jsonl", "result.json")
_MARK = "<!-- What follows is made from logs by `mmb reproduce`. -->\n"
_METRICS = {"auc": "AUC", "pauc": "pAUC", "ap": "AP"}


@dataclass(frozen=True)
class Study:
    """What is run, and what it is compared with.

    Attributes:
        name: Data set and table, such as `molpcba/table2`.
        title: Heading.
        metric: The metric it is about.
        recipes: Recipe file of each row, in the order of the table.
        titles: What rows are called, where that is not the title of their method.
        paper: What the paper reports for a row, as text.
        notes: What explains the differences.
    """

    name: str
    title: str
    metric: str
    recipes: Mapping[str, Path]
    titles: Mapping[str, str]
    paper: Mapping[str, str]
    notes: str

    @classmethod
    def read(cls, folder: Path, name: str) -> Study:
        """Read a study.

        Args:
            folder: Where studies are.
            name: Data set and table.

        Raises:
            RecipeError: If there is no such study, or it lacks something.
        """
        path = folder / name / _ABOUT
        if not path.exists():
            known = ", ".join(names(folder))
            raise RecipeError(f"there is no study {name} in {folder} (no {path}); there are: {known}")
        about = require("yaml", extra="training").safe_load(path.read_text(encoding="utf-8"))
        try:
            recipes = {row: path.parent / f"{row}.yaml" for row in about["rows"]}
            return cls(
                name,
                about["title"],
                about["metric"],
                recipes,
                about.get("titles", {}),
                {row: str(value) for row, value in about.get("paper", {}).items()},
                about["notes"].strip(),
            )
        except (KeyError, TypeError) as error:
            raise RecipeError(f"{path} lacks {error}") from error


def names(folder: Path) -> list[str]:
    """All studies in a folder."""
    return sorted(str(path.parent.relative_to(folder)) for path in folder.glob(f"*/*/{_ABOUT}"))


def plan(study: Study, seeds: int, folder: Path) -> list[Run]:
    """Make, or find again, the folders of all runs of a study.

    A first phase that rows share is trained once for each seed, in `start/seed-N`, and linked to from there.

    Args:
        study: The study.
        seeds: Seeds 0 to `seeds - 1` are used.
        folder: Folder of the runs of all studies.

    Returns:
        The runs, seed by seed.

    Raises:
        RecipeError: If a recipe is wrong; no folder is made then.
        RunError: If a folder has a run of another recipe, or rows are not comparable.
    """
    wanted = [
        (row, resolve(merge(read_recipe(path), {"seed": seed})))
        for seed in range(seeds)
        for row, path in study.recipes.items()
    ]
    check_fair([recipe for _, recipe in wanted])
    if len({str(recipe.pretrain) for _, recipe in wanted if recipe.seed == 0}) > 1:
        raise RunError(f"not a fair comparison: the rows of {study.name} have different first phases")
    runs = []
    for row, recipe in wanted:
        seed = f"seed-{recipe.seed}"
        run = _create(folder / study.name / row / seed, recipe)
        if recipe.pretrain is not None:
            start = folder / Path(study.name).parent / "start" / seed
            _create(start, recipe.pretrain)
            link = run.path / "pretrain"
            if not link.exists():
                link.symlink_to(os.path.relpath(start, run.path))
        runs.append(run)
    return runs


def _create(path: Path, recipe: Recipe) -> Run:
    if not (path / "recipe.yaml").exists():
        return Run.create(path, recipe)
    run = Run.open(path)
    if run.recipe != recipe:
        raise RunError(f"{path} has a run of another recipe: remove it, or choose another folder")
    return run


def keep_logs(runs: Sequence[Run], folder: Path, results: Path) -> None:
    """Copy the logs of finished runs, and of their first phases, from `folder` to `results`."""
    for run in runs:
        for path in (run.path, (run.path / "pretrain").resolve()):
            if (path / "result.json").exists():
                kept = results / path.relative_to(folder.resolve() if path.is_absolute() else folder)
                kept.mkdir(parents=True, exist_ok=True)
                for name in _LOGS:
                    shutil.copyfile(path / name, kept / name)


def write_results(studies: Sequence[Study], results: Path) -> None:
    """Make tables, curves and their data anew from the logs in `results`."""
    for path, text in made_from_logs(studies, results).items():
        write_whole(path, text)
    for study in studies:
        plot(study, results, results / study.name / "curves.png")


def differences(studies: Sequence[Study], results: Path) -> list[Path]:
    """The files in `results` that differ from what the logs give."""
    made = made_from_logs(studies, results)
    return [p for p, text in made.items() if not p.exists() or p.read_text(encoding="utf-8") != text]


def made_from_logs(studies: Sequence[Study], results: Path) -> dict[Path, str]:
    """Every text file that is made from logs: data of the curves, and `README.md` of all results.

    The latter keeps what stands before the mark in it.
    """
    page = results / "README.md"
    before = page.read_text(encoding="utf-8").partition(_MARK)[0] if page.exists() else ""
    made = {results / study.name / "curves.csv": curves_csv(study, results) for study in studies}
    return {**made, page: before + "\n".join([_MARK, *(document(study, results) for study in studies)])}


def with_logs(folder: Path, results: Path) -> list[Study]:
    """All studies in a folder that have logs in `results`."""
    return [Study.read(folder, name) for name in names(folder) if (results / name).exists()]


def document(study: Study, results: Path) -> str:
    """What there is to say of a study: its table, how it was made, what explains it."""
    groups = dict(logged(study, results))
    columns = ["method", *(f"test {name}" for name in _METRICS.values()), f"valid {_METRICS[study.metric]}"]
    columns += ["seconds", *(["paper"] if study.paper else [])]
    lines = ["", f"## {study.title}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row, found in groups.items():
        cells = [_mean_std([one["test"][metric] for one in found]) for metric in _METRICS]
        cells.append(_mean_std([one["valid"][study.metric] for one in found]))
        cells.append(f"{statistics.fmean(one['seconds_in_all'] for one in found):.0f}")
        cells += [study.paper.get(row, "")] if study.paper else []
        lines.append(f"| {' | '.join([_title(study, row, found), *cells])} |")
    every = [one for found in groups.values() for one in found]
    seeds = sorted({len(found) for found in groups.values()})
    commits = sorted({one["versions"].get("commit") or "unknown" for one in every})
    lines += [
        "",
        f"Mean (standard deviation) over {' or '.join(map(str, seeds))} seeds of the mean over tasks. pAUC: "
        f"FPR <= {every[0]['max_fpr']:g}, McClish-standardised. Weights selected by validation "
        f"{_METRICS[study.metric]}; seconds: of training, first phase, evaluations and checkpoints included. "
        f"Recipe, log and result of every run: [`{study.name}/`]({study.name}); commit {', '.join(commits)}, "
        f"torch {every[0]['versions']['torch']}, {every[0]['device_name']}.",
        "",
        study.notes,
        "",
        f"![Validation curves against epochs and seconds]({study.name}/curves.png)",
        "",
    ]
    return "\n".join(lines)


def logged(study: Study, results: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The results of each row that has any, seed by seed, with the time of the first phase added in."""
    for row in study.recipes:
        paths = _paths(study, row, results)
        if paths:
            found = []
            for path in paths:
                start = _start(path, study, results)
                seconds = Run.open(start).result()["seconds"] if start is not None else 0.0
                result = Run.open(path).result()
                found.append({**result, "seconds_in_all": result["seconds"] + seconds})
            yield row, found


def curves_csv(study: Study, results: Path) -> str:
    """Validation metrics of every run over epochs and seconds, first phase included."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "seed", "epoch", "seconds", *_METRICS])
    for row in study.recipes:
        for path in _paths(study, row, results):
            for point in _curve(path, _start(path, study, results)):
                writer.writerow([row, path.name.removeprefix("seed-"), *(f"{value:.6g}" for value in point)])
    return text.getvalue()


def plot(study: Study, results: Path, path: Path) -> None:
    """Draw the validation metric of every row against epochs and against seconds: mean over seeds."""
    require("matplotlib", extra="training").use("Agg")
    plt = require("matplotlib.pyplot", extra="training")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True, sharey=True)
    place = 2 + list(_METRICS).index(study.metric)
    for index, (row, found) in enumerate(logged(study, results)):
        curves = [_curve(p, _start(p, study, results)) for p in _paths(study, row, results)]
        length = min(map(len, curves))
        for axis, panel in enumerate(axes):
            means = [
                [statistics.fmean(curve[k][column] for curve in curves) for k in range(length)]
                for column in (axis, place)
            ]
            panel.plot(*means, color=f"C{index % 10}", label=_title(study, row, found), linewidth=1.2)
    axes[0].set_ylabel(f"validation {_METRICS[study.metric]}")
    for panel, label in zip(axes, ("epochs", "seconds"), strict=True):
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    axes[1].legend(fontsize="small")
    figure.suptitle(study.title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _curve(path: Path, start: Path | None) -> list[list[float]]:
    """Epoch, seconds and metrics at every evaluation of a run, after those of its first phase."""
    points: list[list[float]] = []
    epochs = seconds = 0.0
    for folder in [start, path] if start is not None else [path]:
        records = read_log(folder)
        per_epoch = records[0]["steps_per_epoch"]
        offset = (epochs, seconds)
        for record in records:
            if record["kind"] == "valid":
                epochs, seconds = offset[0] + record["step"] / per_epoch, offset[1] + record["seconds"]
                points.append([epochs, seconds, *(record[metric] for metric in _METRICS)])
    return points


def _paths(study: Study, row: str, results: Path) -> list[Path]:
    """Folders of the finished runs of a row, by seed."""
    found = (results / study.name / row).glob("seed-*/result.json")
    return sorted((path.parent for path in found), key=lambda path: int(path.name.removeprefix("seed-")))


def _start(path: Path, study: Study, results: Path) -> Path | None:
    """The first phase of a run, if it has one."""
    if Run.open(path).recipe.pretrain is None:
        return None
    return results / Path(study.name).parent / "start" / path.name


def _title(study: Study, row: str, found: list[dict[str, Any]]) -> str:
    return study.titles.get(row, METHODS[found[0]["method"]].title)


def _mean_std(values: list[float]) -> str:
    spread = f" ({statistics.stdev(values):.4f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"
