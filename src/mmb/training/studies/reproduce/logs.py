"""What the kept logs of a study's runs say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmb.training.runs.log import read_log
from mmb.training.runs.run import RunError
from mmb.training.studies.reproduce.study import METRICS, Study

_REMEDY = "put it back, or delete the folder and run `mmb reproduce` again"


def logged(study: Study, results: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The results of each row that has any, seed by seed, with the time of the first phase added in."""
    for row in study.recipes:
        paths = paths_of(study, row, results)
        if paths:
            found = []
            for path in paths:
                start = start_of(path, study, results)
                seconds = result_of(start)["seconds"] if start is not None else 0.0
                result = result_of(path)
                found.append({**result, "seconds_in_all": result["seconds"] + seconds})
            yield row, found


def curve(path: Path, start: Path | None) -> list[list[float]]:
    """Epoch, seconds and metrics at every evaluation of a run, after those of its first phase."""
    points: list[list[float]] = []
    epochs = seconds = 0.0
    for folder in [start, path] if start is not None else [path]:
        records = read_log(folder)
        if not records:
            raise RunError(f"{folder / 'metrics.jsonl'}: no log is there: {_REMEDY}")
        per_epoch = records[0]["steps_per_epoch"]
        offset = (epochs, seconds)
        for record in records:
            if record["kind"] == "valid":
                epochs, seconds = offset[0] + record["step"] / per_epoch, offset[1] + record["seconds"]
                points.append([epochs, seconds, *(record[metric] for metric in METRICS)])
    return points


def by_step(path: Path) -> list[dict[str, float]]:
    """What the log of a run, without its first phase, has of each step: seconds, loss, metrics."""
    found: dict[int, dict[str, float]] = {}
    for record in read_log(path):
        if record["kind"] in ("train", "valid"):
            kept = {key: record[key] for key in ("seconds", "loss", *METRICS) if key in record}
            found.setdefault(record["step"], {"step": record["step"]}).update(kept)
    return [found[step] for step in sorted(found)]


def result_of(path: Path) -> dict[str, Any]:
    """The result of a finished run."""
    file = path / "result.json"
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{file}: cannot be read ({error}): {_REMEDY}") from None
    return result


def paths_of(study: Study, row: str, results: Path) -> list[Path]:
    """Folders of the finished runs of a row, by seed."""
    found = (results / study.name / row).glob("seed-*/result.json")
    return sorted((path.parent for path in found), key=lambda path: int(path.name.removeprefix("seed-")))


def start_of(path: Path, study: Study, results: Path) -> Path | None:
    """The first phase of a run, if it has one."""
    if "\npretrain:" not in (path / "recipe.yaml").read_text(encoding="utf-8"):
        return None  # read as text: to resolve some hundred recipes takes a minute
    return results / Path(study.name).parent / "start" / path.name
