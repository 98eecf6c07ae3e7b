"""The solver against hand-written loops, its limits, its options, and what it says of bad input."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch

import mmb
from mmb.distributed import Shard
from quadratics import Quadratic, lower, upper

SETTINGS = {"lr": 0.05, "lr_dual": 0.4, "lr_lower": 0.3, "beta": 0.2}


def v1(**options):
    return lambda problem: mmb.Solver(problem, mmb.MomentumHessian(beta=0.6), **SETTINGS | options)


def v2(**options):
    return lambda problem: mmb.Solver(problem, mmb.QuadraticSGD(lr=0.35, radius=0.8), **SETTINGS | options)


def started(make, quadratic, **options):
    solver = make(quadratic.problem(**options))
    x, dual, lower_start = quadratic.start()
    return solver, solver.init(x, dual=dual, lower=lower_start)


def gradients(function, *variables):
    """Gradients by plain autograd, with a graph for more."""
    return torch.autograd.grad(function, variables, create_graph=True)


def by_hand(quadratic, steps, version):
    """Algorithms 1 and 2, line by line, with a loop over blocks and plain autograd."""
    x, dual, lower_start = quadratic.start()
    dual, y = list(dual), list(lower_start)
    s = [torch.eye(3, dtype=torch.float64)] * len(y)
    v = [torch.zeros(3, dtype=torch.float64)] * len(y)
    z = torch.zeros_like(x)
    sampler = iter(mmb.BlockSampler(len(y), 2, 3))
    for _ in range(steps):
        delta = torch.zeros_like(x)
        for i in next(sampler):
            upper_batch, lower_batch = (
                mmb.trees.tree_map(lambda t: t[0], b) for b in quadratic.batches(i[None])
            )
            xi, ai, yi = (t.detach().requires_grad_() for t in (x, dual[i], y[i]))
            f = upper(xi, ai, yi, upper_batch)
            g = lower(xi, yi, lower_batch)
            f_x, f_a, f_y = gradients(f, xi, ai, yi)
            (g_y,) = gradients(g, yi)
            hessian = torch.stack([gradients(entry, yi)[0] for entry in g_y])
            chosen = torch.linalg.solve(s[i], f_y) if version == 1 else v[i]
            cross = gradients(g_y @ chosen.detach(), xi)[0]
            delta = delta + (f_x - cross).detach() / 2
            dual[i] = (dual[i] + 0.4 * f_a).clamp(min=0).detach()
            y[i] = (y[i] - 0.3 * g_y).detach()
            s[i] = (0.4 * s[i] + 0.6 * hessian).detach()
            moved = v[i] - 0.35 * (hessian @ v[i] - f_y).detach()
            v[i] = moved * min(1.0, 0.8 / moved.norm().item())
        z = 0.8 * z + 0.2 * delta
        x = x - 0.05 * z
    return x, torch.stack(dual), torch.stack(y), torch.stack(s), torch.stack(v)


@pytest.mark.parametrize("version", [1, 2])
def test_equals_the_algorithm_written_by_hand(version):
    quadratic = Quadratic.make()
    solver, state = started(
        v1() if version == 1 else v2(), quadratic, project_dual=mmb.projections.nonnegative()
    )
    mmb.solve(solver, state, sampler=mmb.BlockSampler(6, 2, 3), batches=quadratic.batches, steps=25)
    x, dual, y, s, v = by_hand(quadratic, 25, version)
    close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-12)
    close(state.x, x)
    close(state.dual, dual)
    close(state.lower, y)
    close(*((state.memory["hessian"], s) if version == 1 else (state.memory["v"], v)))
    assert (state.dual >= 0).all()
    assert (state.dual == 0).any()  # the projection was active


def test_one_block_without_lower_level_is_pdsm():
    """PDSM: primal-dual stochastic momentum, written out."""

    def f(x, a, _, t):
        return 0.5 * (x - t).square().sum() + a @ x - a.square().sum()

    target = torch.tensor([1.0, -2.0], dtype=torch.float64)
    solver = mmb.Solver(mmb.Problem(upper=f, lower=None, num_blocks=1), lr=0.1, lr_dual=0.3, beta=0.4)
    state = solver.init(torch.zeros(2).double(), dual=torch.ones(1, 2).double())
    x, a, z = torch.zeros(2).double(), torch.ones(2).double(), torch.zeros(2).double()
    for _ in range(30):
        solver.step(state, torch.tensor([0]), target[None])
        z = 0.6 * z + 0.4 * (x - target + a)
        x, a = x - 0.1 * z, a + 0.3 * (x - 2 * a)
    torch.testing.assert_close(state.x, x)
    torch.testing.assert_close(state.dual[0], a)


def test_one_block_without_dual_is_smb():
    """SMB: stochastic momentum bilevel with the Hessian momentum of v1, written out."""
    quadratic = Quadratic.make(blocks=1)
    solver = mmb.Solver(quadratic.problem(), mmb.MomentumHessian(beta=0.6), lr=0.05, lr_lower=0.3, beta=0.2)
    x, _, y = quadratic.start()
    state = solver.init(x, lower=y)
    A, B, c, t = quadratic.A[0], quadratic.B[0], quadratic.c[0], quadratic.t[0]
    y, s, z = y[0], torch.eye(3).double(), torch.zeros_like(x)
    for _ in range(30):
        solver.step(state, torch.tensor([0]), *quadratic.batches(torch.tensor([0])))
        delta = 0.5 * x + B.T @ torch.linalg.solve(s, y - t)
        z = 0.8 * z + 0.2 * delta
        y, s, x = y - 0.3 * (A @ y - B @ x - c), 0.4 * s + 0.6 * A, x - 0.05 * z
    torch.testing.assert_close(state.x, x)
    torch.testing.assert_close(state.lower[0], y)


@pytest.mark.parametrize("make", [v1, v2])
def test_torch_sgd_gives_the_same_path(make):
    quadratic = Quadratic.make()
    b = SETTINGS["beta"]
    sgd = partial(torch.optim.SGD, lr=SETTINGS["lr"], momentum=1 - b, dampening=1 - b)
    built_in = started(make(z_start="estimate"), quadratic)
    torch_made = started(make(lr=None, optimizer=sgd), quadratic)
    for solver, state in (built_in, torch_made):
        mmb.solve(solver, state, sampler=mmb.BlockSampler(6, 2), batches=quadratic.batches, steps=20)
    torch.testing.assert_close(built_in[1].x, torch_made[1].x, rtol=1e-12, atol=1e-12)
    from_zero = started(make(), quadratic)
    mmb.solve(*from_zero, sampler=mmb.BlockSampler(6, 2), batches=quadratic.batches, steps=20)
    assert (from_zero[1].x - built_in[1].x).norm() > 1e-4


def test_resume_with_a_torch_optimizer():
    quadratic = Quadratic.make()
    make = v2(lr=None, optimizer=partial(torch.optim.Adam, lr=0.01))
    solver, state = started(make, quadratic)
    arguments = {"sampler": [torch.tensor([0, 1])] * 9, "batches": quadratic.batches, "steps": 9}
    mmb.solve(solver, state, **arguments)
    saved = state.state_dict()
    mmb.solve(solver, state, **arguments)
    _, resumed = started(make, quadratic)
    resumed.load_state_dict(saved)
    mmb.solve(solver, resumed, **arguments)
    assert torch.equal(state.x, resumed.x)


def test_schedules_are_functions_of_the_step():
    quadratic = Quadratic.make()
    seen = []

    def halving(step):
        seen.append(step)
        return 0.05 * 0.5**step

    solver, state = started(v2(lr=halving, beta=1.0), quadratic)
    blocks = torch.arange(6)
    moves = []
    for _ in range(3):
        before = state.x.clone()
        info = solver.step(state, blocks, *quadratic.batches(blocks))
        moves.append((before - state.x) / info.estimate)
    assert seen == [0, 1, 2]
    torch.testing.assert_close(torch.stack(moves)[:, 0], torch.tensor([0.05, 0.025, 0.0125]).double())


def test_double_loop_gets_closer_to_the_true_gradient():
    quadratic = Quadratic.make()
    errors = []
    for inner_steps in (1, 30):
        solver, state = started(v2(inner_steps=inner_steps), quadratic)
        solver.hypergradient.radius = 100.0
        blocks = torch.arange(6)
        estimate = solver.step(state, blocks, *quadratic.batches(blocks)).estimate
        errors.append((estimate - quadratic.gradient(quadratic.start()[0])).norm())
    assert errors[1] < 0.01 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("make", [v1, v2])
def test_compiled_step_equals_eager(make):
    quadratic = Quadratic.make()
    runs = {}
    for name, options in {"eager": {}, "compiled": {"compile": True}}.items():
        decay = lambda step: 0.05 / (1 + step)  # noqa: E731
        solver, state = started(make(lr=decay, **options), quadratic, project_dual=mmb.projections.ball(1.0))
        mmb.solve(solver, state, sampler=mmb.BlockSampler(6, 2), batches=quadratic.batches, steps=10)
        runs[name] = state
    for attribute in ("x", "dual", "lower", "memory", "z"):
        torch.testing.assert_close(
            getattr(runs["compiled"], attribute), getattr(runs["eager"], attribute), rtol=1e-9, atol=1e-11
        )


@torch._dynamo.config.patch(recompile_limit=1)
def test_many_different_solvers_compile_in_one_process(monkeypatch):
    """The compiler gives up on a code object after a few entries (here one); solvers would share theirs."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    quadratic = Quadratic.make()
    blocks = torch.tensor([4, 1])
    rates = {"lr_dual": 0.1, "lr_lower": 0.1}
    for number in range(3):
        estimator = mmb.QuadraticSGD(lr=0.2, radius=1 + number) if number else mmb.MomentumHessian()
        states = []
        for compiled in (False, True):
            options = {"lr": 0.1 / (1 + number), "z_start": "estimate", "compile": compiled, **rates}
            solver, state = started(lambda p, e=estimator, o=options: mmb.Solver(p, e, **o), quadratic)
            solver.step(state, blocks, *quadratic.batches(blocks))
            states.append(state)
        torch.testing.assert_close(states[0].x, states[1].x, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(states[0].memory, states[1].memory, rtol=1e-12, atol=1e-12)


def test_schedules_of_estimators_are_not_compiled_again(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    quadratic = Quadratic.make()
    blocks = torch.tensor([4, 1])
    decay = lambda step: 0.8 / (1 + step)  # noqa: E731
    for estimator in (mmb.MomentumHessian(beta=decay), mmb.QuadraticSGD(lr=decay)):
        rates = {"lr": 0.01, "lr_dual": 0.1, "lr_lower": 0.1}
        solver = mmb.Solver(quadratic.problem(), estimator, compile=True, **rates)
        x, dual, lower = quadratic.start()
        state = solver.init(x, dual=dual, lower=lower)
        solver.step(state, blocks, *quadratic.batches(blocks))
        with torch._dynamo.config.patch(error_on_recompile=True):
            for _ in range(4):
                solver.step(state, blocks, *quadratic.batches(blocks))


def test_the_step_method_can_be_compiled_from_outside():
    """It can be traced; the code that is made from it is that of `compile=True`, tested above."""
    quadratic = Quadratic.make()
    solver, state = started(v2(), quadratic)
    eager = copy.deepcopy(state)
    step = torch.compile(solver.step, backend="aot_eager")
    for blocks in (torch.tensor([0, 4]), torch.tensor([3, 1]), torch.tensor([5, 2])):
        batches = quadratic.batches(blocks)
        solver.step(eager, blocks, *batches)
        step(state, blocks, *batches)
    torch.testing.assert_close(state.x, eager.x, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(state.lower, eager.lower, rtol=1e-10, atol=1e-12)


def test_a_network_as_x():
    """x is a module's parameters; f calls the module on the block's own data."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    data = torch.randn(5, 10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def features(x, batch):
        return torch.func.functional_call(model, x, (batch,))

    problem = mmb.Problem(
        upper=lambda x, a, y, batch: (features(x, batch) @ y - 1).square().mean() + a * y.sum() - a**2,
        lower=lambda x, y, batch: (features(x, batch) @ y - batch[:, 0]).square().mean() + y.square().sum(),
        num_blocks=5,
    )
    solver = mmb.Solver(problem, mmb.MomentumHessian(), lr=0.05, lr_dual=0.5, lr_lower=0.1)
    start = dict(model.named_parameters())
    state = solver.init(start, dual=torch.zeros(5).double(), lower=torch.zeros(5, 2).double())
    first = solver.step(state, torch.arange(5), data, data).value
    for _ in range(100):
        last = solver.step(state, torch.arange(5), data, data).value
    assert last < first
    assert all(torch.equal(start[name], parameter) for name, parameter in model.named_parameters())  # copied


def neumann(**options):
    return lambda problem: mmb.Solver(problem, mmb.Neumann(terms=3, smoothness=9.0), **SETTINGS | options)


def same_state(state, before):
    found = state.state_dict()
    tensors = zip(mmb.trees.tree_leaves(found), mmb.trees.tree_leaves(before), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in tensors)


class Fails(torch.optim.Adam):
    """Fails in its third step, after it has moved."""

    def step(self):
        super().step()
        if next(iter(self.state.values()))["step"] == 3:
            raise RuntimeError("failed")


def test_an_optimizer_that_raises_leaves_the_state_as_it_was():
    quadratic, blocks = Quadratic.make(), torch.tensor([0, 4])
    solver, state = started(neumann(lr=None, optimizer=partial(Fails, lr=0.1)), quadratic)
    for _ in range(2):
        before = copy.deepcopy(state.state_dict())
        solver.step(state, blocks, *quadratic.batches(blocks))
        assert not torch.equal(state.generator.get_state(), before["generator"])
    before = copy.deepcopy(state.state_dict())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="failed"):
            solver.step(state, blocks, *quadratic.batches(blocks))
        assert same_state(state, before)


@pytest.mark.parametrize(
    ("options", "quantity", "block"),
    [
        ({"lr": 1e308, "beta": 1.0}, "x_overflow", None),
        ({"lr_dual": 1e308}, "dual_residual", 4),
        ({"lr_lower": 1e308}, "overflow", 4),
        ({"lr": None, "optimizer": partial(torch.optim.SGD, lr=1e308)}, "x_overflow", None),
    ],
)
def test_an_update_that_overflows_is_not_written(options, quantity, block):
    quadratic, blocks = Quadratic.make(), torch.tensor([4, 0])
    upper_batch, lower_batch = (
        mmb.trees.tree_map(lambda t: 1e3 * t, batch) for batch in quadratic.batches(blocks)
    )
    solver, state = started(neumann(**options), quadratic)
    before = copy.deepcopy(state.state_dict())
    with pytest.raises(mmb.BrokenStepError, match=r"finite.*as before") as caught:
        solver.step(state, blocks, upper_batch, lower_batch)
    assert (caught.value.quantity, caught.value.block) == (quantity, block)
    assert same_state(state, before)
    unchecked, state = started(neumann(**options, check_every=0), quadratic)
    unchecked.step(state, blocks, upper_batch, lower_batch)


def test_callbacks_see_every_step_and_can_stop():
    quadratic = Quadratic.make()
    solver, state = started(v2(), quadratic)
    seen = []
    result = mmb.solve(
        solver,
        state,
        sampler=mmb.BlockSampler(6, 2),
        batches=quadratic.batches,
        steps=50,
        callbacks=[lambda state, info: info.step == 4, lambda state, info: seen.append(info.step)],
    )
    assert result.stopped
    assert seen == [0, 1, 2, 3, 4]
    assert result.state.step == 5


def bad_step(**changes):
    """Arguments of a step that is right but for the changes."""
    quadratic = Quadratic.make()
    blocks = torch.tensor([0, 3])
    upper_batch, lower_batch = quadratic.batches(blocks)
    return {"blocks": blocks, "upper_batch": upper_batch, "lower_batch": lower_batch} | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks": torch.tensor([0, 6])}, r"blocks.*0 to 5.*\[6\]"),
        ({"blocks": torch.tensor([-1, 2])}, r"blocks.*0 to 5.*\[-1\]"),
        ({"blocks": torch.tensor([2, 2])}, r"blocks.*different.*\[2\]"),
        ({"blocks": torch.tensor([0.0, 1.0])}, "blocks.*LongTensor.*float32"),
        ({"blocks": [0, 1]}, r"blocks.*LongTensor.*\[0, 1\]"),
        ({"blocks": torch.tensor([], dtype=torch.long)}, "blocks.*at least one"),
        ({"upper_batch": torch.zeros(3, 2)}, r"upper_batch.*blocks.* 2\b.*\(3, 2\)"),
        ({"lower_batch": {"A": torch.zeros(())}}, r"lower_batch.*\(\)"),
        ({"lower_batch": "text"}, "lower_batch.*tensors.*str"),
        ({"weights": torch.tensor([1.0, 0.0])}, "weights.*positive"),
        ({"weights": torch.tensor([1.0, torch.inf])}, "weights.*finite"),
        ({"weights": torch.ones(3)}, r"weights.*\(2,\).*\(3,\)"),
    ],
)
def test_bad_step_arguments(changes, words):
    solver, state = started(v2(), Quadratic.make())
    before = state.state_dict()
    arguments = bad_step(**changes)
    positional = [arguments.pop(name) for name in ("blocks", "upper_batch", "lower_batch")]
    with pytest.raises((ValueError, TypeError), match=words):
        solver.step(state, *positional, **arguments)
    assert_same(before, state.state_dict())


def assert_same(one, two):
    for old, new in zip(mmb.trees.tree_leaves(one), mmb.trees.tree_leaves(two), strict=True):
        assert torch.equal(old, new) if isinstance(old, torch.Tensor) else old == new


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"upper": lambda x, a, y, batch: y}, r"upper.*scalar.*\(3,\)"),
        ({"lower": lambda x, y, batch: y.square()}, r"lower.*scalar.*\(3,\)"),
        ({"upper": lambda x, a, y, batch: 1.0}, "upper.*scalar.*got float"),
        ({"upper": lambda x, a, y, batch: torch.tensor(1)}, "upper.*scalar.*int64"),
        ({"project_dual": lambda a: a[:1]}, r"project_dual.*shape.*\(2,\).*\(1,\)"),
        ({"project_dual": lambda a: None}, "project_dual.*shape.*NoneType"),
    ],
)
@pytest.mark.parametrize("estimator", [mmb.QuadraticSGD(lr=0.35), mmb.Exact()])
def test_bad_functions(changes, words, estimator):
    quadratic = Quadratic.make()
    problem = mmb.Problem(**{"upper": upper, "lower": lower, "num_blocks": 6} | changes)
    solver = mmb.Solver(problem, estimator, **SETTINGS)
    x, dual, lower_start = quadratic.start()
    state = solver.init(x, dual=dual, lower=lower_start)
    before = state.state_dict()
    with pytest.raises(ValueError, match=words):
        solver.step(state, *bad_step().values())
    assert_same(before, state.state_dict())


@pytest.mark.parametrize("poisoned", ["upper_batch", "lower_batch"])
def test_nan_in_data_names_the_batch_and_the_block(poisoned):
    quadratic = Quadratic.make()
    solver, state = started(v1(), quadratic)
    before = state.state_dict()
    arguments = bad_step()
    leaf = "t" if poisoned == "upper_batch" else "c"
    arguments[poisoned][leaf][1, 0] = float("nan")
    with pytest.raises(mmb.BrokenStepError, match=rf"{poisoned} holds NaN.*block 3") as caught:
        solver.step(state, *arguments.values())
    assert caught.value.block == 3
    assert_same(before, state.state_dict())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": None}, "lr, optimizer"),
        ({"optimizer": torch.optim.SGD}, "lr, optimizer"),
        ({"lr": -1.0}, "^lr: .*positive"),
        ({"lr_lower": None}, "lr_lower"),
        ({"lr_dual": float("nan")}, "lr_dual.*positive"),
        ({"beta": 1.5}, r"beta: .*\(0, 1\]"),
        ({"z_start": "one"}, "z_start"),
        ({"inner_steps": 0}, "inner_steps"),
        ({"check_every": -1}, "check_every"),
        ({"shard": 3}, "shard.*got 3"),
        ({"shard": Shard(7, 0, 3)}, "shard.*6.*7"),
    ],
)
def test_bad_solver_arguments(changes, words):
    with pytest.raises((ValueError, TypeError), match=words):
        v2(**changes)(Quadratic.make().problem())


def test_a_sampler_that_ends_early_is_named():
    known = Quadratic.make()
    solver = v2()(known.problem())
    x, dual, lower_start = known.start()
    state = solver.init(x, dual=dual, lower=lower_start)
    batches = known.batches
    with pytest.raises(ValueError, match=r"sampler.*3 steps.*1"):
        mmb.solve(solver, state, sampler=[torch.arange(2)], batches=batches, steps=3)
    assert state.step == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": -1}, "steps.*-1"),
        ({"steps": 3.0}, r"steps.*3\.0"),
        ({"steps": "3"}, "steps.*'3'"),
        ({"sampler": 5}, "sampler.*got 5"),
        ({"sampler": lambda: torch.arange(2)}, "sampler.*generator"),
        ({"batches": None}, "batches.*function.*None"),
        ({"batches": lambda blocks: (blocks,)}, "batches.*tuple of 1"),
        ({"batches": lambda blocks: (blocks,) * 5}, "batches.*tuple of 5"),
        ({"callbacks": mmb.Watch()}, r"callbacks.*list.*Watch"),
        ({"callbacks": [None]}, r"callbacks.*list.*\[None\]"),
    ],
)
def test_bad_solve_arguments(changes, words):
    quadratic = Quadratic.make()
    solver, state = started(v2(), quadratic)
    arguments = {"sampler": mmb.BlockSampler(6, 2), "batches": quadratic.batches, "steps": 3} | changes
    with pytest.raises((ValueError, TypeError), match=words):
        mmb.solve(solver, state, **arguments)
    assert state.step == 0


@pytest.mark.parametrize("estimator", [mmb.MomentumHessian(beta=0.9), mmb.Exact()])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(estimator, dtype):
    def f(x, dual, y, target):
        return (y - target).square().sum()

    def g(x, y, target):
        return (y - x).square().sum()

    problem = mmb.Problem(upper=f, lower=g, num_blocks=3)
    found = []
    for kind in (dtype, torch.float64):
        solver = mmb.Solver(problem, estimator, lr=0.1, lr_lower=0.2)
        state = solver.init(torch.ones(2, dtype=kind), lower=torch.zeros(3, 2, dtype=kind))
        targets = torch.tensor([[1.0, 2.0], [0.0, 1.0], [2.0, 2.0]], dtype=kind)
        solver.step(state, torch.arange(3), targets, targets)
        found.append(state.x.double())
    torch.testing.assert_close(*found, rtol=1e-2, atol=1e-2)


def test_a_lower_level_needs_a_hypergradient():
    with pytest.raises(TypeError, match=r"hypergradient.*lower level"):
        mmb.Solver(Quadratic.make().problem(), **SETTINGS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dual": torch.zeros(5, 2)}, r"dual.*num_blocks = 6.*\(5, 2\)"),
        ({"lower": None}, "^lower: .*None"),
        ({"lower": torch.zeros(6, 3, dtype=torch.long)}, "lower.*floating-point.*int64"),
        ({"x0": torch.tensor([float("nan")])}, "x0.*NaN"),
        ({"x0": {}}, "x0.*tensor"),
        ({"dual": None}, "dual.*project_dual"),
    ],
)
def test_bad_start(changes, words):
    x, dual, lower_start = Quadratic.make().start()
    arguments = {"x0": x, "dual": dual, "lower": lower_start} | changes
    solver = v2()(Quadratic.make().problem(project_dual=mmb.projections.nonnegative()))
    with pytest.raises((ValueError, TypeError), match=words):
        solver.init(arguments.pop("x0"), **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"upper": 3}, "upper.*function.*3"),
        ({"lower": 3}, "lower.*function.*3"),
        ({"num_blocks": 0}, "num_blocks.*whole"),
        ({"num_blocks": 2.0}, "num_blocks.*whole"),
        ({"project_dual": 1.0}, "project_dual.*function"),
    ],
)
def test_bad_problem(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        mmb.Problem(**{"upper": upper, "lower": lower, "num_blocks": 6} | arguments)


def test_state_of_another_problem_is_refused():
    _, state = started(v2(), Quadratic.make())
    _, other = started(v2(), Quadratic.make(blocks=7))
    before = state.state_dict()
    with pytest.raises(ValueError, match=r"dual.*\(6, .*\(7, "):
        state.load_state_dict(other.state_dict())
    assert_same(before, state.state_dict())


SGD = {"lr": None, "optimizer": partial(torch.optim.SGD, lr=0.1)}


@pytest.mark.parametrize(
    ("make", "other", "blocks", "words"),
    [
        (v2(**SGD), v2(), 6, "lr.*optimizer"),
        (v2(), v2(**SGD), 6, "optimizer.*lr"),
        (v1(), v2(), 6, "memory.*'v'.*'hessian'"),
        (v2(), v1(), 6, "memory.*'hessian'.*'v'"),
        (
            v2(),
            lambda problem: mmb.Solver(problem, mmb.Exact(), **SETTINGS),
            6,
            r"memory.*\[\].*'v'",
        ),
        (v2(), v2(), 4, "blocks 4.* 6"),
    ],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_state_of_another_solver_is_refused(make, other, blocks, words, fresh):
    solver = make(Quadratic.make().problem()) if fresh else started(make, Quadratic.make())[0]
    _, state = started(other, Quadratic.make(blocks=blocks))
    before = state.state_dict()
    with pytest.raises(ValueError, match=f"state: .*{words}"):
        solver.step(state, *bad_step().values())
    assert_same(before, state.state_dict())


def test_state_of_another_level_is_refused_and_a_right_one_taken_after_it():
    quadratic = Quadratic.make()
    solver, (_, state) = v2()(quadratic.problem()), started(v2(), quadratic)
    flat = mmb.Solver(mmb.Problem(lambda x, a, y, b: (x * b).sum(), None, 6), lr=0.1)
    with pytest.raises(ValueError, match=r"state.*lower level none.*one"):
        solver.step(flat.init(state.x), *bad_step().values())
    with pytest.raises(ValueError, match=r"state.*lower level one.*none"):
        flat.step(state, *bad_step().values())
    solver.step(state, *bad_step().values())
    assert state.step == 1


def test_an_estimator_of_ones_own_is_asked_for_the_memory_of_all_blocks():
    class Own(mmb.QuadraticSGD):
        def init(self, lower):
            assert len(lower) == 6
            return super().init(lower)

    problem, (_, state) = Quadratic.make().problem(), started(v2(), Quadratic.make())
    mmb.Solver(problem, Own(lr=0.35), **SETTINGS).step(state, *bad_step().values())
    assert state.step == 1


def test_duals_of_another_solver_need_a_step_size():
    _, state = started(v2(), Quadratic.make())
    with pytest.raises(ValueError, match=r"lr_dual.*duals"):
        v2(lr_dual=None)(Quadratic.make().problem()).step(state, *bad_step().values())


def test_a_process_without_blocks_has_an_empty_memory():
    solver = v1(shard=Shard(6, 6, 6))(Quadratic.make().problem())
    x, dual, lower_start = Quadratic.make().start()
    assert solver.init(x, dual=dual[:0], lower=lower_start[:0]).memory["hessian"].shape == (0, 3, 3)


def test_the_old_name_of_beta_says_the_new_one():
    with pytest.raises(TypeError, match=r"'momentum'.*beta"):
        mmb.Solver(Quadratic.make().problem(), mmb.Exact(), lr=0.1, momentum=0.1)
