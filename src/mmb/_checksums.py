"""Checksums inside text files, which reveal whether a file was damaged or changed.

Files from earlier versions, and those written by hand, have none and are read without a check.
"""

import errno
import hashlib
import json
import zlib
from typing import Any

_KEY, _LINE_KEY = "sha256", "crc32"
_COMMENT = "# sha256 "
_NO_DAMAGE = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_no_damage(error: BaseException) -> bool:
    """Whether a file that could not be read may be good: no permission, too many open files, no memory."""
    return isinstance(error, OSError) and error.errno in _NO_DAMAGE


class ChecksumError(ValueError):
    """A text is not what was written."""

    def __init__(self) -> None:
        super().__init__("it was changed after it was written")


def with_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Plain data (JSON) with its checksum."""
    plain = json.loads(json.dumps(content))
    return {**plain, _KEY: _digest(json.dumps(plain, sort_keys=True))}


def without_checksum(content: Any) -> dict[str, Any]:
    """What was given to `with_checksum`; ValueError if it is not a dict, or differs."""
    if not isinstance(content, dict):
        raise ValueError(f"expected a dict, got {content!r:.40}")
    rest = {key: value for key, value in content.items() if key != _KEY}
    if content.get(_KEY, found := _digest(json.dumps(rest, sort_keys=True))) != found:
        raise ChecksumError
    return rest


def checked_line(record: dict[str, Any]) -> bytes:
    """A record as a line of JSON with its checksum."""
    text = json.dumps(record)
    return f'{text[:-1]}, "{_LINE_KEY}": {zlib.crc32(text.encode())}}}\n'.encode()


def read_line(line: str) -> dict[str, Any] | None:
    """The record in a line of JSON; None if the line was cut short, is damaged, or is not a record."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    if not isinstance(record, dict):
        return None
    written = record.pop(_LINE_KEY, None)
    return record if written in (None, zlib.crc32(json.dumps(record).encode())) else None


def signed(text: str) -> str:
    """A text in which `#` starts comments, such as YAML, below a line with its checksum."""
    return f"{_COMMENT}{_digest(text)} of what follows; to change something by hand, remove this line\n{text}"


def check_signed(text: str) -> None:
    """Refuse a text that differs from what `signed` returned; one without that line is fine."""
    first, _, rest = text.partition("\n")
    if first.startswith(_COMMENT) and first.split()[2:3] != [_digest(rest)]:
        raise ChecksumError


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
