"""The options of every command. Nothing here, nor in what it imports, imports torch: help is immediate."""

import argparse
import math
from pathlib import Path

from mmb.cli.known_keys import table


def positive(text: str) -> int:
    """The type of an option that counts something."""
    return _at_least(1, text)


def folds(text: str) -> int:
    """The type of the option that counts folds: one tests, one validates, and at least one trains."""
    return _at_least(3, text)


def port(text: str) -> int:
    """The type of the option that is a port; 0 for any free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 65535, got {text}")
    return int(text)


def _at_least(fewest: int, text: str) -> int:
    if not text.isdecimal() or int(text) < fewest:
        raise argparse.ArgumentTypeError(f"must be at least {fewest}, got {text}")
    return int(text)


def share(text: str) -> float:
    """The type of an option that is a rate or a probability."""
    percent = text.removesuffix("%")
    try:
        value = float(percent)
    except ValueError:
        value = math.nan
    if percent == text and 0 < value <= 1:
        return value
    hint = f"; for {percent} percent, write {value / 100:g}" if 0 < value <= 100 else ""
    raise argparse.ArgumentTypeError(f"expected a number in (0, 1], got {text}{hint}")


def path_of(text: str) -> Path:
    """The type of an option that names a file or folder; a shell leaves the `~` of `--input=~/new.csv`."""
    return Path(text).expanduser()


def data_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb data`."""
    parser.add_argument("action", nargs="?", help="list (the default), describe, get or prepare")
    parser.add_argument("name", nargs="?", help="which data set; not for list")
    _add_overrides(parser, "set an option of the data set, such as features=fingerprint")
    parser.add_argument(
        "--root", type=path_of, help="where data is kept; by default $MMB_DATA or ~/.cache/mmb"
    )
    parser.add_argument(
        "--from", dest="source", type=path_of, help="get: a folder that has the files as distributed"
    )


def train_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb train`."""
    _add_recipe(parser, "recipe file (YAML); or name a data set, or a CSV file, here or with --data")
    _add_choices(parser)
    parser.add_argument("--output", type=path_of, help="folder of the run; by default a new one below runs/")
    several = parser.add_mutually_exclusive_group()
    several.add_argument(
        "--replicates", type=positive, metavar="K", help="train K runs that differ in their seed"
    )
    several.add_argument(
        "--ensemble", type=positive, metavar="K", help="the same, as one model that averages them"
    )
    several.add_argument(
        "--folds", type=folds, metavar="K", help="cross-validate: K runs, and scores for every row"
    )
    _add_jobs(parser)
    parser.add_argument(
        "--keys", action="store_true", help="list all keys of the recipe, with help, and stop"
    )


def resume_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb resume`."""
    parser.add_argument("run", type=path_of, help="folder of the run")
    _add_jobs(parser)


def compare_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb compare`."""
    _add_recipe(parser, "recipe file (YAML) that all methods share; or name a data set")
    parser.add_argument("--data", help="data set; `mmb data list` lists them")
    parser.add_argument("--methods", default="ce,auc,auc-ct,pauc", help="names of methods, with commas")
    parser.add_argument("--seeds", type=positive, default=3, help="number of seeds")
    parser.add_argument(
        "--jobs", type=positive, help="runs at a time; by default one per core, or one on a GPU"
    )
    parser.add_argument(
        "--no-controls",
        dest="controls",
        action="store_false",
        help="compare soup without CE, and without averaged and longer CE of as many steps",
    )
    parser.add_argument(
        "--output", type=path_of, help="folder of the comparison; by default runs/compare-DATA"
    )


def evaluate_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb evaluate`."""
    _add_runs(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--split", choices=["train", "valid", "test"], default="test", help="which rows")
    which.add_argument(
        "--input", type=path_of, help="instead, a new table that has label columns as well: CSV, Parquet, ..."
    )
    parser.add_argument("--max-fpr", type=share, help="limit of the partial AUC; by default that of the run")


def predict_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb predict`."""
    _add_runs(parser)
    parser.add_argument(
        "--input", type=path_of, required=True, help="table with the columns of the data: CSV, Parquet, ..."
    )
    parser.add_argument(
        "--output", type=path_of, required=True, help="file to write, a line per row: .csv, .tsv or .parquet"
    )
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument(
        "--fpr", type=share, help="false positive rate of the decisions; by default that of the run"
    )
    rate.add_argument("--tpr", type=share, help="instead, true positive rate that new rows have at least")
    parser.add_argument(
        "--confidence",
        type=share,
        help="probability with which new rows keep the rate, such as 0.95; by default, --fpr is that of "
        "validation rows",
    )


def export_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb export`."""
    _add_runs(parser)
    parser.add_argument("--output", type=path_of, help="folder to write to; by default RUN/export")


def report_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb report`."""
    _add_folders(parser)
    parser.add_argument("-o", "--output", type=path_of, default=Path("report.html"), help="file to write")
    parser.add_argument(
        "--max-fpr", type=share, help="limit of the partial AUC; by default that of the first run"
    )


def watch_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb watch`."""
    _add_folders(parser)
    parser.add_argument("--port", type=port, default=0, help="port of the page; by default any free one")


def tune_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb tune`."""
    _add_recipe(parser, "recipe file (YAML), with or without its own grid; or name a data set")
    _add_choices(parser)
    parser.add_argument(
        "--trials",
        type=positive,
        default=30,
        help="trials in all (default 30); the same command continues, also in several terminals at once",
    )
    parser.add_argument("--jobs", type=positive, default=1, help="trials at a time, each in its own process")
    parser.add_argument(
        "--output", type=path_of, help="folder of the study; by default runs/tune-DATA-METHOD-SEED"
    )


def reproduce_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb reproduce`."""
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="table1, table2 or ablation; or several")
    parser.add_argument("--data", nargs="+", default=["molpcba"], help="data set; or several")
    parser.add_argument("--seeds", type=positive, default=3, help="number of seeds")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="run these rows only")
    parser.add_argument("--jobs", type=positive, default=1, help="runs at a time, each in its own process")
    parser.add_argument(
        "--choose",
        action="store_true",
        help="try the choices of each row, on validation rows alone; the table then has the best",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="train nothing: make all tables again from the logs, and fail if one differs",
    )
    parser.add_argument("--output", type=path_of, default=Path("runs/reproduce"), help="folder of the runs")
    parser.add_argument("--results", type=path_of, default=Path("results"), help="folder of logs and tables")
    parser.add_argument(
        "--recipes", type=path_of, default=Path("recipes/reproduce"), help="folder of the studies"
    )


def completion_options(parser: argparse.ArgumentParser) -> None:
    """Options of `mmb completion`."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="which shell")


def _add_recipe(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("recipe", nargs="?", help=meaning)
    _add_overrides(
        parser, "change a key of the recipe, such as optimizer.lr=0.01; `mmb train --keys` lists them"
    )


def _add_overrides(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=meaning)


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=path_of, metavar="RUN", help="folder of a run, or one with runs in it"
    )


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="+",
        type=path_of,
        metavar="RUN",
        help="folder of a finished run, or of an ensemble; several are averaged",
    )


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """Options that choose what to train on and for."""
    parser.add_argument("--data", help="data set; `mmb data list` lists them")
    parser.add_argument("--method", help="what to train for: " + ", ".join(table()["method"]))


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    """The option that says how many branches are trained at a time."""
    parser.add_argument("--jobs", type=positive, default=1, help="branches, or runs, at a time")
