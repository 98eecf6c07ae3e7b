"""The same steps on a GPU give the same answers; runs only where there is one."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import mmb
from mmb.models.graph_isomorphism import gin
from mmb.models.masked_norm import by_kernels, by_operations
from mmb.models.message_passing import aggregate, pass_messages
from quadratics import Quadratic
from random_graphs import random_graphs
from test_solver import started, v1, v2

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("make", [v1, v2])
def test_solver_steps_equal_the_cpu(make, compile):
    states = {}
    for device in ("cpu", "cuda"):
        quadratic = Quadratic.make()
        on_device = Quadratic(**{name: tensor.to(device) for name, tensor in vars(quadratic).items()})
        solver, _ = started(make(compile=compile and device == "cuda"), quadratic)
        x, dual, lower = (tensor.to(device) for tensor in quadratic.start())
        state = solver.init(x, dual=dual, lower=lower)
        sampler = mmb.BlockSampler(6, 2)
        mmb.solve(solver, state, sampler=sampler, batches=on_device.batches, steps=20)
        states[device] = state
    for name in ("x", "dual", "lower", "memory", "z"):
        on_cpu = mmb.trees.tree_map(lambda leaf: leaf.cpu(), getattr(states["cuda"], name))
        torch.testing.assert_close(on_cpu, getattr(states["cpu"], name), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-3)])
def test_fused_messages_equal_the_plain_sum(dtype, tolerance):
    """Forward and all gradients, against the plain operations in double precision."""
    generator = torch.Generator().manual_seed(0)
    graphs = random_graphs(200, generator).to("cuda")
    rows = torch.arange(200, device="cuda")
    nodes, edges = graphs.sizes(rows.cpu())
    for batch in (graphs[rows], graphs.fixed(rows, nodes + 9, edges + 5)):
        count, width = len(batch.atom_codes), 300
        x, bonds, epsilon, weight = (
            torch.randn(*shape, generator=generator).to("cuda", dtype)
            for shape in ((count, width), (60, width), (1,), (count, width))
        )
        weight[nodes:] = 0  # nothing reads the padding
        results = []
        for fused in (True, False):
            inputs = [
                t.clone().to(dtype if fused else torch.float64).requires_grad_() for t in (x, bonds, epsilon)
            ]
            if fused:
                output = pass_messages(*inputs, batch)
                assert output.shape == (count, 304)
                assert not output[:, width:].any()
                output = output[:, :width]
            else:
                output = (1 + inputs[2]) * inputs[0] + aggregate(*inputs[:2], batch)
            gradients = torch.autograd.grad((output * weight).sum(), inputs)
            results.append([output[:nodes].double(), *(gradient.double() for gradient in gradients)])
        for one, two in zip(*results, strict=True):
            assert (one - two).norm() <= tolerance * two.norm()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("affine", [True, False])
def test_masked_norm_in_kernels_equals_operations(affine, dtype, tolerance):
    """Outputs, statistics, gradients, and gradients of these, where rows of padding have large values."""
    generator = torch.Generator().manual_seed(0)
    count, channels = 1000, 40
    rows = torch.randn(count, channels, generator=generator) + 3
    rows[700:] *= 1000
    weight, bias = torch.randn(2, channels, generator=generator) + 1
    mask = (torch.arange(count) < 700).cuda()
    factors = [torch.randn(count, channels, generator=generator).cuda() for _ in range(2)]
    factors[0][700:] = 0  # nothing reads the padding
    found = []
    for normalized, kind in ((by_kernels, dtype), (by_operations, torch.float64)):
        kept = torch.float64 if kind is torch.float64 else torch.float32
        given = [rows.to("cuda", dtype).to(kind), weight.to("cuda", kept), bias.to("cuda", kept)]
        given = [one.requires_grad_() for one in given[: 3 if affine else 1]]
        output, *statistics = normalized(*given, *([] if affine else [None, None]), mask, 1e-5)
        assert output.dtype == kind
        loss = (output.double() * factors[0]).sin().sum()
        first = torch.autograd.grad(loss, given, retain_graph=True)
        again = torch.autograd.grad(loss, given, create_graph=True)
        second = torch.autograd.grad((again[0].double() * factors[1]).sum(), given)
        parts = [output[:700], *statistics, *first, *again, *second]
        found.append([part.detach().double() for part in parts])
        assert not first[0][700:].any()
    for one, two in zip(*found, strict=True):
        assert (one - two).norm() <= tolerance * two.norm()


def test_kernels_are_compiled_once_for_batches_of_any_size():
    """Also for those whose numbers of nodes and edges are multiples of 16."""
    from mmb.models._message_kernels import backward_kernel, bonds_kernel, forward_kernel

    graphs = random_graphs(300, torch.Generator().manual_seed(0)).to("cuda")
    rows = torch.arange(200, device="cuda")
    nodes, edges = graphs.sizes(rows.cpu())
    nodes, edges, counts = -(-(nodes + 1) // 16) * 16, -(-edges // 16) * 16, []
    for more in (0, 3, 16, 19):
        batch = graphs.fixed(rows, nodes + more, edges + more)
        inputs = [torch.randn(size, 40, device="cuda", requires_grad=True) for size in (nodes + more, 60)]
        pass_messages(*inputs, torch.zeros(1, device="cuda", requires_grad=True), batch).sum().backward()
        kernels = (forward_kernel, backward_kernel, bonds_kernel)
        counts.append([len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels])
    assert counts == [counts[0]] * len(counts)


def test_a_step_kernel_by_kernel_takes_no_slow_batch_norm():
    """As many milliseconds as the log of a whole step allows; torch's kernel for rows with gaps took 7.8."""
    graphs = random_graphs(1024, torch.Generator().manual_seed(0), 24, 28).to("cuda")
    model = gin(128, dropout=0.1).cuda()
    batch = graphs[torch.arange(1024)]

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()

    step()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    norms = [event for event in seen.key_averages() if "batch_norm" in event.key]
    assert norms
    assert sum(event.self_device_time_total for event in norms) < 3e3
