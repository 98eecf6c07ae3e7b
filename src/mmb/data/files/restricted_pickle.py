"""Reading pickles of plain containers and NumPy arrays, and of nothing that could run code."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.data.errors import DamagedDataError


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
        }:
            return require("numpy", extra="vision").empty(0).__reduce__()[0]
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(require("numpy", extra="vision"), name)
        if (module, name) == ("_codecs", "encode"):  # how newer Pythons write bytes in older pickles
            return _encode
        raise pickle.UnpicklingError(
            f"it refers to {module}.{name}, which is neither a container nor an array"
        )


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "utf-8")


def load_arrays(content: bytes, origin: Path | str) -> Any:
    """Load a pickle that consists of containers, text, numbers and NumPy arrays.

    Args:
        content: The pickle, of any Python version; its text strings from Python 2 become bytes.
        origin: Where it came from, for the error.

    Returns:
        The object.

    Raises:
        DamagedDataError: If it refers to anything else (which is then not imported or called), or is broken.
    """
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle can fail in any way
        raise DamagedDataError(origin, str(error), "get it again from its publisher") from error
