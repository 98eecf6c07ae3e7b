"""Tables and data of curves, made from logs alone, so that they can be made again and compared."""

import csv
import io
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmb._atomic_files import write_whole
from mmb.metrics import METRICS
from mmb.metrics.titles import definition, shown_metrics, value_text
from mmb.training.recipes.nested import flatten
from mmb.training.studies.reproduce.figures import plot
from mmb.training.studies.reproduce.logs import logged_runs
from mmb.training.studies.reproduce.plan import choice_names, chosen, not_as_chosen, tried
from mmb.training.studies.reproduce.study import TableStudy

_MARK = "<!-- What follows is made from logs by `mmb reproduce`. -->\n"


def write_results(studies: Sequence[TableStudy], results: Path) -> None:
    """Make tables, curves and their data again from the logs in `results`."""
    for path, text in made_from_logs(studies, results).items():
        write_whole(path, text)
    for study in studies:
        plot(study, logged_runs(study, results), results / study.name / "curves.png")


def differences(studies: Sequence[TableStudy], results: Path) -> list[Path]:
    """The files in `results` that differ from what the logs give.

    Runs of a table with other settings than the best choice in the logs count as different, too.
    """
    made = made_from_logs(studies, results)
    found = [p for p, text in made.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for study in studies:
        for row, runs in logged_runs(study, results).items():
            found += not_as_chosen(study, row, runs, results)
    return found


def made_from_logs(studies: Sequence[TableStudy], results: Path) -> dict[Path, str]:
    """Every text file that is made from logs: data of the curves, and `README.md` of all results.

    The latter keeps what its author wrote before the mark in it.
    """
    page = results / "README.md"
    before = page.read_text(encoding="utf-8").partition(_MARK)[0] if page.exists() else ""
    made = {
        results / study.name / ("steps.csv" if study.panels else "curves.csv"): curves_csv(study, results)
        for study in studies
    }
    return {**made, page: before + "\n".join([_MARK, *(document(study, results) for study in studies)])}


def document(study: TableStudy, results: Path) -> str:
    """A study in Markdown: its table, how it was made, and its notes."""
    groups = logged_runs(study, results)
    shown = shown_metrics(study.metric)
    title = METRICS[study.metric].title
    columns = ["method", *(f"test {METRICS[metric].title}" for metric in shown), f"valid {title}"]
    columns += ["seconds", *(["paper"] if study.paper else [])]
    lines = ["", f"## {study.title}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row, runs in groups.items():
        found = [run.result for run in runs]
        cells = [_mean_std([one["test"][metric] for one in found]) for metric in shown]
        cells.append(_mean_std([one["valid"][study.metric] for one in found]))
        cells.append(f"{statistics.fmean(run.seconds for run in runs):.0f}")
        cells += [str(study.paper.get(row, ""))] if study.paper else []
        lines.append(f"| {' | '.join([study.title_of(row, found[0]['method']), *cells])} |")
    every = [run.result for runs in groups.values() for run in runs]
    seeds = sorted({len(runs) for runs in groups.values()})
    values = "Mean over tasks, one seed"
    if max(seeds) > 1:
        values = f"Mean (standard deviation) over {' or '.join(map(str, seeds))} seeds of the mean over tasks"
    commits = sorted({one["versions"].get("commit") or "unknown" for one in every})
    at_once = max(one.get("at_once", 1) for one in every)
    shared = f", with up to {at_once} runs sharing the device" if at_once > 1 else ""
    about = (
        f"{values}. {definition(every[0]['max_fpr'], study.metric)}. Weights are selected by validation "
        f"{title}. Seconds include the first phase, evaluations and checkpoints{shared}. "
        f"Recipe, log and result of every run: [`{study.name}/`]({study.name}); commit {', '.join(commits)}, "
        f"torch {every[0]['versions']['torch']}, {every[0]['device_name']}."
    )
    lines += ["", textwrap.fill(about, 116, break_long_words=False, break_on_hyphens=False), ""]
    lines += [choices_table(study, results), ""] if study.choices else []
    drawn = "Validation metric and training loss" if study.panels else "Validation curves"
    against = "steps and seconds" if study.panels else "epochs and seconds"
    lines += [study.notes.strip(), "", f"![{drawn} against {against}]({study.name}/curves.png)", ""]
    return "\n".join(lines)


def choices_table(study: TableStudy, results: Path) -> str:
    """The settings tried for each row, in Markdown: a line per row, with the chosen setting in bold."""
    count = len(next(iter(study.choices.values())))
    lines = [f"| method | {' | '.join(f'choice {k}' for k in range(count))} |", "|---" * (count + 1) + "|"]
    for row, changes in study.choices.items():
        if (results / choice_names(study, row)[0]).exists():
            values = tried(study, row, results)
            best = chosen(study, row, results)
            cells = [
                f"{_describe(change)}: {'failed' if value is None else value_text(value)}"
                for change, value in zip(changes, values, strict=True)
            ]
            cells[best] = f"**{cells[best]}**"
            title = study.title_of(row, study.choice_recipes[row][best].method)
            lines.append(f"| {title} | {' | '.join(cells)} |")
    apart = f", {_describe(study.choosing)}" if study.choosing else ""
    lines += [
        "",
        f"Validation {METRICS[study.metric].title} of these settings, with seed {study.choose_seed}{apart} "
        "and without test rows. The table above uses those in bold.",
    ]
    return "\n".join(lines)


def curves_csv(study: TableStudy, results: Path) -> str:
    """The data of a study's figure.

    Validation metrics of every run over epochs and seconds, first phase included; of a study with panels,
    loss and metrics over steps and seconds, first phase not included. With the metric on training rows, if
    that was logged.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [*(["step", "seconds", "loss"] if study.panels else ["epoch", "seconds"])]
    columns += shown_metrics(study.metric)
    groups, training = logged_runs(study, results), f"train_{study.metric}"
    columns += [training] if any(run.has(training) for runs in groups.values() for run in runs) else []
    writer.writerow(["row", "seed", *columns])
    for row, runs in groups.items():
        for run in runs:
            for point in run.by_step if study.panels else run.curve:
                cells = (f"{point[key]:.6g}" if point.get(key) is not None else "" for key in columns)
                writer.writerow([row, run.seed, *cells])
    return text.getvalue()


def _describe(change: Mapping[str, Any]) -> str:
    """A change to a recipe in one line."""
    return ", ".join(f"{key}={value}" for key, value in flatten(change).items()) or "as it stands"


def _mean_std(values: list[float]) -> str:
    spread = f" ({value_text(statistics.stdev(values))})" if len(values) > 1 else ""
    return f"{value_text(statistics.fmean(values))}{spread}"
