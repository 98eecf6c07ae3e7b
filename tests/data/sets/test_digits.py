import pytest
import torch

import mmb.data
from new_files import read_new

pytest.importorskip("sklearn")


def test_every_row_is_one_digit_and_training_positives_are_rare():
    data = mmb.data.load("digits", keep_positives=0.1)
    assert data.inputs.shape == (1797, 64)
    assert data.inputs.min() >= 0
    assert data.inputs.max() == 1
    counts = data.describe()["counts"]
    assert all(10 <= positives <= 11 for positives in counts["train"]["positive"])
    assert all(positives >= 35 for positives in counts["test"]["positive"])
    assert sum(counts["test"]["missing"]) == sum(counts["valid"]["missing"]) == 0
    whole = mmb.data.load("digits", keep_positives=1.0)
    assert torch.equal(whole.labels.sum(1), torch.ones(1797, dtype=torch.int64))
    known = data.labels >= 0
    assert torch.equal(data.labels[known], whole.labels[known])  # a label is only ever dropped, not changed


def test_the_encoder_reads_pixels_from_a_file(tmp_path):
    data = mmb.data.load("digits")
    pixels = (data.inputs[:3] * 16).int().tolist()
    path = tmp_path / "new.csv"
    header = ",".join(data.encoder.feature_names)
    path.write_text("\n".join([header] + [",".join(map(str, row)) for row in pixels]))
    inputs, usable = read_new(data.encoder, path)
    assert torch.equal(inputs, data.inputs[:3])
    assert usable.all()


def test_keep_positives_is_checked():
    with pytest.raises(ValueError, match="keep_positives"):
        mmb.data.load("digits", keep_positives=0.0)
