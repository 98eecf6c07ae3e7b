"""On a GPU: the same numbers as on the CPU, and no step waits for the device."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from mmb import auc
from objective_bank import OBJECTIVES, estimate, make, make_data, same, state

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FREE = [
    n
    for n in OBJECTIVES
    if n.startswith(
        ("minmax", "partial", "cross", "focal", "minibatch", "sum-minmax", "sum-partial", "sum-by")
    )
]


def to_gpu(data):
    return replace(
        data, inputs=data.inputs.cuda(), labels=data.labels.cuda(), model=copy.deepcopy(data.model).cuda()
    )


def move(batch):
    fields = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in vars(batch).items()}
    return type(batch)(**fields)


@pytest.mark.parametrize("kind", ["dense", "sampled"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_same_as_on_the_cpu(name, kind):
    data = make_data()
    objective = make(name, data)
    other, there = copy.deepcopy(objective).cuda(), to_gpu(data)
    batch = data.dense() if kind == "dense" else data.sampled([0, 3])
    ours = estimate(objective, data, batch)
    theirs = estimate(other, there, move(batch))
    same(ours, {k: v.cpu() for k, v in theirs.items()}, 1e-10)
    same(state(objective), {k: v.cpu() for k, v in state(other).items()}, 1e-10)


@pytest.mark.parametrize("kind", ["dense", "sampled"])
@pytest.mark.parametrize("name", [*FREE, "pairwise-capacity"])
def test_a_step_never_waits_for_the_device(name, kind):
    data = make_data()
    objective, there = make(name, data).cuda(), to_gpu(data)
    batch = move(data.dense() if kind == "dense" else data.sampled([0, 3]))
    objective.backward(there.model, batch)  # first use may load kernels
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective.backward(there.model, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 1e200])
@pytest.mark.parametrize("name", [*FREE, "pairwise-capacity"])
def test_a_captured_step_on_bad_scores_moves_nothing(name, value):
    """Whether a batch is refused is decided on the device each time the graph is replayed."""
    data = make_data()
    objective, labels, rows = make(name, data).cuda(), data.labels.cuda(), torch.arange(24).cuda()
    good = data.rand(24, 5).cuda()
    scores = good.clone().requires_grad_()
    moved_by = [scores, *objective.parameters()]

    def step():
        loss = objective(scores, labels, rows=rows)
        return loss.detach(), torch.autograd.grad(loss, moved_by, allow_unused=True)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss, gradients = step()
    before = state(objective)
    with torch.no_grad():
        scores[tuple((labels >= 0).nonzero()[7])] = value
    graph.replay()
    assert bool(loss.isnan())
    assert not any(bool((gradient != 0).any()) for gradient in gradients if gradient is not None)
    same(state(objective), before, 0)
    with torch.no_grad():
        scores.copy_(good)
    graph.replay()  # a good batch afterwards trains as ever
    assert bool(loss.isfinite())
    assert bool((gradients[0] != 0).any())
    assert all(bool(values.isfinite().all()) for values in state(objective).values())


def test_state_is_made_where_the_labels_are():
    data = make_data()
    objective = auc.PartialAUC(data.labels.cuda())
    assert all(value.is_cuda for value in objective.state_dict().values())


@pytest.mark.parametrize("name", ["minmax", "partial-full"])
def test_compiled_equals_eager(name):
    """The backward pass must not read block state that has moved on since the forward pass."""
    torch.compiler.reset()
    data = to_gpu(make_data(dtype=torch.float32, rows=256, tasks=32))
    eager = make(name, make_data(dtype=torch.float32, rows=256, tasks=32)).cuda()
    compiled = copy.deepcopy(eager)
    whole = torch.compile(compiled, fullgraph=True)
    for _ in range(3):
        scores = [data.model(data.inputs).detach().requires_grad_() for _ in range(2)]
        for call, leaf in zip((eager, whole), scores, strict=True):
            call(leaf, data.labels).backward()
        torch.testing.assert_close(scores[0].grad, scores[1].grad, atol=1e-6, rtol=1e-4)
    same(state(eager), state(compiled), 1e-5)
