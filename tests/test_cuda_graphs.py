"""A captured step computes what the step computes, wherever it runs and whatever fails."""

import warnings
from typing import NamedTuple

import pytest
import torch
from torch import nn

import mmb
import mmb.models
from mmb.cuda_graphs import WARM_UP, Captured
from on_host import HostRecorder
from random_graphs import random_graphs

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trained(wrap, device="cpu", steps=10, dropout=0.0, shapes=(8,)):
    """Losses and weights of some steps of a small network with batch normalization."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 1)).to(device)
    rate = torch.tensor(0.1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    if device == "cuda":
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, capturable=True)

    def step(inputs, labels):
        optimizer.zero_grad()
        loss = (model(inputs["rows"]) - labels).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    taken, losses, generator = wrap(step, model), [], torch.Generator().manual_seed(1)
    for number in range(steps):
        rate.fill_(0.1 / (1 + number))
        rows = torch.randn(shapes[number % len(shapes)], 4, generator=generator)
        losses.append(taken({"rows": rows.to(device)}, rows.sum(1, keepdim=True).to(device))["loss"])
    return torch.stack(losses), [*model.state_dict().values()], taken


def on_host(step, model, **options):
    state = lambda: model.state_dict().values()  # noqa: E731
    return Captured(step, recorder=lambda _: HostRecorder(state, **options), failed=print, state=state)


@pytest.mark.parametrize("shapes", [(8,), (8, 8, 5)])
def test_replays_are_steps_on_new_values(shapes):
    losses, weights, _ = trained(lambda step, _: step, shapes=shapes)
    found, others, captured = trained(on_host, shapes=shapes)
    assert captured.recorded
    torch.testing.assert_close((found, others), (losses, weights), rtol=0, atol=0)


@pytest.mark.parametrize("shapes", [(5, *(8,) * 20), (5, 8, 5, *(8,) * 20)])
def test_a_first_batch_of_a_rare_shape_is_not_what_is_recorded(shapes):
    losses, weights, _ = trained(lambda step, _: step, shapes=shapes, steps=12)
    found, others, captured = trained(on_host, shapes=shapes, steps=12)
    assert captured.recorded
    torch.testing.assert_close((found, others), (losses, weights), rtol=0, atol=0)


@pytest.mark.parametrize("fails_at", range(1, WARM_UP + 2))
def test_a_step_that_cannot_be_recorded_is_taken_once(fails_at, capsys):
    """It fails after the weights have moved: they are put back, and the loop goes on without."""
    losses, weights, _ = trained(lambda step, _: step)
    found, others, captured = trained(lambda *parts: on_host(*parts, fails_at=fails_at))
    assert captured.impossible
    assert capsys.readouterr().out.count("no graphs today") == 1
    torch.testing.assert_close((found, others), (losses, weights), rtol=0, atol=0)


def test_a_step_that_waits_is_not_recorded(capsys):
    losses, weights, _ = trained(lambda step, _: step)
    found, others, captured = trained(lambda *parts: on_host(*parts, waits=True))
    assert captured.impossible
    assert "item()" in capsys.readouterr().out
    torch.testing.assert_close((found, others), (losses, weights), rtol=0, atol=0)


def test_errors_are_raised_where_nothing_handles_them():
    captured = Captured(lambda x: x + 1, recorder=lambda _: HostRecorder(tuple, fails_at=1))
    with pytest.raises(RuntimeError, match="no graphs today"):
        captured(torch.ones(2))


def test_on_a_cpu_it_is_the_step():
    calls = []
    step = mmb.capture(lambda *inputs: calls.append(inputs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(6):
            step(torch.ones(number), number)
        step()
    assert [len(call) for call in calls] == [2] * 6 + [0]
    assert not step.recorded


class Pair(NamedTuple):
    left: torch.Tensor
    right: int


def test_named_tuples_may_be_arguments_and_results():
    captured = Captured(lambda pair: Pair(pair.left * pair.right, 1), recorder=lambda _: HostRecorder(tuple))
    found = [captured(Pair(torch.tensor(float(number)), 3)) for number in range(6)]
    assert captured.recorded
    assert [float(pair.left) for pair in found] == [0, 3, 6, 9, 12, 15]


def test_other_constants_are_not_replayed():
    captured = Captured(lambda x, factor: factor * x, recorder=lambda _: HostRecorder(tuple))
    found = [captured(torch.tensor(2.0), factor) for factor in (3, 3, 3, 3, 3, 5, 3)]
    assert captured.recorded
    assert torch.stack(found).tolist() == [6, 6, 6, 6, 6, 10, 6]


@needs_gpu
@pytest.mark.parametrize("shapes", [(8,), (8, 8, 5), (5, *(8,) * 20)])
def test_on_a_gpu_replays_are_steps(shapes):
    losses, weights, _ = trained(lambda step, _: step, "cuda", shapes=shapes, steps=12)
    found, others, captured = trained(lambda step, _: mmb.capture(step), "cuda", shapes=shapes, steps=12)
    assert captured.recorded
    torch.testing.assert_close((found, others), (losses, weights), rtol=1e-5, atol=1e-6)


@needs_gpu
def test_on_a_gpu_dropout_draws_the_same_numbers():
    losses, _, _ = trained(lambda step, _: step, "cuda", dropout=0.5)
    found, _, captured = trained(lambda step, _: mmb.capture(step), "cuda", dropout=0.5)
    assert captured.recorded
    torch.testing.assert_close(found, losses, rtol=1e-5, atol=1e-6)


@needs_gpu
def test_on_a_gpu_a_step_that_waits_is_taken_as_it_is():
    total = torch.zeros((), device="cuda")

    @mmb.capture
    def step(x):
        total.add_(x.sum())
        return total + float(total)  # waits

    with pytest.warns(UserWarning, match="waits for the device"):
        found = [step(torch.ones(3, device="cuda")) for _ in range(6)]
    assert step.impossible
    assert [float(value) for value in found] == [6, 12, 18, 24, 30, 36]


@needs_gpu
def test_on_a_gpu_training_goes_on_after_a_recording_that_failed():
    """An error in the middle of a recording must not leave the generator of random numbers unusable."""
    drawn = torch.zeros(4, device="cuda")
    weight = torch.ones(4, device="cuda")

    def step(x):
        drawn.copy_(nn.functional.dropout(weight * x, 0.5))
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("no graphs today")
        return drawn.sum()

    captured = mmb.capture(step)
    with pytest.warns(UserWarning, match="no graphs today"):
        found = [captured(torch.ones(4, device="cuda")) for _ in range(8)]
    assert captured.impossible
    assert all(bool(value.isfinite()) for value in found)
    torch.cuda.synchronize()


@needs_gpu
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_on_a_gpu_a_graph_network_is_recorded_without_compiling(precision):
    """With more nodes than torch looks up by its simplest kernel, whose derivative sorts."""
    graphs = random_graphs(600, torch.Generator().manual_seed(0), 8, 9).to("cuda")
    room = tuple(size + 64 for size in graphs.sizes(torch.arange(500)))
    found = []
    for wrap in (lambda step: step, mmb.capture):
        torch.manual_seed(0)
        model = mmb.models.gin(3, layers=2, width=20, dropout=0.0).cuda()
        optimizer = torch.optim.Adam(model.parameters(), capturable=True, fused=True)

        def step(batch, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            with torch.autocast("cuda", precision, enabled=precision != torch.float32):
                loss = model(batch).float().square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        taken = wrap(step)
        losses = [taken(graphs.fixed(torch.randperm(500).cuda(), *room)) for _ in range(8)]
        found.append(torch.stack(losses))
    assert taken.recorded
    tolerance = 1e-3 if precision == torch.float32 else 5e-2
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)
