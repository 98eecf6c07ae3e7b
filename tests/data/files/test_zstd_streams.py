from itertools import pairwise

import pytest

from mmb.data.files.zstd_streams import open_zstd

zstandard = pytest.importorskip("zstandard")

TEXT = b"".join(b"%d,%d\n" % (k, k * k) for k in range(40_000))
SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.zst"


@pytest.mark.parametrize("ends", [[], [100], [100, 100, 7000]])
def test_frames_follow_each_other(path, ends):
    bounds = [0, *ends, len(TEXT)]
    frames = [zstandard.compress(TEXT[a:b]) for a, b in pairwise(bounds)]
    path.write_bytes(SKIPPABLE + b"".join(frames) + SKIPPABLE)
    with open_zstd(path) as file:
        assert file.peek(5)[:5] == TEXT[:5]
        assert list(file) == TEXT.splitlines(keepends=True)


def test_a_file_without_frames_is_empty(path):
    path.write_bytes(b"")
    assert open_zstd(path).read() == b""


def test_a_frame_without_an_end_is_an_error_wherever_it_is_cut(path):
    whole = zstandard.compress(TEXT)
    for size in range(1, len(whole), len(whole) // 40):
        path.write_bytes(whole[:size])
        with pytest.raises((EOFError, zstandard.ZstdError)):
            open_zstd(path).read()
