"""Steps that are recorded: the same training as without; on the CPU, by what stands in for a GPU."""

from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import pytest
import torch

from capture_cases import CASES
from mmb.auc import (
    PairwisePartialAUC,
)
from mmb.auc.compositional.weight_copies import WeightCopies
from mmb.training.loop.optimizer import make_optimizer
from mmb.training.loop.setup import make_setup
from mmb.training.loop.step import WORTH_COMPILING, Step, compiled_encoder, compiled_estimate, make_step
from mmb.trees import map_tensors, tensors
from on_host import HostRecorder, TracingRecorder
from tiny_runs import tiny_recipe


@pytest.mark.parametrize(("method", "kind"), [("auc-ct-heads", "rows"), ("pauc", "tasks")])
def test_a_compiled_encoder_has_the_weights_of_the_model(method, kind, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # no compiler needed
    setup = make_setup(tiny_recipe(method, model={"dropout": 0.0}, sampler={"kind": kind}))
    batch, names = next(iter(setup.feed)), list(setup.model.state_dict())
    network, found = compiled_encoder(setup.model), []
    for estimate in (partial(setup.objective.eval().backward, setup.model), compiled_estimate(setup)):
        setup.optimizer.zero_grad()
        estimate(batch)
        found.append([weight.grad.clone() for weight in setup.model.parameters()])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain)
    assert network.encoder is not setup.model.encoder
    assert list(setup.model.state_dict()) == names


def losses_on_the_host(monkeypatch, method, kind, captured, make_recorder=HostRecorder, momentum=0.5):
    """Losses and state of some steps, plain or recorded; what was said; and the step."""
    recipe = tiny_recipe(
        method,
        model={"dropout": 0.0},
        sampler={"kind": kind},
        optimizer={"name": "momentum", "lr": 0.1, "momentum": momentum, "clip": 1.0},
        schedule={"name": "cosine", "decay_blocks": True},
        training={"capture": "auto"},
    )
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (captured, None))
    torch.manual_seed(0)
    setup, said = make_setup(recipe), []
    setup.objective.can_raise = False  # as on a GPU
    for group in setup.optimizer.param_groups:
        group["fused"] = True

    def state():
        return (*setup.model.state_dict().values(), *setup.objective.state_dict().values())

    def changed():
        return (*state(), *tensors([dict(part) for part in setup.optimizer.state.values()]))

    step = make_step(setup, said.append, recorder=lambda _: make_recorder(changed))
    losses = []
    for number, batch in zip(range(12), setup.feed, strict=False):
        setup.set_step_sizes(number)
        losses.append(step(batch)["loss"])
    return [torch.stack(losses), *state()], said, step


class RowsOnDevice(NamedTuple):
    """Weight copies as they are moved on a GPU."""

    matrix: torch.Tensor

    def prefetch(self, numbers):
        pass

    def gather(self, numbers):
        return self.matrix.index_select(0, numbers)

    def scatter_(self, numbers, rows):
        self.matrix.index_copy_(0, numbers, rows)

    def wait(self):
        pass


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_recorded_steps_follow_batches_and_decaying_step_sizes(method, kind, monkeypatch):
    monkeypatch.setattr(WeightCopies, "_rows_for", lambda copies, _: RowsOnDevice(copies.stacked))
    plain, *_ = losses_on_the_host(monkeypatch, method, kind, captured=False)
    found, said, step = losses_on_the_host(monkeypatch, method, kind, True, TracingRecorder)
    assert not said
    assert step.captured.recorded
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fails_at", [1, 4])
def test_what_cannot_be_recorded_is_said_once_and_trains_the_same(fails_at, monkeypatch):
    plain, *_ = losses_on_the_host(monkeypatch, "pauc", "rows", captured=False, momentum=0.0)
    recorder = partial(HostRecorder, fails_at=fails_at)
    found, said, step = losses_on_the_host(monkeypatch, "pauc", "rows", True, recorder, momentum=0.0)
    assert step.captured.impossible
    assert len(said) == 1
    assert "kernel by kernel" in said[0]
    assert said[0].endswith("no graphs today")
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_compiled_is_captured_without(monkeypatch, tmp_path):
    monkeypatch.setenv("MMB_DATA", str(tmp_path))
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    results = []
    for broken in (False, True):
        torch.manual_seed(0)
        recipe = tiny_recipe(
            "pauc",
            model={"dropout": 0.0},
            optimizer={"name": "sgd", "momentum": 0.0},
            training={"capture": "auto"},
        )
        setup, said = make_setup(recipe), []
        if broken:
            monkeypatch.setattr(torch, "compile", lambda model, **_: Broken())

        def state(setup=setup):
            return (*setup.model.state_dict().values(), *setup.objective.state_dict().values())

        step = make_step(
            setup, said.append, WORTH_COMPILING if broken else 0, recorder=lambda _: HostRecorder(state)
        )
        losses = [step(batch)["loss"] for _, batch in zip(range(12), setup.feed, strict=False)]
        assert step.captured.recorded
        assert said == (["steps are captured, but not compiled: no compiler here"] if broken else [])
        results.append([torch.stack(losses), *state()])
    torch.testing.assert_close(*results, rtol=0, atol=0)


