import json

import pytest
import torch

from mmb.data import encoder_from_json, make_dataset
from mmb.data.encoders import check_encoder
from own_parts import PlaceEncoder


def test_unknown_encoder_kinds_are_refused():
    with pytest.raises(ValueError, match="columns"):
        encoder_from_json({"kind": "spell"})
    with pytest.raises(ValueError, match=r"own_parts:Child.*'from_json'"):
        encoder_from_json({"kind": "own_parts:Child"})
    with pytest.raises(ValueError, match=r"no_such_module.*PYTHONPATH"):
        encoder_from_json({"kind": "no_such_module:Encoder"})


def test_an_own_encoder_comes_back():
    encoder = encoder_from_json(json.loads(json.dumps(PlaceEncoder(";").to_json())))
    assert (type(encoder).__name__, encoder.sign) == ("PlaceEncoder", ";")
    check_encoder(make_dataset(torch.zeros(9, 2), [0, 1, 1] * 3, encoder=PlaceEncoder()))


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"kind": "places"}, "PlaceEncoder.*'places'"),
        ({"kind": "own_parts:PlaceEncoder"}, "KeyError.*sign"),
        ({"kind": "own_parts:PlaceEncoder", "sign": torch.ones(1)}, "JSON"),
        ("own_parts:PlaceEncoder", "str.*'kind'"),
        ({"kind": "columns", "columns": []}, "'columns'.*ColumnEncoder.*PlaceEncoder"),
    ],
)
def test_encoders_that_do_not_come_back_are_refused(plain, message, monkeypatch):
    monkeypatch.setattr(PlaceEncoder, "to_json", lambda self: plain)
    with pytest.raises(ValueError, match=message):
        check_encoder(make_dataset(torch.zeros(9, 2), [0, 1, 1] * 3, encoder=PlaceEncoder()))


def test_an_encoder_that_loses_something_is_refused(monkeypatch):
    monkeypatch.setattr(PlaceEncoder, "from_json", lambda data: PlaceEncoder(";"))
    with pytest.raises(ValueError, match=r"PlaceEncoder.*differs"):
        check_encoder(make_dataset(torch.zeros(9, 2), [0, 1, 1] * 3, encoder=PlaceEncoder()))
