"""A run's model for other programs: torch.export and ONNX, checked against the model itself."""

import io
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmb._atomic_files import replace_folder, sync_all, temporary_beside, writing
from mmb._extras import require
from mmb.data import Dataset
from mmb.data.inputs.graphs import GraphBatch
from mmb.training.recipes.components import load_data
from mmb.training.runs.averaged_runs import AveragedRuns
from mmb.training.runs.exported_model import ExportedModel
from mmb.training.runs.run import Run

TOLERANCE = 1e-5
"""Largest difference of a logit, relative where it is larger than one."""
_SIZES = (2, 3, 64)  # rows of the batches that are compared; the export itself sees another number
_EXAMPLE = 5
_FILES = {"model.pt2", "model.onnx", "model.onnx.data", "predictor.json"}
_LEFTOVER = ".new-"  # of an export by version 0.1.0 that was killed
_ROWS = ("inputs",)
_OUTPUTS = ("logits", "probabilities")
_GRAPHS = ("atoms", "edges", "bonds", "graph", "graph_ptr", "edge_ptr")  # as in `GraphScores`


class ExportError(Exception):
    """A model cannot be exported, or the exported model computes something else."""


def export_run(run: Run | Sequence[Run], folder: Path) -> dict[str, Any]:
    """Export the selected model of a run, or the average of several, and compare with it on validation rows.

    If there are few of these, training rows are added.

    Writes `model.pt2` (torch.export), `model.onnx` and `predictor.json` (names of the tasks, thresholds, how
    files are read) to a new folder, which then takes the place of an earlier export: a reader never sees
    files of two. If it fails, the earlier one stays. Batches can have any number of rows; of graphs, at least
    two. The outputs are `logits` and `probabilities`, each `[rows, tasks]`; of several runs, the logits are
    the averaged log-odds.

    Args:
        run: A finished run, whose data is present; or several that can be averaged, as by `predict_file`.
        folder: Where to write: a folder with an earlier export, an empty one, or none yet.

    Returns:
        The files, names of inputs and outputs, and the largest difference of a number for each file.

    Raises:
        ExportError: If the model cannot be exported, a number differs by more than 1e-5, or the folder has
            other files.
        RunError: If the run is not finished.
        WriteError: If a file cannot be written.
    """
    _check_free(folder)
    averaged = AveragedRuns([run] if isinstance(run, Run) else run)
    run = run if isinstance(run, Run) else run[0]
    with run.own_data():
        dataset = load_data(run.recipe.data)
    rows = torch.cat([dataset.split[part] for part in ("valid", "train")])[: max(_SIZES)]
    graphs = isinstance(dataset.batch(rows[:1]), GraphBatch)
    names = _GRAPHS if graphs else _ROWS
    network = ExportedModel(averaged, graphs).eval()
    outputs = _OUTPUTS if averaged.calibration else _OUTPUTS[:1]
    batches = [_tensors(dataset, rows[:size]) for size in _SIZES]
    files = {"torch": folder / "model.pt2", "onnx": folder / "model.onnx"}
    with warnings.catch_warnings(), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")
        try:
            saved, onnx = _convert(network, _tensors(dataset, rows[:_EXAMPLE]), names, outputs)
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            name = run.recipe.model["name"]
            raise ExportError(f"the network {name!r} cannot be exported: {error}") from error
        place = folder.resolve()
        with writing(folder):
            place.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(place) as new:
            with writing(folder):
                new.mkdir()
            with writing(files["torch"]):
                (new / "model.pt2").write_bytes(saved.getbuffer())
            with writing(files["onnx"]):
                onnx.save(new / "model.onnx")
            with writing(folder / "predictor.json"):
                shutil.copyfile(run.path / "predictor.json", new / "predictor.json")
            differences = _compare(new, network, batches)
            sync_all(new)
            with writing(folder):
                replace_folder(new, place)
    return {
        "files": {kind: str(path) for kind, path in files.items()},
        "inputs": list(names),
        "outputs": list(outputs),
        "largest_difference": differences,
        "rows_compared": sum(min(size, len(rows)) for size in _SIZES),
    }


def _check_free(folder: Path) -> None:
    """Refuse a folder with files that are not of an export, which would be lost."""
    with suppress(FileNotFoundError):
        names = {name for name in os.listdir(folder) if not name.startswith(_LEFTOVER)}
        if others := sorted(names - _FILES):
            raise ExportError(
                f"{folder} has other files than those of an export, such as {others[0]}: name another folder "
                "with --output"
            )


def _convert(
    model: nn.Module, example: tuple[Tensor, ...], names: Sequence[str], outputs: Sequence[str]
) -> tuple[io.BytesIO, Any]:
    """The model as a file of torch.export, in memory (so that no disk can fail here), and for ONNX."""
    # torch finds out which sizes vary, and which vary together; feature widths are fixed
    varying = (tuple({1 if name == "edges" else 0: torch.export.Dim.AUTO} for name in names),)
    program = torch.export.export(model, example, dynamic_shapes=varying)
    saved = io.BytesIO()
    torch.export.save(program, saved)
    onnx = torch.onnx.export(program, dynamo=True, verbose=False, input_names=names, output_names=outputs)
    return saved, onnx


def _compare(folder: Path, model: ExportedModel, batches: list[tuple[Tensor, ...]]) -> dict[str, float]:
    """The largest difference of a number between a model and each exported file, at most `TOLERANCE`.

    Probabilities are compared with those of the exported logits: where they rise in steep steps, a rounding
    error of a logit moves them further.
    """
    loaded = torch.export.load(folder / "model.pt2").module()
    session = require("onnxruntime", extra="training").InferenceSession(folder / "model.onnx")
    names = [entry.name for entry in session.get_inputs()]
    runners: dict[str, Callable[[tuple[Tensor, ...]], Sequence[Tensor]]] = {
        "torch": lambda batch: loaded(*batch),
        "onnx": lambda batch: [
            torch.from_numpy(found)
            for found in session.run(None, {n: t.numpy() for n, t in zip(names, batch, strict=True)})
        ],
    }
    differences = {}
    with torch.no_grad():
        for kind, runner in runners.items():
            differences[kind] = max(
                _difference(found, expected)
                for batch in batches
                for found, expected in _paired(runner(batch), batch, model)
            )
            if not differences[kind] <= TOLERANCE:
                raise ExportError(
                    f"the exported model ({kind}) differs from the model by {differences[kind]:.2g} in a "
                    f"number, more than {TOLERANCE:g}: nothing was kept"
                )
    return differences


def _paired(
    found: Sequence[Tensor], batch: tuple[Tensor, ...], model: ExportedModel
) -> Iterator[tuple[Tensor, Tensor]]:
    """Each output of an exported file, and what it is expected to be."""
    logits, *probabilities = found
    yield logits, model(*batch)[0]
    if model.probability is not None:
        yield probabilities[0], model.probability(logits)


def _tensors(dataset: Dataset, rows: Tensor) -> tuple[Tensor, ...]:
    """Some rows, as the exported model takes them."""
    batch = dataset.batch(rows)
    return tuple(getattr(batch, name) for name in _GRAPHS) if isinstance(batch, GraphBatch) else (batch,)


def _difference(found: Tensor, expected: Tensor) -> float:
    return float(((found - expected).abs() / expected.abs().clamp(min=1)).max())


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Let a logger report only errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