class Broken(torch.nn.Module):
    def forward(self, inputs):
        raise RuntimeError("no compiler here\nand more lines")


def test_a_compiled_step_that_waits_is_not_tried_again_without(monkeypatch, tmp_path):
    monkeypatch.setenv("MMB_DATA", str(tmp_path))
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    setup, said = make_setup(tiny_recipe("ce", optimizer={"name": "sgd"})), []
    step = make_step(setup, said.append, WORTH_COMPILING, lambda _: HostRecorder(list, waits=True))
    for batch, _ in zip(setup.feed, range(8), strict=False):
        step(batch)
    assert step.captured.impossible
    assert len(said) == 1
    assert "waits for the device" in said[0]


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_a_step_asks_no_tensor_of_a_device_what_it_holds(method, kind, monkeypatch):
    """Meta tensors hold nothing: whatever would make a GPU wait, or mixes devices, is an error."""
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # does not know them
    recipe = tiny_recipe(
        method,
        sampler={"kind": kind},
        optimizer={"name": "momentum", "lr": 0.1, "clip": 1.0},
        schedule={"name": "cosine", "decay_blocks": True},
    )
    setup = make_setup(recipe)
    for module in (setup.model, setup.objective):
        as_meta(module)
    setup.optimizer = make_optimizer(recipe.optimizer, setup.model, setup.objective)
    step = Step(setup)
    for batch, _ in zip(setup.feed, range(2), strict=False):
        numbers = step(map_tensors(lambda part: part.to("meta"), batch))
        assert {number.device.type for number in numbers.values()} == {"meta"}


def test_meta_tensors_tell_what_waits(monkeypatch):
    """That is, the test above can fail: without `reserve`, positives of a batch are counted."""
    monkeypatch.setattr(PairwisePartialAUC, "reserve", lambda *_: None)
    with pytest.raises((RuntimeError, NotImplementedError), match="nonzero"):
        test_a_step_asks_no_tensor_of_a_device_what_it_holds("pauc-pairwise", "rows", monkeypatch)


def as_meta(module):
    """Put a module and what it keeps in attributes on the meta device; ties between weights stay."""
    made = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                made.setdefault(parameter, torch.nn.Parameter(parameter.detach().to("meta")))
                part._parameters[name] = made[parameter]
        for names in (part._buffers, part.__dict__):
            for name, value in names.items():
                if isinstance(value, torch.Tensor | list):
                    names[name] = map_tensors(lambda tensor: tensor.detach().to("meta"), value)


def test_only_long_runs_are_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled.append(model) or model)
    monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_: (True, None))
    setup = make_setup(tiny_recipe("ce", optimizer={"name": "sgd"}, training={"capture": "auto"}))
    make_step(setup)
    make_step(setup, steps=WORTH_COMPILING - 1)
    assert not compiled
    make_step(setup, steps=WORTH_COMPILING)
    assert compiled == [setup.model]
