"""GIN against a slow reference that is right by inspection, and under every transform it is used with."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from mmb.data.inputs.graphs import ATOM_DIMS, BOND_DIMS
from mmb.models.batch_norm import freeze_batch_norm, untracked_batch_norm
from mmb.models.graph_isomorphism import GIN, gin
from mmb.models.message_operators import messages
from mmb.models.task_graphs import stack_tasks
from random_graphs import random_graphs


def make(layers=3, width=8, dropout=0.0, virtual_node=False, seed=0):
    """A small GIN in float64 with every parameter random, so that none can be left out unnoticed."""
    network = GIN(layers, width, dropout, virtual_node).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return network


def batch_of(count, seed=0, **sizes):
    generator = torch.Generator().manual_seed(seed)
    return random_graphs(count, generator, **sizes)[torch.arange(count)]


def reference(network, batch):
    """The formula of GIN in training mode without dropout, with loops over nodes and edges."""

    def embed(module, dims, features):
        starts = [sum(dims[:j]) for j in range(len(dims))]
        return sum(module.weight[start + int(value)] for start, value in zip(starts, features, strict=True))

    def norm(layer, rows):
        mean = rows.mean(0)
        variance = (rows - mean).square().mean(0)
        return (rows - mean) / (variance + layer.eps).sqrt() * layer.weight + layer.bias

    def mlp(block, rows):
        hidden = norm(block.norm1, rows @ block.linear1.weight.T + block.linear1.bias).clamp(min=0)
        return norm(block.norm2, hidden @ block.linear2.weight.T + block.linear2.bias)

    nodes = [embed(network.atoms, ATOM_DIMS, features) for features in batch.atoms]
    graph_of = batch.graph.tolist()
    members = [[v for v, g in enumerate(graph_of) if g == graph] for graph in range(len(batch))]
    virtual = None if network.virtual is None else [network.virtual[0]] * len(batch)
    for number, layer in enumerate(network.layers):
        last = number == len(network.layers) - 1
        if virtual is not None:
            nodes = [x + virtual[graph_of[v]] for v, x in enumerate(nodes)]
        inputs = [(1 + layer.epsilon) * x for x in nodes]
        for source, target, features in zip(*batch.edges.tolist(), batch.bonds, strict=True):
            bond = embed(layer.bonds, BOND_DIMS, features)
            inputs[target] = inputs[target] + (nodes[source] + bond).clamp(min=0)
        if virtual is not None and not last:
            pooled = [z + sum(nodes[v] for v in members[g]) for g, z in enumerate(virtual)]
            virtual = list(mlp(network.virtual_layers[number], torch.stack(pooled)).clamp(min=0))
        outputs = mlp(layer.mlp, torch.stack(inputs))
        nodes = list(outputs if last else outputs.clamp(min=0))
    return torch.stack([torch.stack([nodes[v] for v in group]).mean(0) for group in members])


def gradients(network, output):
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weight).sum() + output.square().sum(), list(network.parameters()))


@pytest.mark.parametrize("virtual_node", [False, True])
def test_equals_the_slow_reference(virtual_node):
    network, batch = make(virtual_node=virtual_node), batch_of(7)
    output, expected = network(batch), reference(network, batch)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    for got, want in zip(gradients(network, output), gradients(network, expected), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("virtual_node", [False, True])
def test_a_graph_does_not_depend_on_the_rest_of_its_batch(virtual_node):
    """With fixed statistics, each graph alone gives its row of the batch; a mix-up of indices would not."""
    generator = torch.Generator().manual_seed(1)
    graphs = random_graphs(6, generator)
    network = make(virtual_node=virtual_node)
    network(graphs[torch.arange(6)])  # moves the running statistics off their start
    network.eval()
    order = torch.tensor([4, 0, 5, 2, 2])
    together = network(graphs[order])
    for place, row in enumerate(order):
        torch.testing.assert_close(network(graphs[row.reshape(1)])[0], together[place])


@pytest.mark.parametrize(("virtual_node", "published"), [(False, 1_923_433), (True, 3_374_533)])
def test_parameter_count_is_that_of_the_leaderboard(virtual_node, published):
    """The leaderboard was run before OGB gave chirality a fifth value: one row of 300 fewer."""
    network = gin(num_tasks=128, virtual_node=virtual_node)
    assert sum(p.numel() for p in network.parameters()) == published + 300


def test_dropout_and_modes():
    network, batch = make(dropout=0.5), batch_of(5)
    assert not torch.equal(network(batch), network(batch))
    network.eval()
    assert torch.equal(network(batch), network(batch))
    network.train()
    alone = network(
        batch_of(40, smallest=1, largest=1)
    )  # the mean over one atom shows what the last layer dropped
    assert 0.3 < (alone == 0).double().mean() < 0.7


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="layers"):
        gin(1, layers=0)
    with pytest.raises(ValueError, match="dropout"):
        gin(1, dropout=1.0)


@pytest.mark.parametrize("virtual_node", [False, True])
def test_autocast_stays_close(virtual_node):
    batch = batch_of(30, seed=3)
    network = make(virtual_node=virtual_node, width=32).float()
    exact = network(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = network(batch)
        rough.float().square().mean().backward()
    assert rough.dtype == torch.bfloat16
    assert (rough - exact).norm() / exact.norm() < 0.05
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    assert network.bfloat16()(batch).dtype == torch.bfloat16


@pytest.mark.slow
def test_compiles_whole_with_ragged_batches():
    network = make(layers=2, virtual_node=True)
    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):  # one program for batches of all sizes
        for seed, count in enumerate((7, 5, 12)):
            batch = batch_of(count, seed)
            got = gradients(network, compiled(batch))
            for one, two in zip(got, gradients(network, network(batch)), strict=True):
                torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-9)
    torch._dynamo.reset()


def stacked_case(virtual_node, tasks=3, graphs=4):
    networks = [make(virtual_node=virtual_node, seed=seed) for seed in range(tasks)]
    generator = torch.Generator().manual_seed(5)
    store = random_graphs(tasks * graphs, generator)
    rows = torch.arange(tasks * graphs).reshape(tasks, graphs)
    batches = [store[task_rows] for task_rows in rows]
    together = store[rows.flatten()]
    weights, _ = stack_module_state(networks)
    return networks, batches, together, weights


@pytest.mark.parametrize("virtual_node", [False, True])
@pytest.mark.parametrize("size", [None, 60])
def test_each_task_at_its_own_weights_in_one_go(virtual_node, size):
    networks, batches, together, weights = stacked_case(virtual_node)
    graphs = stack_tasks(together, tasks=3, nodes=size, edges=None if size is None else 2 * size)
    network = networks[0]
    statistics = {name: value.clone() for name, value in network.named_buffers()}

    def loss(weights, graphs):
        output = functional_call(network, weights, (graphs,))
        return output.pow(3).sum(), output

    with untracked_batch_norm(network):
        grads, outputs = vmap(grad(loss, has_aux=True))(weights, graphs)
    assert all(torch.equal(value, statistics[name]) for name, value in network.named_buffers())
    assert outputs.shape == (3, 4, 8)
    for task, (single, batch) in enumerate(zip(networks, batches, strict=True)):
        expected = single(batch)
        torch.testing.assert_close(outputs[task], expected, rtol=1e-9, atol=1e-10)
        wanted = torch.autograd.grad(expected.pow(3).sum(), list(single.parameters()))
        for (name, _), want in zip(single.named_parameters(), wanted, strict=True):
            torch.testing.assert_close(grads[name][task], want, rtol=1e-7, atol=1e-8)


def test_autocast_holds_for_each_task_at_its_own_weights():
    """Products and all between them: what comes out would be float32 if anything in between were."""
    networks, _, together, _ = stacked_case(virtual_node=True)
    network, graphs = networks[0].float(), stack_tasks(together, tasks=3)
    weights, _ = stack_module_state([single.float() for single in networks])
    with untracked_batch_norm(network), torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = vmap(lambda w, g: functional_call(network, w, (g,)))(weights, graphs)
    assert outputs.dtype == torch.bfloat16


@pytest.mark.parametrize("frozen", [False, True])
def test_hessian_products_for_all_tasks_at_once(frozen):
    """Forward over reverse and reverse over reverse, against a difference of gradients."""
    networks, _, together, weights = stacked_case(virtual_node=True)
    graphs, network = stack_tasks(together, tasks=3), networks[0]
    if frozen:
        freeze_batch_norm(network)
    generator = torch.Generator().manual_seed(8)
    direction = {k: torch.randn(v.shape, generator=generator, dtype=v.dtype) for k, v in weights.items()}

    def loss(weights, graphs):
        return functional_call(network, weights, (graphs,)).sin().sum()

    def forward_over_reverse(weights, direction, graphs):
        return jvp(lambda w: grad(loss)(w, graphs), (weights,), (direction,))[1]

    def reverse_over_reverse(weights, direction, graphs):
        def along(w):
            return sum(
                (g * d).sum() for g, d in zip(grad(loss)(w, graphs).values(), direction.values(), strict=True)
            )

        return grad(along)(weights)

    with untracked_batch_norm(network):
        step = 1e-6
        ahead, behind = (
            vmap(grad(loss))({k: v + sign * step * direction[k] for k, v in weights.items()}, graphs)
            for sign in (1, -1)
        )
        products = [vmap(f)(weights, direction, graphs) for f in (forward_over_reverse, reverse_over_reverse)]
    for name in weights:
        difference = (ahead[name] - behind[name]) / (2 * step)
        for product in products:
            torch.testing.assert_close(product[name], difference, rtol=1e-4, atol=1e-4)


def test_padding_leaves_running_statistics_as_without_it():
    plain, padded = make(), make()
    batch = batch_of(8)
    plain(batch)
    graphs = stack_tasks(batch, tasks=1, nodes=90, edges=200)
    squeezed = type(graphs)(*(tensor[0] for tensor in graphs.tensors()))
    assert len(squeezed) == len(batch)
    padded(squeezed)
    for one, two in zip(plain.buffers(), padded.buffers(), strict=True):
        torch.testing.assert_close(one, two)


def test_exports_with_any_number_of_graphs():
    """What deployment needs: one program for batches of every size."""
    network = make(virtual_node=True).eval()

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, *tensors):
            return self.network(type(batch)(*tensors))

    batch, other = batch_of(6), batch_of(9, seed=2)
    auto = torch.export.Dim.AUTO
    ragged = {name: {0: auto} for name in ("atom_codes", "bond_codes", "graph", "graph_ptr", "edge_ptr")}
    ragged |= {"edges": {1: auto}, "atom_table": None, "bond_table": None}
    shapes = tuple(ragged[field.name] for field in fields(batch))
    program = torch.export.export(Flat(), tuple(batch.tensors()), dynamic_shapes=(shapes,))
    torch.testing.assert_close(program.module()(*other.tensors()), network(other))


@pytest.mark.parametrize("virtual_node", [False, True])
def test_graphs_padded_to_a_fixed_size_give_the_same_features(virtual_node: bool) -> None:
    """Padding enters neither the statistics of batch norm nor the result, nor the gradients."""
    graphs = random_graphs(12, torch.Generator().manual_seed(0))
    rows = torch.tensor([3, 0, 7, 3, 11])
    model = GIN(layers=2, width=6, dropout=0.0, virtual_node=virtual_node).double()
    nodes, edges = graphs.sizes(rows)
    fixed = graphs.fixed(rows, nodes + 5, edges + 3)
    assert len(fixed) == len(rows)
    results = []
    for batch in (graphs[rows], fixed):
        model.zero_grad()
        features = model(batch)
        features.square().sum().backward()
        results.append([features, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("width", [8, 12])  # 12 is padded to a multiple of 8
def test_the_operations_of_a_gpu_give_the_same_training(width, monkeypatch):
    """Padded products and messages in one operation, with all gradients; its kernels have their own test."""
    graphs = random_graphs(12, torch.Generator().manual_seed(0))
    rows = torch.arange(12)
    batches = graphs[rows], graphs.fixed(rows, *(size + 5 for size in graphs.sizes(rows)))
    torch.manual_seed(0)
    model = gin(3, layers=2, width=width, dropout=0.0).double()
    found = []
    for name in ("plain", "as on a GPU"):
        if name != "plain":
            monkeypatch.setattr("mmb.models.graph_isomorphism.in_kernels", lambda _: True)
            monkeypatch.setattr("mmb.models.graph_isomorphism.pass_messages", as_one_operation)
        for batch in batches:
            scores = model(batch)
            gradients = torch.autograd.grad(scores.square().sum(), list(model.parameters()))
            found.append([scores, *gradients])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-8, atol=1e-9)


def as_one_operation(nodes, bonds, epsilon, batch):
    index = (part.unsqueeze(0) for part in (batch.edges, batch.bond_codes, batch.edge_ptr))
    return messages(epsilon, nodes.unsqueeze(0), bonds.unsqueeze(0), None, None, *index).squeeze(0)


@pytest.mark.parametrize("width", [8, 12])
def test_batch_norm_never_sees_rows_with_gaps(width, monkeypatch):
    """On a GPU, torch has a kernel for them that takes forty times as long."""
    monkeypatch.setattr("mmb.models.graph_isomorphism.in_kernels", lambda _: True)
    monkeypatch.setattr("mmb.models.graph_isomorphism.pass_messages", as_one_operation)
    seen = []

    class Norms(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "batch_norm" in function._schema.name:
                seen.extend(arg.is_contiguous() for arg in args if isinstance(arg, torch.Tensor))
            return function(*args, **(kwargs or {}))

    graphs = random_graphs(12, torch.Generator().manual_seed(0))
    model = gin(3, layers=2, width=width)
    with Norms():
        model(graphs[torch.arange(12)]).square().sum().backward()
    assert len(seen) > 8
    assert all(seen)
