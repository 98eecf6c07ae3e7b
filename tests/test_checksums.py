"""What is read is what was written, or it is refused; what has no checksum is read as it is."""

import json
import math

import pytest

from mmb._checksums import (
    ChecksumError,
    check_signed,
    checked_line,
    read_line,
    signed,
    with_checksum,
    without_checksum,
)


def test_dicts():
    content = {"b": [1, 2.5, None], "a": {"ü": "x"}, "t": (1, 2)}
    written = json.loads(json.dumps(with_checksum(content)))
    assert without_checksum(written) == {**content, "t": [1, 2]}
    assert without_checksum({"b": 1}) == {"b": 1}
    with pytest.raises(ChecksumError, match="changed"):
        without_checksum({**written, "b": [1, 2.5, 0]})
    with pytest.raises(ValueError, match="dict"):
        without_checksum([written])


def test_lines():
    record = {"kind": "train", "step": 3, "loss": 0.1 + 0.2, "gap": None}
    line = checked_line(record).decode()
    assert line.endswith("}\n")
    assert read_line(line) == record
    assert read_line(line.replace("0.3", "0.4")) is None
    assert read_line(line.replace("0.3", "9e999")) is None
    assert math.isnan(read_line('{"old": NaN}')["old"])
    assert [read_line(text) for text in ("", "[1]", line[:-4])] == [None] * 3


def test_texts():
    text = "a: 1\nb: ü\n"
    check_signed(signed(text))
    check_signed(text)
    with pytest.raises(ChecksumError):
        check_signed(signed(text).replace("a: 1", "a: 2"))
    with pytest.raises(ChecksumError):
        check_signed("# sha256 \na: 1")
