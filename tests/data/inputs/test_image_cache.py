"""Images decoded once: what is in the cache is what the files hold, however they are read."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmb.data.files import cache
from mmb.data.inputs.image_cache import CachedImages, build_cache
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.images import Pixels

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for k in range(70):
        (folder / f"{k}.jpg").write_bytes(image_sets.photo(k, (20 + k % 5, 24)))
    return [folder / f"{k}.jpg" for k in range(70)]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_decode_what_one_process_does(tmp_path, paths, workers, bits):
    decoder, seen = Decoder(12, bits=bits), []
    given = [*paths[:40], None, paths[0].parent / "none.jpg", *paths[40:]]
    folder = build_cache(tmp_path / "c", given, decoder, workers, lambda *done: seen.append(done))
    arrays, facts = cache.read(folder)
    assert arrays["usable"].nonzero().flatten().tolist() == [*range(40), *range(42, 72)]
    assert [*facts["problems"]] == ["41"]
    assert "none.jpg" in facts["problems"]["41"]
    images = arrays["images"]
    assert images[40].float().max() == images[41].float().max() == 0
    for row in (0, 39, 42, 71):
        assert (images[row].int() == decoder(given[row]).int()).all()
    assert seen[-1] == (72, 72)


@pytest.mark.parametrize("bits", [8, 16])
def test_streams_give_what_indexing_gives(tmp_path, paths, bits):
    folder = build_cache(tmp_path / "c", paths, Decoder(12, bits=bits), 1, None)
    pixels = Pixels.of((0.4,) * 3, (0.2,) * 3, pad=2, flip=True, changes=("zoom",))
    inputs = CachedImages(cache.read(folder)[0]["images"], pixels, "x").to("cpu")
    batches = [torch.randint(70, (size,), generator=torch.Generator().manual_seed(size)) for size in range(9)]
    plain = list(inputs.stream(iter(batches), None))
    assert all(torch.equal(rows, expected) for (rows, _), expected in zip(plain, batches, strict=True))
    assert all(torch.equal(images, inputs[rows]) for rows, images in plain)
    exact = torch.stack([Decoder(12)(paths[row]) for row in batches[5]]).float() / 255
    torch.testing.assert_close(plain[5][1], (exact - 0.4) / 0.2)
    generator, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for (_, images), rows in zip(inputs.stream(batches, generator), batches, strict=True):
        assert torch.equal(images, inputs.augmented(rows, other))
    stopped = inputs.stream(iter(batches), None)  # one that is not read to its end
    next(stopped)
    stopped.close()


def test_dark_16_bit_images_get_a_hint(tmp_path):
    np, pillow = importlib.import_module("numpy"), importlib.import_module("PIL.Image")
    pillow.fromarray(np.full((9, 9), 4000, np.uint16)).save(tmp_path / "x.png")
    with pytest.warns(UserWarning, match=r"4000.*data\.window=\[0,4000\]"):
        build_cache(tmp_path / "c", [tmp_path / "x.png"], Decoder(4), 1, None)
    build_cache(tmp_path / "d", [tmp_path / "x.png"], Decoder(4, window=(0, 4000)), 1, None)


PROGRAM = """
import json, sys
from pathlib import Path
from mmb.data.inputs.image_cache import build_cache
from mmb.data.inputs.image_decoder import Decoder
paths = [Path(name) for name in json.loads(sys.argv[1])] * 2000
build_cache(Path(sys.argv[2]), paths, Decoder(64), 2, lambda *done: print(done, flush=True))
"""


def test_workers_end_with_their_parent(tmp_path, paths):
    names = json.dumps([str(path) for path in paths])
    words = [sys.executable, "-c", PROGRAM, names, str(tmp_path / "c")]
    env = {**os.environ, "PYTHONPATH": str(Path(cache.__file__).parents[3])}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout.readline()  # the workers have begun
        process.kill()
        process.communicate(timeout=30)  # they have the other end of the pipe, so this waits for them
    assert not (tmp_path / "c").exists()
