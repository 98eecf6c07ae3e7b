"""Scores of the validation rows, kept with a finished run, for probabilities and thresholds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mmb._checksums import is_no_damage
from mmb.training.runs.kept_tensors import read_tensors, write_tensors
from mmb.training.runs.run import Run

_FILE = "validation.safetensors"


class ValidationScores(NamedTuple):
    """Logits of the selected weights `[n, m]`, labels with -1 for missing, and the numbers of the rows."""

    logits: Tensor
    labels: Tensor
    rows: Tensor

    def write(self, run: Run) -> None:
        """Write them to the folder of a run."""
        write_tensors(run.path / _FILE, self._asdict(), {})

    @classmethod
    def read(cls, run: Run) -> ValidationScores | None:
        """Those of a run; None if it has none, as runs of earlier versions; RunError if they are damaged."""
        path = run.path / _FILE
        if not path.exists():
            return None
        try:
            return cls(**read_tensors(path, cls._fields)[0])
        except (OSError, ValueError, TypeError) as error:
            if is_no_damage(error):
                raise
            raise run.damaged(_FILE, error) from error

    def same_rows(self, other: ValidationScores) -> bool:
        """Whether both are of the same rows with the same labels."""
        return torch.equal(self.rows, other.rows) and torch.equal(self.labels, other.labels)
