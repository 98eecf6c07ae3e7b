"""Steps captured in a CUDA graph: the same training as without."""

from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import NamedTuple

import pytest
import torch

from mmb.auc import (
    CompositionalAUC,
    CrossEntropy,
    Labels,
    PairwisePartialAUC,
    RichRowSampler,
    TaskSampler,
)
from mmb.auc.compositional.weight_copies import WeightCopies
from mmb.models.graph_isomorphism import gin
from mmb.training import METHODS, Observer, Run, merge, resolve, train
from mmb.training.loop.feed import Feed
from mmb.training.loop.optimizer import make_optimizer
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, make_setup
from mmb.training.loop.step import WORTH_COMPILING, CapturedStep, Step, compiled_encoder, make_step
from mmb.training.recipes.recipe import OptimizerSettings
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs.log import Window
from mmb.trees import map_tensors, tensors
from on_host import HostRecorder, TracingRecorder
from random_graphs import random_molecules
from tiny_runs import tiny_recipe

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_compiled_encoder_has_the_weights_of_the_model(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # no compiler needed
    setup = make_setup(tiny_recipe("auc-ct-heads", model={"dropout": 0.0}))
    batch, names = next(iter(setup.feed)), list(setup.model.state_dict())
    network, found = compiled_encoder(setup.model), []
    for model in (setup.model, network):
        setup.optimizer.zero_grad()
        setup.objective.eval().backward(model, batch)
        found.append([weight.grad.clone() for weight in setup.model.parameters()])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain)
    assert network.encoder is not setup.model.encoder
    assert list(setup.model.state_dict()) == names


HOST_CASES = [
    ("ce", "rows"),
    *((name, "rows") for name in ("pauc", "pauc-pairwise", "ap", "ndcg", "recall", "staco")),
    ("pauc", "tasks"),
    ("auc-ct", "tasks"),
    ("auc-ct-heads", "tasks"),
]


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


CAPTURED_METHODS = [name for name in METHODS if name not in ("soup", "ce-average", "ce-longer", "sum")]
CASES = [*((name, "rows") for name in CAPTURED_METHODS), *((name, "tasks") for name in CAPTURED_METHODS)]


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


