"""Studies that run in seconds: two methods on synthetic data, and a first phase that they share."""

import yaml

from mmb.cli import main
from tiny_runs import TINY

ROWS = {
    **TINY,
    "training": {**TINY["training"], "steps": 6, "evaluate_every": 3},
    "init_heads": True,
    "pretrain": {"base": "start.yaml"},
}
START = {"method": "ce", "training": {"steps": 4, "evaluate_every": 2}}
ABOUT = {"title": "A table", "metric": "pauc", "rows": ["ce", "pauc"], "notes": "Why."}


def write_study(folder, table="table2", start=None, changes=None, **about):
    """Write the study synthetic/TABLE; `changes` has changes to the recipe of a row."""
    place = folder / "recipes" / "synthetic" / table
    place.mkdir(parents=True, exist_ok=True)
    about = {**ABOUT, **about}
    (place.parent / "rows.yaml").write_text(yaml.safe_dump(ROWS))
    (place.parent / "start.yaml").write_text(yaml.safe_dump({**START, **(start or {})}))
    for row in about["rows"]:
        recipe = {"base": "../rows.yaml", "method": row, **(changes or {}).get(row, {})}
        (place / f"{row}.yaml").write_text(yaml.safe_dump(recipe))
    (place / "study.yaml").write_text(yaml.safe_dump(about, sort_keys=False))
    return folder


def call(folder, *arguments):
    """`mmb reproduce` in a folder; returns its exit code."""
    places = ["--recipes", folder / "recipes", "--output", folder / "runs", "--results", folder / "results"]
    return main(["reproduce", *map(str, [*arguments, "--data", "synthetic", *places])])
