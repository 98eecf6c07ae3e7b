"""The operators against the plain sum of messages: values and derivatives of every order, for all tasks."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mmb.auc import CompositionalAUC, TaskSampler
from mmb.auc.batches import DenseBatch, TaskBatch
from mmb.models import graph_isomorphism as gin_module
from mmb.models.graph_isomorphism import gin
from mmb.models.message_operators import aligned, messages, messages_adjoint
from mmb.models.message_passing import aggregate, pass_messages
from mmb.models.task_graphs import stack_tasks
from random_graphs import random_graphs

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TASKS = 3


class Case:
    """Random features of stacked graphs, with some padding."""

    def __init__(self, device="cpu", dtype=torch.float64, width=3, graphs=2, largest=5):
        generator = torch.Generator().manual_seed(0)
        store = random_graphs(TASKS * graphs, generator, smallest=2, largest=largest)
        batch = store[torch.arange(TASKS * graphs)]
        whole = stack_tasks(batch, TASKS)
        nodes, edges = whole.node_mask.shape[1] + 2, whole.edges.shape[2] + 5
        self.graphs = stack_tasks(batch, TASKS, nodes, edges).to(device)
        self.width = width

        def random(*shape):
            return torch.randn(TASKS, *shape, generator=generator).to(device, dtype).requires_grad_()

        self.epsilon, self.nodes, self.bonds = random(1), random(nodes, width), random(60, width)
        self.node_values, self.bond_values = random(nodes, width), random(60, width)
        self.grad = random(nodes, aligned(width))
        self.weight = random(nodes, width).detach() * self.graphs.node_mask.unsqueeze(2)

    @property
    def index(self):
        return self.graphs.edges, self.graphs.bond_codes, self.graphs.edge_ptr


def fused(nodes, bonds, epsilon, graphs):
    return pass_messages(nodes, bonds, epsilon, graphs)[:, : nodes.shape[1]]


def plain(nodes, bonds, epsilon, graphs):
    return (1 + epsilon) * nodes + aggregate(nodes, bonds, graphs)


def derivatives(function, case, dtype):
    """The function of all tasks, its gradient in them, and the gradient of a function of that gradient."""
    inputs = [value.detach().to(dtype).requires_grad_() for value in (case.nodes, case.bonds, case.epsilon)]
    output = torch.vmap(function)(*inputs, case.graphs) * case.graphs.node_mask.unsqueeze(2)
    first = torch.autograd.grad((output * case.weight.to(dtype)).tanh().sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(part.square().sum() for part in first), inputs)
    return [output, *first, *second]


@pytest.mark.parametrize(
    ("device", "dtype", "tolerance"),
    [
        ("cpu", torch.float64, 1e-14),
        ("cpu", torch.bfloat16, 0.03),
        pytest.param("cuda", torch.float64, 1e-14, marks=needs_gpu),
        pytest.param("cuda", torch.float32, 1e-5, marks=needs_gpu),
        pytest.param("cuda", torch.bfloat16, 0.03, marks=needs_gpu),
    ],
)
@pytest.mark.parametrize("width", [3, 16, 300])
def test_two_derivatives_of_all_tasks_equal_those_of_the_plain_sum(device, dtype, tolerance, width):
    case = Case(device, dtype, width, graphs=60, largest=9)
    found = derivatives(fused, case, dtype)
    for got, want in zip(found, derivatives(plain, case, torch.float64), strict=True):
        assert got.dtype == dtype
        assert (got - want).norm() <= tolerance * want.norm()


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_derivatives_are_those_of_what_is_computed(check):
    case, check = Case(), partial(check, fast_mode=True)
    at, epsilon = (case.nodes.detach(), case.bonds.detach()), case.epsilon[:, 0].detach().requires_grad_()
    assert check(lambda *given: messages(*given, None, None, *case.index), (epsilon, case.nodes, case.bonds))
    assert check(
        lambda eps, *values: messages(eps, *at, *values, *case.index),
        (epsilon, case.node_values, case.bond_values),
    )
    assert check(lambda eps, grad: messages_adjoint(eps, *at, grad, *case.index), (epsilon, case.grad))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_what_is_registered_fits_together(device):
    """Schemas, shapes without values, tracing: what `torch.library` can check of an operator."""
    case = Case(device, torch.float32)
    at = [value.detach() for value in (case.epsilon[:, 0], case.nodes, case.bonds)]
    values = [value.detach() for value in (case.node_values, case.bond_values)]
    for given in ([None, None], values):
        torch.library.opcheck(torch.ops.mmb.messages.default, (*at, *given, *case.index))
    torch.library.opcheck(torch.ops.mmb.messages_adjoint.default, (*at, case.grad.detach(), *case.index))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_recorded_as_single_operations_that_compute_the_same(device):
    case = Case(device, torch.float32, width=16)
    graph = make_fx(lambda: derivatives(fused, case, torch.float32))()
    names = Counter(str(node.target) for node in graph.graph.nodes)
    assert names["mmb.messages.default"] == names["mmb.messages_adjoint.default"] == 2
    assert not any("scatter" in name or "gather" in name or "embedding" in name for name in names)
    torch.testing.assert_close(graph(), derivatives(fused, case, torch.float32))


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_within_vmap(order):
    """`torch.func.grad` of every task by itself, rather than plain autograd around all."""
    case = Case(width=8)
    inputs = [value.detach() for value in (case.nodes, case.bonds, case.epsilon)]

    def gradient(function, nodes, bonds, epsilon, graphs, weight):
        def loss(nodes, bonds, epsilon):
            return (function(nodes, bonds, epsilon, graphs) * weight).tanh().sum()

        first = torch.func.grad(loss, argnums=(0, 1, 2))
        if order == 1:
            return first(nodes, bonds, epsilon)

        def length(*given):
            return sum(part.square().sum() for part in first(*given))

        return torch.func.grad(length, argnums=(0, 1, 2))(nodes, bonds, epsilon)

    results = [
        torch.vmap(partial(gradient, function))(*inputs, case.graphs, case.weight)
        for function in (fused, plain)
    ]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-13)


def step(gradient, make_batch):
    """Everything a step of compositional training computes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (40, 4), generator=generator).to(torch.int8)
    batch = make_batch(random_graphs(40, generator), labels)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = gin(4, layers=2, width=8, dropout=0.0).double()
    objective = CompositionalAUC(labels, model, gradient=gradient).double()
    numbers = objective.backward(model, batch)
    gradients = [weight.grad for weight in (*model.parameters(), *objective.parameters())]
    return [numbers, gradients, objective.state_dict(), model.state_dict()]


def task_batch(store, labels):
    def fold(draw, lower=None):
        graphs = stack_tasks(store[draw.rows.flatten()], TASKS)
        return TaskBatch(graphs, draw.labels, draw.tasks, draw.rows, lower)

    draw = next(iter(TaskSampler(labels, TASKS, 8, independent_lower=True)))
    return fold(draw, fold(draw.lower))


def dense_batch(store, labels):
    return DenseBatch(store[torch.arange(40)], labels)


@pytest.mark.parametrize("make_batch", [task_batch, dense_batch])
@pytest.mark.parametrize("gradient", ["exact", "first_order"])
def test_compositional_training_takes_the_same_step_with_them(gradient, make_batch, monkeypatch):
    expected = step(gradient, make_batch)
    monkeypatch.setattr(gin_module, "in_kernels", lambda nodes: True)
    torch.testing.assert_close(step(gradient, make_batch), expected, rtol=1e-10, atol=1e-12)
