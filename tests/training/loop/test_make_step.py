"""Which step a run takes."""

import pytest
import torch

from mmb.training.loop.compiled_later import CompiledLater
from mmb.training.loop.make_step import WORTH_COMPILING, make_step
from mmb.training.loop.setup import make_setup
from mmb.training.loop.step import CapturedStep, Step
from tiny_runs import tiny_recipe


@pytest.mark.parametrize(
    ("capture", "steps", "kind"),
    [
        (False, WORTH_COMPILING, Step),
        ("auto", WORTH_COMPILING - 1, CapturedStep),
        ("auto", WORTH_COMPILING, CompiledLater),
        (True, 1, CapturedStep),
    ],
)
def test_only_long_runs_are_compiled_unless_asked_for(capture, steps, kind, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled.append(model) or model)
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (capture is not False, None))
    training = {"capture": capture, "steps": 2 * WORTH_COMPILING}
    setup = make_setup(tiny_recipe("ce", optimizer={"name": "sgd"}, training=training))
    step = make_step(setup, pytest.fail, steps)
    assert type(step) is kind
    assert compiled[:1] == ([setup.model] if capture is True else [])