@needs_gpu
@pytest.mark.parametrize("optimizer", [{"name": "adam"}, {"name": "momentum", "lr": 0.1, "clip": 1.0}])
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((name, "rows") for name in ("ce", "auc", "auc-ct-heads", "pauc", "pauc-full", "mb", "ap", "ndcg")),
        *((name, kind) for name in ("sopa", "sopa-s") for kind in ("rows", "tasks")),
        ("pauc", "tasks"),
        ("auc-ct", "tasks"),
    ],
)
def test_same_training_as_without(method, kind, optimizer):
    found = []
    for capture in (False, True, "auto"):
        recipe = tiny_recipe(
            method,
            model={"dropout": 0.0},
            sampler={"kind": kind},
            optimizer=optimizer,
            schedule={"name": "cosine", "decay_blocks": True},
            training={"capture": capture, "device": "cuda"},
        )
        with torch.random.fork_rng(["cuda"]):
            torch.manual_seed(0)
            setup = make_setup(recipe)
        step = make_step(setup, pytest.fail)
        losses = []
        for number, batch in zip(range(25), setup.feed, strict=False):
            setup.set_step_sizes(number)
            losses.append(step(batch)["loss"])
        assert not capture or step.captured.recorded
        found.append([torch.stack(losses), *setup.model.parameters(), *setup.objective.state_dict().values()])
    for captured in found[1:]:
        torch.testing.assert_close(captured, found[0], rtol=1e-4, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize(("method", "kind"), CASES)
def test_every_method_is_captured_on_a_gpu(method, kind):
    found = []
    for capture in (False, "auto"):
        recipe = tiny_recipe(
            method,
            model={"dropout": 0.0},
            sampler={"kind": kind},
            optimizer={"name": "momentum", "lr": 0.1, "clip": 1.0},
            schedule={"name": "cosine", "decay_blocks": True},
            training={"capture": capture, "device": "cuda"},
        )
        with own_randomness(0, torch.device("cuda")):
            setup = make_setup(recipe)
        step, losses = make_step(setup, pytest.fail), []
        for number, batch in zip(range(12), setup.feed, strict=False):
            setup.set_step_sizes(number)
            losses.append(step(batch)["loss"])
        assert not capture or step.captured.recorded
        found.append([torch.stack(losses), *setup.model.parameters(), *setup.objective.state_dict().values()])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("capture", [False, "auto"])
@pytest.mark.parametrize(("method", "kind"), [*HOST_CASES, ("auc", "rows"), ("pauc-pairwise", "rows")])
def test_a_whole_step_never_waits_for_the_device(method, kind, capture):
    """With its batch and its optimizer; torch's debug mode does not see copies that are asked not to wait."""
    training = {"capture": capture, "device": "cuda"}
    setup = make_setup(tiny_recipe(method, sampler={"kind": kind}, training=training))
    if not setup.captured and method in ("pauc-pairwise", "auc-ct"):
        pytest.skip("counts its positives, or keeps task numbers on the host, unless it is captured")
    step, batches = make_step(setup, pytest.fail), iter(setup.feed)
    for _ in range(6):
        setup.window.add(step(next(batches)))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(4):
            setup.set_step_sizes(number)
            setup.window.add(step(next(batches)))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
def test_auto_trains_own_networks_that_wait_and_says_why(tmp_path):
    recipe = tiny_recipe("ce", training={"capture": "auto", "device": "cuda", "steps": 20})
    said = []

    class Listening(Observer):
        def say(self, message):
            said.append(message)

    waiting = resolve(merge(to_plain(recipe), {"model": {"name": "own_parts:waiting"}}))
    train(Run.create(tmp_path / "run", waiting), Listening())
    assert len([line for line in said if "kernel by kernel" in line and "waits" in line]) == 1


@needs_gpu
def test_the_last_batch_of_an_epoch_is_not_what_is_captured():
    recipe = tiny_recipe("ce", sampler={"rich_fraction": 0.0}, training={"capture": True, "device": "cuda"})
    setup = make_setup(recipe)
    step, batches = CapturedStep(setup), list(islice(setup.feed, setup.steps_per_epoch))
    for batch in (batches[-1], *batches[:6]):  # as after a resumption at the end of an epoch
        step(batch)
    assert len(batches[-1].labels) < 32
    assert step.captured.recorded


@needs_gpu
@pytest.mark.parametrize("method", ["ce", "auc-ct"])
def test_same_training_on_graphs(method):
    found = []
    for capture in (False, True):
        dataset = random_molecules().to("cuda")
        labels = Labels(dataset.labels[dataset.split["train"]].cpu())
        torch.manual_seed(0)
        model = gin(3, layers=2, width=16, dropout=0.0).cuda()
        if method == "auc-ct":
            objective = CompositionalAUC(labels, model).cuda()
            sampler = TaskSampler(labels, 2, 16, independent_lower=True)
        else:
            objective, sampler = CrossEntropy(labels).cuda(), RichRowSampler(labels, 32, 0.5)
        settings = OptimizerSettings("sgd", lr=0.05)
        setup = Setup(
            tiny_recipe(method, optimizer={"name": "sgd"}),
            dataset,
            model,
            objective,
            make_optimizer(settings, model, objective, capture),
            Feed(dataset, sampler, torch.Generator(), objective, one_shape=capture),
            20,
            10,
            Window(),
        )
        step = CapturedStep(setup) if capture else Step(setup)
        losses = [step(batch)["loss"] for _, batch in zip(range(20), setup.feed, strict=False)]
        found.append([torch.stack(losses), *model.state_dict().values()])
    for plain, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain, rtol=2e-3, atol=2e-4)
