"""Scores of the validation rows, kept with a finished run, for probabilities and thresholds."""

from __future__ import annotations

import json
from typing import NamedTuple

import torch
from torch import Tensor

from mmb._atomic_files import replacing
from mmb._checksums import is_no_damage, with_checksum, without_checksum
from mmb._extras import require
from mmb.training.runs.fingerprints import fingerprint
from mmb.training.runs.run import Run

_FILE = "validation.safetensors"


class ValidationScores(NamedTuple):
    """Logits of the selected weights `[n, m]`, labels with -1 for missing, and the numbers of the rows."""

    logits: Tensor
    labels: Tensor
    rows: Tensor

    def write(self, run: Run) -> None:
        """Write them to the folder of a run, with a checksum."""
        save = require("safetensors.torch", extra="training").save_file
        tensors = {name: value.cpu().contiguous() for name, value in self._asdict().items()}
        facts = with_checksum({"tensors": fingerprint(list(tensors.values()))})
        with replacing(run.path / _FILE) as place:
            save(tensors, place, {"facts": json.dumps(facts)})

    @classmethod
    def read(cls, run: Run) -> ValidationScores | None:
        """Those of a run; None if it has none, as runs of earlier versions; RunError if they are damaged."""
        path = run.path / _FILE
        if not path.exists():
            return None
        library = require("safetensors", extra="training")
        try:
            with library.safe_open(path, "pt") as file:
                facts = without_checksum(json.loads(file.metadata()["facts"]))
                found = cls(*(file.get_tensor(name) for name in cls._fields))
            if facts["tensors"] != fingerprint(list(found)):
                raise ValueError("it was changed after it was written")
        except (OSError, library.SafetensorError, ValueError, KeyError, TypeError) as error:
            if is_no_damage(error):
                raise
            raise run.damaged(_FILE, error) from error
        return found

    def same_rows(self, other: ValidationScores) -> bool:
        """Whether both are of the same rows with the same labels."""
        return torch.equal(self.rows, other.rows) and torch.equal(self.labels, other.labels)
