"""Tables and data of curves, made from logs alone, so that they can be made again and compared."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

from mmb._atomic_files import write_whole
from mmb.training.studies.reproduce.choices import choices_table, not_as_chosen
from mmb.training.studies.reproduce.figures import plot
from mmb.training.studies.reproduce.logs import by_step, curve, logged, paths_of, start_of
from mmb.training.studies.reproduce.study import METRICS, Study

_MARK = "<!-- What follows is made from logs by `mmb reproduce`. -->\n"


def write_results(studies: Sequence[Study], results: Path) -> None:
    """Make tables, curves and their data anew from the logs in `results`."""
    for path, text in made_from_logs(studies, results).items():
        write_whole(path, text)
    for study in studies:
        plot(study, results, results / study.name / "curves.png")


def differences(studies: Sequence[Study], results: Path) -> list[Path]:
    """The files in `results` that differ from what the logs give.

    Runs of a table with other settings than the best choice in the logs count as different, too.
    """
    made = made_from_logs(studies, results)
    found = [p for p, text in made.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for study in studies:
        for row in study.recipes:
            found += not_as_chosen(study, row, paths_of(study, row, results), results)
    return found


def made_from_logs(studies: Sequence[Study], results: Path) -> dict[Path, str]:
    """Every text file that is made from logs: data of the curves, and `README.md` of all results.

    The latter keeps what stands before the mark in it.
    """
    page = results / "README.md"
    before = page.read_text(encoding="utf-8").partition(_MARK)[0] if page.exists() else ""
    made = {results / study.name / _data_name(study): curves_csv(study, results) for study in studies}
    return {**made, page: before + "\n".join([_MARK, *(document(study, results) for study in studies)])}


def document(study: Study, results: Path) -> str:
    """What there is to say of a study: its table, how it was made, what explains it."""
    groups = dict(logged(study, results))
    columns = ["method", *(f"test {name}" for name in METRICS.values()), f"valid {METRICS[study.metric]}"]
    columns += ["seconds", *(["paper"] if study.paper else [])]
    lines = ["", f"## {study.title}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row, found in groups.items():
        cells = [_mean_std([one["test"][metric] for one in found]) for metric in METRICS]
        cells.append(_mean_std([one["valid"][study.metric] for one in found]))
        cells.append(f"{statistics.fmean(one['seconds_in_all'] for one in found):.0f}")
        cells += [study.paper.get(row, "")] if study.paper else []
        lines.append(f"| {' | '.join([study.title_of(row, found[0]['method']), *cells])} |")
    every = [one for found in groups.values() for one in found]
    seeds = sorted({len(found) for found in groups.values()})
    values = "Mean over tasks, one seed"
    if max(seeds) > 1:
        values = f"Mean (standard deviation) over {' or '.join(map(str, seeds))} seeds of the mean over tasks"
    commits = sorted({one["versions"].get("commit") or "unknown" for one in every})
    at_once = max(one.get("at_once", 1) for one in every)
    shared = f", up to {at_once} runs sharing the device" if at_once > 1 else ""
    lines += [
        "",
        f"{values}. pAUC: "
        f"FPR <= {every[0]['max_fpr']:g}, McClish-standardised. Weights selected by validation "
        f"{METRICS[study.metric]}; seconds: of training, first phase, evaluations and checkpoints included"
        f"{shared}. "
        f"Recipe, log and result of every run: [`{study.name}/`]({study.name}); commit {', '.join(commits)}, "
        f"torch {every[0]['versions']['torch']}, {every[0]['device_name']}.",
        "",
    ]
    lines += [choices_table(study, results), ""] if study.choices else []
    shown = "Validation metric and training loss" if study.panels else "Validation curves"
    against = "steps and seconds" if study.panels else "epochs and seconds"
    lines += [study.notes, "", f"![{shown} against {against}]({study.name}/curves.png)", ""]
    return "\n".join(lines)


def curves_csv(study: Study, results: Path) -> str:
    """The data of a study's figure.

    Validation metrics of every run over epochs and seconds, first phase included; of a study with panels,
    loss and metrics over steps and seconds, first phase not included.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    by_steps = ["step", "seconds", "loss", *METRICS]
    writer.writerow(["row", "seed", *(by_steps if study.panels else ["epoch", "seconds", *METRICS])])
    for row in study.recipes:
        for path in paths_of(study, row, results):
            if study.panels:
                points = [[record.get(key) for key in by_steps] for record in by_step(path)]
            else:
                points = [[*point] for point in curve(path, start_of(path, study, results))]
            for point in points:
                cells = ("" if value is None else f"{value:.6g}" for value in point)
                writer.writerow([row, path.name.removeprefix("seed-"), *cells])
    return text.getvalue()


def _data_name(study: Study) -> str:
    return "steps.csv" if study.panels else "curves.csv"


def _mean_std(values: list[float]) -> str:
    spread = f" ({statistics.stdev(values):.4f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"
