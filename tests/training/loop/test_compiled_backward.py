"""A gradient with a derivative of a derivative in it, recorded and compiled."""

import shutil

import pytest
import torch
from torch import nn

from mmb.training.loop.compiled_backward import CompiledBackward


class Penalized(nn.Module):
    """The squared norm of a gradient, differentiated once more, with state that moves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.rate = torch.tensor(0.5)  # as the step sizes of block variables that decay

    def backward(self, model, batch):
        loss = model(batch).pow(3).sum()
        (slope,) = torch.autograd.grad(loss, model.weight, create_graph=True)
        penalty = slope.pow(2).sum()
        penalty.backward()
        self.seen.add_(self.rate * batch.sum(0))
        return {"loss": loss.detach(), "penalty": penalty.detach()}


def parts():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    model.unused = nn.Parameter(torch.ones(1))
    return model, Penalized()


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiles for the CPU")
def test_later_calls_are_those_of_the_recorded_estimate_on_the_values_of_then():
    check_calls()


def test_a_step_that_does_not_compile_runs_as_recorded(tmp_path, monkeypatch):
    def fail(graph):
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # with nothing compiled before
    monkeypatch.setattr("torch._inductor.graph.GraphLowering.compile_to_module", fail)
    with pytest.warns(UserWarning, match=r"slower.*PassManager::run failed"):
        check_calls()


def test_another_batch_object_is_recorded_again(monkeypatch):
    monkeypatch.setattr("mmb.training.loop.compiled_backward.compiled", run_as_recorded)
    (model, objective), (plain_model, plain) = parts(), parts()
    compiled = CompiledBackward(objective, model)
    for rows in (4, 5, 5):
        batch = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(batch), plain.backward(plain_model, batch))
        torch.testing.assert_close(objective.seen, plain.seen)
        torch.testing.assert_close(model.weight.grad, plain_model.weight.grad)
        model.zero_grad()
        plain_model.zero_grad()


def run_as_recorded(recorded):
    return recorded


def check_calls():
    batch = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    (model, objective), (plain_model, plain) = parts(), parts()
    compiled = CompiledBackward(objective, model)
    for _ in range(3):
        found, expected = compiled(batch), plain.backward(plain_model, batch)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(objective.seen, plain.seen)
        for one, other in zip(model.parameters(), plain_model.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        assert model.unused.grad is None
        batch.add_(0.1)
        for rated in (objective, plain):
            rated.rate.mul_(0.7)
        for one in (model, plain_model):
            with torch.no_grad():
                one.weight -= 0.01 * one.weight.grad
            one.zero_grad()
