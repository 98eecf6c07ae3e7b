"""Named tensors with facts about them in one file, checked when it is read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from mmb._atomic_files import replacing
from mmb._checksums import ChecksumError, with_checksum, without_checksum
from mmb._extras import require
from mmb.training.runs.fingerprints import fingerprint


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain facts, with checksums of both."""
    kept = {name: value.cpu().contiguous() for name, value in tensors.items()}
    content = {**facts, "names": list(kept), "tensors": fingerprint(list(kept.values()))}
    save = require("safetensors.torch", extra="training").save_file
    with replacing(path) as place:
        save(kept, place, {"facts": json.dumps(with_checksum(content))})


def read_tensors(path: Path, names: Sequence[str] = ()) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the facts in a file; ValueError if it is damaged, OSError if it cannot be read.

    `names` are those of the tensors in files of earlier versions, which do not state them.
    """
    library = require("safetensors", extra="training")
    try:
        with library.safe_open(path, "pt") as file:
            facts = without_checksum(json.loads(file.metadata()["facts"]))
            tensors = {name: file.get_tensor(name) for name in facts.pop("names", names)}
        written = facts.pop("tensors")
    except (library.SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if written != fingerprint(list(tensors.values())):
        raise ChecksumError
    return tensors, facts
