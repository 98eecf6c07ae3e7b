"""Commands that use runs: `evaluate`, `predict`, `export`, `watch` and `report`."""

import argparse
from contextlib import suppress

from mmb._names import first_few
from mmb.cli.console import Console
from mmb.cli.usage import UsageError
from mmb.metrics.titles import column_titles, definition, shown_metrics
from mmb.report import WatchServer, write_report
from mmb.report.run_groups import find_runs
from mmb.training import evaluate_file, evaluate_run, export_run, predict_file
from mmb.training.runs.run import command
from mmb.training.runs.tables import first_rows, make_table
from mmb.training.studies.replicates import open_runs


def run_evaluate(options: argparse.Namespace, console: Console) -> None:
    """Evaluate and show a table."""
    runs = open_runs(options.run)
    select = runs[0].recipe.training.select
    if options.input is not None:
        found = evaluate_file(runs, options.input, options.max_fpr)
        keys: tuple[str, ...] = ("positives", "negatives", *shown_metrics(select), "fpr", "tpr")
        columns, title = ["+", "-", *column_titles(found["max_fpr"], select), "FPR", "TPR"], options.input
        rates = f". FPR and TPR: at the threshold of FPR {found['max_fpr']:g} on validation rows"
    else:
        if len(runs) > 1:
            raise UsageError("--split is of one run; for several, or an ensemble, give --input FILE")
        found = evaluate_run(runs[0], options.split, options.max_fpr)
        keys, rates = shown_metrics(select), ""
        columns, title = column_titles(found["max_fpr"], select), f"{options.run[0]}: {options.split} rows"
    rows = [list(row) for row in zip(*(found["tasks"][key] for key in ("name", *keys)), strict=True)]
    rows = [*first_rows(rows), ["mean", *(found["mean"].get(key) for key in keys)]]
    caption = definition(found["max_fpr"], select) + rates
    console.show(make_table(str(title), ["task", *columns], rows, caption))
    if found.get("unusable"):
        console.warn(f"{found['unusable']} of {found['rows']} rows cannot be scored; `mmb predict` says why")
    console.result(found)


def run_predict(options: argparse.Namespace, console: Console) -> None:
    """Predict, and show how many rows are called positive."""
    runs = open_runs(options.run)
    found = predict_file(
        runs, options.input, options.output, options.fpr, tpr=options.tpr, confidence=options.confidence
    )
    rate = f"FPR {found['fpr']:g}" if found["tpr"] is None else f"TPR {found['tpr']:g}"
    columns, rows = ["task", "rows"], [[name, count] for name, count in found["positive"].items()]
    caption = ""
    if promise := found["promise"]:
        columns += ["threshold", "FPR", "from", "to", "TPR", "from", "to"]
        keys = ("threshold", "fpr", "fpr_low", "fpr_high", "tpr", "tpr_low", "tpr_high")
        rows = [row + [promise[key][task] for key in keys] for task, row in enumerate(rows)]
        bound = "at least" if found["fpr"] is None else "at most"
        caption = (
            f"New rows have a rate of {bound} that, with probability {promise['confidence']:g} for each "
            "task, if they are like the validation rows. Rates on those, and their intervals."
        )
    title = f"called positive among {found['rows']} rows, at {rate}"
    console.show(make_table(title, columns, first_rows(rows), caption))
    if promise and (few := [row[0] for row in rows if row[2] is None]):
        console.warn(
            f"{first_few(few)}: fewer than {promise['fewest_rows']} validation rows of the class that this "
            "promise is about, so decisions are blank; ask for less, or give more validation rows"
        )
    if found["unusable"]:
        reason = next(iter(found["problems"]))
        console.warn(
            f"{found['unusable']} rows could not be scored; the column `problem` says why (such as: {reason})"
        )
    for column, (count, name) in found["unseen"].items():
        console.warn(
            f"column {column!r}: {count} of {found['rows']} rows have a name that no training row has, such "
            f"as {name!r}; it counts as a gap"
        )
    if found["untrained"]:
        names = ", ".join(found["untrained"])
        console.warn(f"{names}: no positives or no negatives to train on, so these tasks' cells are blank")
    console.say(f"scores, probabilities and decisions are in {options.output}")
    if found["labeled"]:
        again = command("evaluate", *options.run, "--input", options.input)
        console.say(
            f"the input has labels of {first_few(found['labeled'])}: `{again}` says how good scores are"
        )
    console.result(found)


def run_export(options: argparse.Namespace, console: Console) -> None:
    """Export, compare, and show the files."""
    found = export_run(open_runs(options.run), options.output or options.run[0] / "export")
    rows = [[kind, path, f"{found['largest_difference'][kind]:.1e}"] for kind, path in found["files"].items()]
    caption = (
        f"Inputs: {', '.join(found['inputs'])}. Outputs: {', '.join(found['outputs'])}. Largest difference "
        f"from the model itself, over {found['rows_compared']} rows"
    )
    console.show(make_table("Exported", ["format", "file", "difference"], rows, caption))
    console.result(found)


def run_watch(options: argparse.Namespace, console: Console) -> None:
    """Serve the page until Ctrl-C."""
    with WatchServer(options.runs, options.port) as server:
        console.show(f"Open {server.address}\nCtrl-C ends it; training is not touched.")
        console.result({"address": server.address})
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def run_report(options: argparse.Namespace, console: Console) -> None:
    """Write the page and show its verdicts."""
    runs = find_runs(options.runs)
    content = write_report(runs, options.output, options.max_fpr, console.say)
    console.show("\n".join(content["answer"].values()))
    for entry in content["runs"]:
        console.show(f"{entry['name']}: {entry['verdict']} {entry['advice']}".rstrip())
    console.show(f"Page: {options.output.resolve().as_uri()}")
    verdicts = {entry["name"]: entry["verdict"] for entry in content["runs"]}
    console.result(
        {
            "output": str(options.output),
            "runs": [str(one.path) for one in runs],
            "answer": content["answer"],
            "verdicts": verdicts,
        }
    )
