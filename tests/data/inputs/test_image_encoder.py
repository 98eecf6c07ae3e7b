import importlib
import json

import pytest
import torch

from mmb.data import encoder_from_json
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.image_encoder import ImageEncoder
from new_files import read_new

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")


def test_new_images_come_from_a_folder_or_a_list(tmp_path):
    for k in range(7):
        (tmp_path / f"{k}.jpg").write_bytes(image_sets.photo(k, (60, 40)))
    (tmp_path / "7.jpg").write_text("not an image")
    encoder = encoder_from_json(json.loads(json.dumps(ImageEncoder(Decoder(16)).to_json())))
    inputs, usable = read_new(encoder, tmp_path)
    assert usable.tolist() == [True] * 7 + [False]
    assert inputs[torch.arange(8)].shape == (8, 3, 16, 16)
    (tmp_path / "list.csv").write_text("id,path\na,3.jpg\nb,none.jpg\nc,0.jpg\nd\n")
    listed, usable = read_new(encoder, tmp_path / "list.csv")
    assert usable.tolist() == [True, False, True, False]
    assert torch.equal(listed[torch.tensor([0, 2])], inputs[torch.tensor([3, 0])])


def test_an_image_that_cannot_be_opened_now_is_not_called_damaged(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(24, "Too many open files")

    (tmp_path / "x.png").touch()
    monkeypatch.setattr("PIL.Image.open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        read_new(ImageEncoder(Decoder(4)), tmp_path)
