"""All that a page and its checks know of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from torch import Tensor

from mmb.auc import ThresholdReport
from mmb.metrics import METRICS, MetricName
from mmb.report.comparison import AREAS, area_samples
from mmb.report.decisions import decided
from mmb.report.evidence import Evidence, evidence
from mmb.report.intervals import Sample, UncertainValue
from mmb.report.selected_scores import SelectedScores
from mmb.training import Run
from mmb.training.loop import threshold_log
from mmb.training.runs.log import read_log

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class RunFacts:
    """All that the page and the checks know of a run."""

    run: Run
    finished: bool  # whether it had its result when its scores were read
    log: Sequence[dict[str, Any]]  # the lines of its log
    scores: SelectedScores  # scores of its selected weights
    max_fpr: float  # limit of the partial AUC
    tracked: dict[int, ThresholdReport]  # tracked thresholds by step
    decisions: dict[str, Any]  # as `decided` gives them

    @classmethod
    def read(cls, run: Run, finished: bool, scores: SelectedScores, max_fpr: float) -> Self:
        """The facts of a run, from its scores and its folder."""
        tracked = threshold_log.read(run.path) or scores.tracked
        return cls(run, finished, read_log(run.path), scores, max_fpr, tracked, decided(scores, max_fpr))

    @cached_property
    def metric(self) -> MetricName:
        """The area that verdicts speak of: the one that selects weights, or AUC."""
        select = self.run.recipe.training.select
        return select if select in AREAS else "auc"

    @cached_property
    def areas(self) -> dict[str, UncertainValue]:
        """The mean of that area over tasks, by part of the data."""
        return {
            part: samples[self.metric].mean(self.scores.labels[part]).estimate()
            for part, samples in self.samples.items()
        }

    @cached_property
    def samples(self) -> dict[str, dict[str, Sample]]:
        """The `area_samples` of each part of the data."""
        return {
            part: area_samples(self.scores.logits[part], self.scores.labels[part], self.max_fpr)
            for part in PARTS
        }

    @cached_property
    def evidence(self) -> dict[str, tuple[Evidence, Evidence]]:
        """What each part of the data shows, of all tasks and of each."""
        return {
            part: evidence(samples["auc"], self.scores.logits[part], self.scores.labels[part])
            for part, samples in self.samples.items()
        }

    @cached_property
    def backwards(self) -> Tensor:
        """The tasks that are ranked worse than by chance on test rows, but not on training rows."""
        return self.evidence["test"][1].below & ~self.evidence["train"][1].below

    def said(self, part: str) -> str:
        """The area on a part of the data, with its interval."""
        area = self.areas[part]
        low, high = area.share_interval()
        interval = f" ({float(low):.3f} to {float(high):.3f})" if bool(low.isfinite()) else ""
        return f"{METRICS[self.metric].title} {float(area.value):.3f}{interval}"
