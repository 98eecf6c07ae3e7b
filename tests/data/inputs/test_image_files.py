import importlib

import pytest
import torch

from mmb.data import DamagedDataError, MissingDataError
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.image_files import ImageFiles
from mmb.data.inputs.images import Pixels

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    for k in range(7):
        (tmp_path / f"{k}.jpg").write_bytes(image_sets.photo(k, (60, 40)))
    return tmp_path


def files(folder, workers, names=None):
    names = names or [f"{k}.jpg" for k in range(7)]
    pixels = Pixels.of((0.5,) * 3, (0.5,) * 3, pad=2, flip=True)
    return ImageFiles(folder, names, Decoder(16), pixels, workers)


def test_decoding_crops_the_middle_or_stretches(tmp_path):
    striped = np.zeros((20, 60, 3), np.uint8)
    striped[:, 20:40] = 255  # white in the middle third
    Image.fromarray(striped).save(tmp_path / "s.png")
    assert (Decoder(20)(tmp_path / "s.png") == 255).all()
    stretched = Decoder(20, gray=True, fit="stretch")(tmp_path / "s.png")
    assert stretched.shape == (1, 20, 20)
    assert stretched[0, :, 10].min() == 255
    assert stretched[0, :, [0, 19]].max() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_keep_their_order_and_augment_as_one_by_one(folder, workers):
    inputs = files(folder, workers)
    batches = [torch.tensor(rows) for rows in ([3, 1], [6], [0, 2, 4, 5], [1, 1])]
    plain = list(inputs.stream(iter(batches), None))
    assert [rows.tolist() for rows, _ in plain] == [rows.tolist() for rows in batches]
    assert all(torch.equal(images, inputs[rows]) for rows, images in plain)
    generator, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    global_state = torch.get_rng_state()
    for (_, images), rows in zip(inputs.stream(batches, generator), batches, strict=True):
        assert torch.equal(images, inputs.augmented(rows, other))
    assert torch.equal(generator.get_state(), other.get_state())
    assert torch.equal(torch.get_rng_state(), global_state)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_named_wherever_it_is_decoded(folder, workers):
    (folder / "bad.jpg").write_bytes(image_sets.photo(0, (60, 40))[:200])
    inputs = files(folder, workers, ["0.jpg", "bad.jpg", "none.jpg"])
    with pytest.raises(DamagedDataError, match=r"bad\.jpg"):
        list(inputs.stream([torch.tensor([0]), torch.tensor([1])], None))
    with pytest.raises(MissingDataError, match=r"none\.jpg"):
        list(inputs.stream([torch.tensor([2])], None))
