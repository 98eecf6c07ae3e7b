"""Zstandard files as streams; one that is cut short is an error, even between two lines of text."""

import io
from pathlib import Path
from typing import IO, Any

from mmb._extras import require

_CHUNK = 1 << 14  # compressed bytes expanded at a time; they may become many times as many


def open_zstd(path: Path) -> IO[bytes]:
    """Open a file of one or more Zstandard frames for the bytes in it.

    EOFError while it is read, if its last frame has no end; `zstandard.ZstdError` if it is broken.
    """
    return io.BufferedReader(_Frames(path))


class _Frames(io.RawIOBase):
    """Frames, one after the other. The reader of `zstandard` takes the end of a file for that of a frame."""

    def __init__(self, path: Path) -> None:
        self._new: Any = require("zstandard", extra="table").ZstdDecompressor().decompressobj
        self._file = path.open("rb")
        self._frame: Any = None  # None between frames
        self._compressed, self._expanded = b"", memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer with the next bytes; 0 at the end."""
        while not self._expanded:
            self._compressed = self._compressed or self._file.read(_CHUNK)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("it ends within a compressed frame")
                return 0
            self._frame = self._frame or self._new()
            self._expanded = memoryview(self._frame.decompress(self._compressed))
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        place = memoryview(buffer).cast("B")
        size = min(len(place), len(self._expanded))
        place[:size], self._expanded = self._expanded[:size], self._expanded[size:]
        return size

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
