"""Arrow streams, as `write_ipc_stream` and `RecordBatchStreamWriter` write them, one batch at a time."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from mmb.data.errors import DamagedDataError

START = b"\xff\xff\xff\xff"
"""How every message of a stream begins, and so the stream."""
_DICTIONARY, _BATCH = 2, 3  # types of messages


def single_batches(path: Path) -> Iterator[bytes]:
    """The stream in a file as streams of one batch each; as one without rows if it has no batches.

    Messages are `START`, the size of their header (int32), the header (a flatbuffer), and their body. The
    schema, and the dictionaries that are valid at that point, are in each of the streams.
    """
    schema, dictionaries, found = b"", dict[int, bytes](), False
    with path.open("rb") as file:
        while header := _header(path, file):
            try:
                facts = _Facts.of(header)
            except (struct.error, IndexError) as error:
                raise _cut_short(path) from error
            message = START + struct.pack("<i", len(header)) + header + _read(path, file, facts.size)
            if facts.kind == _BATCH:
                found = True
                yield b"".join([schema, *dictionaries.values(), message])
            elif facts.kind == _DICTIONARY:
                before = dictionaries.get(facts.dictionary, b"") if facts.adds else b""
                dictionaries[facts.dictionary] = before + message
            else:
                schema += message
    if not found:
        yield schema


class _Facts(NamedTuple):
    """What the header of a message says."""

    kind: int
    size: int  # bytes of the body
    dictionary: int = 0  # which one the message has
    adds: bool = False  # whether to those before, instead of taking their place

    @staticmethod
    def of(header: bytes) -> "_Facts":
        root = _number(header, "<i", 0)
        kind, size = _field(header, root, 1, "<B"), _field(header, root, 3, "<q")
        if kind != _DICTIONARY:
            return _Facts(kind, size)
        place = _place(header, root, 2)
        inner = place + _number(header, "<i", place)
        return _Facts(kind, size, _field(header, inner, 0, "<q"), bool(_field(header, inner, 2, "<B")))


def _field(header: bytes, table: int, field: int, form: str) -> int:
    """A number of a table in a flatbuffer; 0 if it is left out."""
    place = _place(header, table, field)
    return _number(header, form, place) if place else 0


def _place(header: bytes, table: int, field: int) -> int:
    """Where a field of a table is; 0 if it is left out, as the last ones may be of the layout, too."""
    layout, start = table - _number(header, "<i", table), 4 + 2 * field
    offset = _number(header, "<H", layout + start) if start < _number(header, "<H", layout) else 0
    return table + offset if offset else 0


def _number(header: bytes, form: str, place: int) -> int:
    found: int = struct.unpack_from(form, header, place)[0]
    return found


def _header(path: Path, file: IO[bytes]) -> bytes:
    """The header of the next message; nothing at the end of the stream, which may be unmarked."""
    start = file.read(8)
    if not start:
        return b""
    if len(start) < 8 or not start.startswith(START):
        raise _cut_short(path)
    return _read(path, file, _number(start, "<i", 4))


def _read(path: Path, file: IO[bytes], size: int) -> bytes:
    if not 0 <= size <= path.stat().st_size - file.tell():
        raise _cut_short(path)
    return file.read(size)


def _cut_short(path: Path) -> DamagedDataError:
    return DamagedDataError(path, "its Arrow stream is cut short or broken", "write or copy the file again")
