"""One or several finished runs that score new rows, from their folders alone: no data is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmb.data import Dataset, Inputs, encoder_from_json
from mmb.data.dataset import SPLITS, NewRows
from mmb.label_values import MISSING
from mmb.metrics import OperatingPoints, operating_points
from mmb.models import registry
from mmb.training.runs import checkpoint
from mmb.training.runs.calibrate import Calibration, fit_calibration
from mmb.training.runs.run import Run, RunError
from mmb.training.runs.scoring import decision_thresholds, predict_logits
from mmb.training.runs.validation_scores import ValidationScores

_FACTS = ("task_names", "max_fpr", "thresholds", "model", "encoder")
CONFIDENCE = 0.95
"""Of a promise, unless one is asked for."""
_NO_SCORE = "the model gives it no finite score: its inputs may be too large, or not numbers"


@dataclass
class Predictor:
    """The selected model of a finished run, with its thresholds and its way to read files."""

    model: nn.Module  # on the host, in evaluation mode
    task_names: list[str]
    encoder: dict[str, Any] | None  # reads files of new rows, as JSON; None if it is not defined how
    thresholds: dict[float, list[float | None]]  # of logits, by rate; None for a task without negatives
    max_fpr: float  # the rate of the recipe
    batch_size: int
    trained: list[bool]  # which tasks had both positives and negatives to train on
    validation: ValidationScores | None  # None for runs of earlier versions

    @classmethod
    def load(cls, run: Run) -> Predictor:
        """Load the selected model of a run."""
        best = run.best_checkpoint()
        facts = run.outcome("predictor.json", _FACTS)
        model: nn.Module = registry.build(**facts["model"]).eval()
        model.load_state_dict(checkpoint.load_selected(best)["job"]["model"])
        return cls(
            model,
            facts["task_names"],
            facts["encoder"],
            {float(rate): values for rate, values in facts["thresholds"].items()},
            facts["max_fpr"],
            run.recipe.training.evaluation_batch_size,
            facts.get("trained", [True] * len(facts["task_names"])),
            ValidationScores.read(run),
        )

    def logits(self, inputs: Inputs) -> Tensor:
        """Logits of all rows, `[n, m]`."""
        rows = torch.arange(len(inputs))
        labels = torch.full((len(inputs), len(self.task_names)), MISSING, dtype=torch.int8)
        unlabeled = Dataset("new", inputs, labels, dict.fromkeys(SPLITS, rows), tuple(self.task_names))
        return predict_logits(self.model, unlabeled, rows, self.batch_size)

    def kept_threshold(self, fpr: float) -> Tensor:
        """Thresholds `[m]` at a rate for which the run keeps some, NaN where unknown."""
        if fpr not in self.thresholds:
            kept = ", ".join(f"{rate:g}" for rate in self.thresholds)
            raise ValueError(f"fpr: the run has no thresholds for a rate of {fpr:g}; choose among {kept}")
        unknown = -torch.inf if fpr == 1 else torch.nan  # at a rate of one, all rows are called positive
        return torch.tensor([unknown if t is None else t for t in self.thresholds[fpr]])


class AveragedRuns:
    """One or several finished runs that predict together.

    The score of one run is its logit. Several runs are brought to the scale of log-odds, each by its own
    validation rows, and averaged.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.predictors = [Predictor.load(run) for run in runs]
        first = self.predictors[0]
        self.task_names, self.max_fpr, self.trained = first.task_names, first.max_fpr, first.trained
        self.scales: list[Calibration] | None = None
        self.validation = first.validation
        if len(runs) > 1:
            kept = [self._joined(run, one) for run, one in zip(runs, self.predictors, strict=True)]
            self.scales = [fit_calibration(one.logits, one.labels) for one in kept]
            scores = self.average([one.logits for one in kept])
            self.validation = ValidationScores(scores, kept[0].labels, kept[0].rows)
            self.trained = [all(one) for one in zip(*(p.trained for p in self.predictors), strict=True)]
        self.calibration: Calibration | None = None
        if self.validation is not None:
            self.calibration = fit_calibration(self.validation.logits, self.validation.labels)

    @property
    def calibrated(self) -> Tensor:
        """Tasks with labels of validation rows, which have probabilities, bool `[m]`."""
        if self.validation is None:
            return torch.zeros(len(self.task_names), dtype=torch.bool)
        return (self.validation.labels >= 0).any(0)

    def _joined(self, run: Run, one: Predictor) -> ValidationScores:
        """The validation scores of a run that can be averaged with the first."""
        first = self.predictors[0].validation
        if one.task_names != self.task_names:
            raise RunError(f"{run.path} has other tasks than the first run, so they cannot be averaged")
        if first is None or one.validation is None:
            raise RunError(f"{run.path} or another run is of an earlier version: such a run predicts alone")
        if not first.same_rows(one.validation):
            raise RunError(
                f"{run.path} has other validation rows than the first run: average runs of the same data and "
                "split, which differ in seed or method"
            )
        return one.validation

    def average(self, logits: Sequence[Tensor]) -> Tensor:
        """Scores of rows, from the logits of each run."""
        if self.scales is None:
            return logits[0]
        odds = [scale.log_odds(one) for scale, one in zip(self.scales, logits, strict=True)]
        return torch.stack(odds).mean(0)

    def batches(self, source: Path) -> Iterator[tuple[NewRows, Tensor]]:
        """Rows of a file, some at a time, and their scores; a score that is not finite is a problem."""
        for batch, scores in self._scored(source):
            fine = (scores.isfinite() | ~torch.tensor(self.trained)).all(1).tolist()
            texts = zip(batch.problems, fine, strict=True)
            yield batch._replace(problems=[text or (not ok) * _NO_SCORE for text, ok in texts]), scores

    def _scored(self, source: Path) -> Iterator[tuple[NewRows, Tensor]]:
        encoders = [one.encoder for one in self.predictors]
        if encoders.count(encoders[0]) == len(encoders):  # one reads for all
            for batch in _read(encoders[0], source):
                yield batch, self.average([one.logits(batch.inputs) for one in self.predictors])
            return
        for several in zip(*(_read(encoder, source) for encoder in encoders), strict=True):
            pairs = zip(self.predictors, several, strict=True)
            scores = self.average([one.logits(batch.inputs) for one, batch in pairs])
            texts = zip(*(batch.problems for batch in several), strict=True)
            problems = [next(filter(None, of_row), "") for of_row in texts]
            yield several[0]._replace(problems=problems), scores

    def thresholds(
        self, fpr: float | None, tpr: float | None, confidence: float | None
    ) -> tuple[Tensor, OperatingPoints | None]:
        """Thresholds of scores `[m]`, and their promise, if one is asked for; see `predict_file`."""
        if fpr is not None and tpr is not None:
            raise ValueError(f"fpr, tpr: expected one of them, got {fpr} and {tpr}")
        rate = self.max_fpr if fpr is None else fpr
        if self.validation is None:
            if tpr is not None or confidence is not None:
                raise RunError("the run has no scores of validation rows for a promise: train it again")
            return self.predictors[0].kept_threshold(rate), None
        scores, labels = self.validation.logits, self.validation.labels
        if tpr is not None or confidence is not None:
            if not bool(self.calibrated.any()):
                raise RunError("the run has no labeled validation rows, by which a promise could be made")
            asked = {"min_tpr": tpr} if tpr is not None else {"max_fpr": rate}
            found = operating_points(scores, labels, **asked, confidence=confidence or CONFIDENCE)
            return found.threshold, found
        if not 0 < rate <= 1:
            raise ValueError(f"fpr: expected a number in (0, 1], got {rate}")
        found_at = decision_thresholds(scores, labels, [rate]).squeeze(0)
        return found_at.masked_fill(found_at.isnan(), -torch.inf) if rate == 1 else found_at, None


def _read(encoder: dict[str, Any] | None, source: Path) -> Iterator[NewRows]:
    """The rows of a file, by an encoder as JSON."""
    if encoder is None:
        raise RunError(
            "the data set of the run does not define how new files are read: give it an encoder, as in "
            "mmb.data.make_dataset(..., encoder=...), and train again; or use `mmb export`"
        )
    try:
        found = encoder_from_json(encoder)
    except ValueError as error:
        raise RunError(f"the run's way to read new files cannot be opened: {error}") from error
    for batch in found.batches(source):
        if not isinstance(batch, NewRows):
            raise RunError(
                f"the encoder {encoder['kind']} gave a {type(batch).__name__}, expected a mmb.data.NewRows"
            )
        cells = [len(column) for column in batch.columns.values()]
        if len({len(batch.inputs), len(batch.problems), *cells}) > 1:
            raise RunError(
                f"the encoder {encoder['kind']} gave {len(batch.inputs)} inputs, {len(batch.problems)} "
                f"problems and columns of {cells} rows: expected one of each for every row"
            )
        yield batch
