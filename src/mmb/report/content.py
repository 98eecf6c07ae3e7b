"""Everything the page shows, as plain data."""

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import mmb
from mmb._extras import require
from mmb.auc import ThresholdReport
from mmb.metrics import METRICS, MetricName
from mmb.metrics.titles import shown_metrics
from mmb.report.answer import answer
from mmb.report.checks import check_run
from mmb.report.comparison import AREAS, compare_methods
from mmb.report.curves import log_curves, short, spaced
from mmb.report.decisions import reliability
from mmb.report.page_values import page_curves, rounded
from mmb.report.run_facts import RunFacts
from mmb.report.run_groups import methods_of, run_names
from mmb.report.selected_scores import SelectedScores, run_scores
from mmb.training import Run, RunError
from mmb.training.recipes.presets import method_of
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs.log import planned_steps
from mmb.training.runs.run import data_title
from mmb.training.runs.scoring import task_metrics
from mmb.training.runs.tables import unbranched_note


def page_content(runs: Sequence[Run], max_fpr: float | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The content of a page about some runs, plain JSON; see `write_report` for the arguments."""
    settings = runs[0].recipe.training
    select, max_fpr = settings.select, settings.max_fpr if max_fpr is None else max_fpr
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], got {max_fpr}")
    scores: list[SelectedScores] = []
    finished = [run.finished for run in runs]  # a run in training may finish while the page is made
    for run in runs:
        say(f"scores of {run.path}")
        scores.append(run_scores(run))
        first, latest = scores[0], scores[-1]
        same_rows = torch.equal(latest.labels["test"], first.labels["test"])
        if latest.task_names != first.task_names or not same_rows:
            raise RunError(
                f"the runs in {runs[0].path} and {run.path} have different test rows or tasks, so they "
                "cannot be compared: write a page for each"
            )
    methods, member = methods_of(runs)
    names = run_names(runs, methods, member)
    labels = scores[0].labels["test"]
    if not bool((labels >= 0).any()):
        raise RunError(
            f"the data of the run in {runs[0].path} has no labeled test rows, which a page needs: "
            "split the data in another way"
        )
    facts = [
        RunFacts.read(run, done, found, max_fpr)
        for run, done, found in zip(runs, finished, scores, strict=True)
    ]
    main: MetricName = select if select in AREAS else "pauc"
    compared = compare_methods([one.samples["test"] for one in facts], member, labels, main)
    shown = [
        {"name": name, "method": kind, **run_content(one, select)}
        for one, name, kind in zip(facts, names, member, strict=True)
    ]
    kinds = _method_facts(methods, member, compared)
    return {
        "answer": answer(kinds, compared["pairs"], shown, main, max_fpr),
        "data": data_title(runs[0].recipe.data),
        "version": mmb.__version__,
        "written": _time(datetime.datetime.now().timestamp()),
        "max_fpr": max_fpr,
        "titles": {name: METRICS[name].title for name in shown_metrics(select)},
        "main": main,
        "select": select,
        "select_meaning": METRICS[select].definition(max_fpr),
        "sizes": scores[0].sizes,
        "tasks": {
            "name": scores[0].task_names,
            "train_positives": scores[0].train_counts[0].tolist(),
            "train_negatives": scores[0].train_counts[1].tolist(),
            "test_positives": (labels == 1).sum(0).tolist(),
            "test_negatives": (labels == 0).sum(0).tolist(),
        },
        "methods": kinds,
        "pairs": compared["pairs"],
        "runs": shown,
    }


def run_content(facts: RunFacts, select: MetricName) -> dict[str, Any]:
    """What the page shows of one run."""
    run, scores, max_fpr = facts.run, facts.scores, facts.max_fpr
    logits, labels = scores.logits["test"], scores.labels["test"]
    found = task_metrics(logits, labels, max_fpr, select)
    tasks = {name: rounded(values) for name, values in found.items()}
    for name, sample in facts.samples["test"].items():
        low, high = sample.estimate().share_interval()
        tasks |= {f"{name}_low": rounded(low), f"{name}_high": rounded(high)}
    return {
        "facts": run_lines(facts),
        "recipe": require("yaml", extra="training").safe_dump(to_plain(run.recipe), sort_keys=False),
        "means": {name: rounded(values.nanmean()) for name, values in found.items()},
        "curves": log_curves(facts.log),
        "tasks": tasks | facts.decisions,
        "roc": page_curves(logits, labels, max_fpr),
        "reliability": reliability(scores),
        "tracked": _tracked(facts.tracked),
        "branches": _branches(run, found) if facts.finished else [],
        **check_run(facts),
    }


def _method_facts(
    names: Sequence[str], member: Sequence[int], compared: dict[str, Any]
) -> list[dict[str, Any]]:
    """What is known of each method: its name, its metrics, its number of runs."""
    return [
        {"name": name, **facts, "runs": member.count(k)}
        for k, (name, facts) in enumerate(zip(names, compared["methods"], strict=True))
    ]


def best_of(runs: Sequence[Run]) -> str:
    """Which method of finished runs on the same data is best, and how certain that is, in some sentences."""
    settings = runs[0].recipe.training
    main: MetricName = settings.select if settings.select in AREAS else "pauc"
    methods, member = methods_of(runs)
    facts = [RunFacts.read(run, True, run_scores(run), run.recipe.training.max_fpr) for run in runs]
    labels = facts[0].scores.labels["test"]
    compared = compare_methods([one.samples["test"] for one in facts], member, labels, main)
    shown = [{"method": kind, **check_run(one)} for kind, one in zip(member, facts, strict=True)]
    kinds = _method_facts(methods, member, compared)
    return " ".join(answer(kinds, compared["pairs"], shown, main, settings.max_fpr).values())


def run_verdict(run: Run) -> str:
    """Whether a finished run works, and what to do if not, in a sentence or two."""
    scores = run_scores(run)
    if not bool((scores.labels["test"] >= 0).any()):
        return "Cannot tell: there are no labeled test rows."
    facts = RunFacts.read(run, True, scores, run.recipe.training.max_fpr)
    found = check_run(facts)
    why = next((check["text"] for check in found["checks"] if check["status"] == found["status"]), "")
    why = {"good": "", "remark": f"{facts.said('test')} on test rows."}.get(found["status"], why)
    return " ".join(filter(None, [found["verdict"], why, found["advice"]]))


def run_lines(found: RunFacts) -> dict[str, str]:
    """What was run, where, when and with what."""
    run, scores, log, recipe = found.run, found.scores, found.log, found.run.recipe
    rows = ", ".join(f"{count} {part}" for part, count in scores.sizes.items())
    options = ", ".join(f"{key} {value}" for key, value in recipe.model.items() if key != "name")
    lines = {
        "method": method_of(recipe.method).title,
        "data": f"{recipe.data['name']}: {rows} rows, {len(scores.task_names)} tasks",
        "network": recipe.model["name"] + (f" ({options})" if options else ""),
        "seed": str(recipe.seed),
        "folder": str(run.path),
    }
    planned = planned_steps(log)
    done = log[-1]["step"] if log else 0
    lines["steps"] = f"{done} of {planned}" if planned else str(done)
    lines["weights"] = (
        f"of step {scores.step}, selected by validation {METRICS[recipe.training.select].title}"
    )
    seconds = next((record["seconds"] for record in reversed(log) if record.get("seconds")), None)
    if found.finished:
        result = run.result()
        seconds = result["seconds"]
        lines["device"] = result["device"]
        lines["versions"] = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        if note := unbranched_note(result):
            lines["branches"] = note
        lines["result written"] = _time((run.path / "result.json").stat().st_mtime)
    if seconds is not None:
        lines["time"] = f"{datetime.timedelta(seconds=round(seconds))} (h:mm:ss)"
    return lines


def _branches(run: Run, average: dict[str, Tensor]) -> list[dict[str, Any]]:
    """A line for each branch of a run, and one for their average; nothing if it has none."""
    result = run.result()
    lines = [
        {
            "name": name,
            "method": method_of(branch["method"]).title,
            "share": short(branch["share"]),
            "steps": branch["steps"],
            "stopped": branch.get("stopped_early", False) and not branch["share"],
            "valid": short(branch["valid"][result["selected_by"]]),
            "test": {metric: short(value) for metric, value in branch.get("test", {}).items()},
        }
        for name, branch in result.get("branches", {}).items()
    ]
    if lines:
        means = {metric: rounded(values.nanmean()) for metric, values in average.items()}
        valid = short(result["valid"][result["selected_by"]])
        whole = {"method": method_of(result["method"]).title, "share": 1.0, "steps": result["steps"]}
        lines.append({"name": "result", **whole, "stopped": False, "valid": valid, "test": means})
    return lines


def _tracked(tracked: dict[int, ThresholdReport]) -> dict[str, Any]:
    """Thresholds and quantiles, a list of tasks per step; shares above them at the last step."""
    steps = spaced(sorted(tracked), 30)
    over_time = {
        name: [rounded(getattr(tracked[step], name), 3) for step in steps] for name in ("tracked", "quantile")
    }
    at_end = {
        name: rounded(getattr(tracked[steps[-1]], name), 3) if steps else [] for name in ("rate", "soft_rate")
    }
    return {"step": steps, **over_time, **at_end}


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
