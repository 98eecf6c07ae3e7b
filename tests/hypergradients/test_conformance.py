"""What every hypergradient estimator must do. A new one is tested by adding a line to ESTIMATORS."""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass

import pytest
import torch

import mmb
from quadratics import Quadratic, lower, upper


@dataclass(frozen=True)
class Case:
    make: object
    tolerance: float = 1e-8  # of the estimate once its memory has settled
    identity: bool = False  # needs a lower Hessian equal to the identity


ESTIMATORS = {
    "momentum_hessian": Case(lambda: mmb.MomentumHessian(beta=0.9)),
    "quadratic_sgd": Case(lambda: mmb.QuadraticSGD(lr=0.5, radius=100.0)),
    "identity": Case(mmb.Identity, identity=True),
    "exact": Case(mmb.Exact),
    "conjugate_gradient": Case(lambda: mmb.ConjugateGradient(iterations=6)),
    "neumann": Case(lambda: mmb.Neumann(terms=50, smoothness=2.5, randomize=False), tolerance=1e-6),
    "first_order": Case(lambda: mmb.FirstOrder(penalty=1e5, lr=0.5), tolerance=1e-3),
    "first_order_central": Case(lambda: mmb.FirstOrder(penalty=1e3, lr=0.5, order=2), tolerance=1e-3),
}


@pytest.fixture(params=ESTIMATORS)
def case(request) -> Case:
    return ESTIMATORS[request.param]


def solver_for(quadratic, case, **options):
    settings = {"lr": 0.05, "lr_dual": 0.5, "lr_lower": 0.5, "beta": 0.5} | options
    return mmb.Solver(quadratic.problem(), case.make(), **settings)


def started(solver, quadratic):
    x, dual, lower_start = quadratic.start()
    return solver.init(x, dual=dual, lower=lower_start)


def run(solver, state, quadratic, steps, blocks_per_step=3, seed=1):
    sampler = mmb.BlockSampler(quadratic.num_blocks, blocks_per_step, seed)
    return mmb.solve(solver, state, sampler=sampler, batches=quadratic.batches, steps=steps)


def everything(state):
    return [leaf.clone() for leaf in mmb.trees.tree_leaves([state.x, state.dual, state.lower, state.memory])]


def test_settles_at_the_closed_form_gradient(case):
    quadratic = Quadratic.make(identity=case.identity)
    solver = solver_for(quadratic, case, lr=lambda step: 0.0)  # x stands still
    state = started(solver, quadratic)
    info = run(solver, state, quadratic, 70, blocks_per_step=6).info
    torch.testing.assert_close(state.lower, quadratic.lower_star(state.x), atol=1e-8, rtol=0)
    torch.testing.assert_close(state.dual, quadratic.dual_star(state.x), atol=1e-8, rtol=0)
    expected = quadratic.gradient(state.x)
    assert (info.estimate - expected).norm() <= case.tolerance * expected.norm()


def test_converges_to_the_solution(case):
    quadratic = Quadratic.make(identity=case.identity)
    solver = solver_for(quadratic, case)
    state = started(solver, quadratic)
    start = quadratic.gradient(state.x).norm()
    run(solver, state, quadratic, 120, blocks_per_step=6)
    assert quadratic.gradient(state.x).norm() < 1e-2 * start


def test_scalar_lower_problem(case):
    """A lower variable without axes: y_i = x_1 + c_i in closed form."""
    constants = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    problem = mmb.Problem(
        upper=lambda x, a, y, c: 0.5 * (y - 3) ** 2 + a * y - 0.5 * a**2,
        lower=lambda x, y, c: 0.5 * (y - x[0] - c) ** 2,
        num_blocks=3,
    )
    solver = mmb.Solver(problem, case.make(), lr=lambda step: 0.0, lr_dual=0.5, lr_lower=0.5)
    x = torch.tensor([0.3, 7.0], dtype=torch.float64)
    state = solver.init(x, dual=torch.zeros(3).double(), lower=torch.zeros(3).double())
    for _ in range(60):
        info = solver.step(state, torch.arange(3), constants, constants)
    y = x[0] + constants
    expected = torch.stack([((y - 3) + y).mean(), torch.zeros(()).double()])  # alpha* = y
    assert (info.estimate - expected).norm() <= case.tolerance * expected.norm()
    assert state.lower.shape == (3,)


def test_all_blocks_equal_the_mean_of_single_blocks(case):
    quadratic = Quadratic.make(blocks=4, identity=case.identity)
    solver = solver_for(quadratic, case)
    together = started(solver, quadratic)
    run(solver, together, quadratic, 3, blocks_per_step=4)
    apart = copy.deepcopy(together)
    estimates = []
    for block in range(4):
        one = copy.deepcopy(apart)
        blocks = torch.tensor([block])
        estimates.append(solver.step(one, blocks, *quadratic.batches(blocks)).estimate)
    blocks = torch.arange(4)
    info = solver.step(together, blocks, *quadratic.batches(blocks))
    torch.testing.assert_close(info.estimate, torch.stack(estimates).mean(0), rtol=1e-8, atol=1e-9)


def test_one_block(case):
    quadratic = Quadratic.make(blocks=1, identity=case.identity)
    solver = solver_for(quadratic, case, lr=lambda step: 0.0)
    state = started(solver, quadratic)
    info = run(solver, state, quadratic, 60, blocks_per_step=1).info
    expected = quadratic.gradient(state.x)
    assert (info.estimate - expected).norm() <= case.tolerance * expected.norm()


def test_weights_scale_the_estimate_and_nothing_else(case):
    quadratic = Quadratic.make(identity=case.identity)
    solver = solver_for(quadratic, case)
    base = started(solver, quadratic)
    run(solver, base, quadratic, 2)
    blocks, weights = torch.tensor([4, 1, 2]), torch.tensor([0.5, 3.0, 1.5], dtype=torch.float64)
    singles = []
    for block in blocks:
        one = copy.deepcopy(base)
        singles.append(solver.step(one, block[None], *quadratic.batches(block[None])).estimate)
    plain, weighted = copy.deepcopy(base), copy.deepcopy(base)
    solver.step(plain, blocks, *quadratic.batches(blocks))
    info = solver.step(weighted, blocks, *quadratic.batches(blocks), weights=weights)
    expected = (weights[:, None] * torch.stack(singles)).mean(0)
    torch.testing.assert_close(info.estimate, expected, rtol=1e-9, atol=1e-12)
    for name in ("dual", "lower", "memory"):
        torch.testing.assert_close(getattr(weighted, name), getattr(plain, name), rtol=1e-10, atol=1e-12)


def test_unsampled_blocks_stay_bit_identical(case):
    quadratic = Quadratic.make(identity=case.identity)
    solver = solver_for(quadratic, case)
    state = started(solver, quadratic)
    run(solver, state, quadratic, 3)
    before = everything(state)[1:]
    blocks = torch.tensor([5, 0])
    solver.step(state, blocks, *quadratic.batches(blocks))
    untouched = torch.tensor([1, 2, 3, 4])
    for old, new in zip(before, everything(state)[1:], strict=True):
        assert torch.equal(old[untouched], new[untouched])
        assert not torch.equal(old[blocks], new[blocks])


def test_the_estimate_uses_old_values(case):
    """Doubling the steps of dual and lower variables changes the next estimate, not this one."""
    quadratic = Quadratic.make(identity=case.identity)
    slow, fast = solver_for(quadratic, case), solver_for(quadratic, case, lr_dual=1.0, lr_lower=1.0)
    one = started(slow, quadratic)
    two = copy.deepcopy(one)
    blocks = torch.tensor([0, 3])
    batches = quadratic.batches(blocks)
    assert torch.equal(slow.step(one, blocks, *batches).estimate, fast.step(two, blocks, *batches).estimate)
    assert not torch.equal(one.lower, two.lower)
    assert not torch.equal(
        slow.step(one, blocks, *batches).estimate, slow.step(two, blocks, *batches).estimate
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_dtype(case, dtype):
    quadratic = Quadratic.make(identity=case.identity, dtype=dtype)
    solver = solver_for(quadratic, case)
    state = started(solver, quadratic)
    info = run(solver, state, quadratic, 5).info
    leaves = [*everything(state), state.z, info.estimate, info.values, info.lower_residual]
    assert {leaf.dtype for leaf in leaves} == {dtype}


def test_dicts_give_the_same_path_as_tensors(case):
    """x, dual and lower as dicts of pieces, joined inside f and g, move exactly as the whole tensors do."""
    quadratic = Quadratic.make(identity=case.identity)

    def join(pieces):
        return torch.cat([pieces["head"], pieces["rest"].flatten()])

    def cut(tensor, batched):
        axis = 1 if batched else 0
        head, rest = tensor.split([1, tensor.shape[axis] - 1], dim=axis)
        return {"head": head, "rest": rest.unsqueeze(-1)}

    problem = mmb.Problem(
        upper=lambda x, a, y, batch: upper(join(x), join(a), join(y), batch),
        lower=lambda x, y, batch: lower(join(x), join(y), batch),
        num_blocks=quadratic.num_blocks,
    )
    settings = {"lr": 0.05, "lr_dual": 0.5, "lr_lower": 0.5, "beta": 0.5}
    x, dual, lower_start = quadratic.start()
    pieces = mmb.Solver(problem, case.make(), **settings)
    pieces_state = pieces.init(cut(x, False), dual=cut(dual, True), lower=cut(lower_start, True))
    run(pieces, pieces_state, quadratic, 20)
    whole = solver_for(quadratic, case)
    whole_state = started(whole, quadratic)
    run(whole, whole_state, quadratic, 20)
    torch.testing.assert_close(join(pieces_state.x), whole_state.x, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        mmb.trees.ravel_blocks(pieces_state.lower), whole_state.lower, rtol=1e-9, atol=1e-11
    )


def test_save_and_resume_is_bit_identical(case, tmp_path):
    quadratic = Quadratic.make(identity=case.identity)
    solver = solver_for(quadratic, case)
    sampler = mmb.BlockSampler(6, 3)
    state = started(solver, quadratic)
    arguments = {"sampler": sampler, "batches": quadratic.batches, "steps": 7}
    mmb.solve(solver, state, **arguments)
    torch.save({"state": state.state_dict(), "sampler": sampler.state_dict()}, tmp_path / "saved.pt")
    mmb.solve(solver, state, **arguments)

    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    resumed = started(solver, quadratic)
    resumed.load_state_dict(saved["state"])
    sampler.load_state_dict(saved["sampler"])
    mmb.solve(solver, resumed, **arguments)
    assert resumed.step == state.step == 14
    for one, two in zip(everything(state), everything(resumed), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(state.z, resumed.z)


@pytest.mark.parametrize(
    "name", sorted(ESTIMATORS.keys() - {"first_order", "first_order_central"})
)  # which sees no curvature
def test_indefinite_hessian_is_an_error_and_changes_nothing(name):
    case = ESTIMATORS[name]
    quadratic = Quadratic.make()
    solver = solver_for(quadratic, case)
    state = started(solver, quadratic)
    run(solver, state, quadratic, 10, blocks_per_step=6)
    before = everything(state)
    blocks = torch.tensor([2, 4])
    upper_batch, lower_batch = quadratic.batches(blocks)
    lower_batch["A"][1] = -torch.eye(3)
    with pytest.raises(mmb.BrokenStepError, match=r"not positive definite.*block 4") as caught:
        solver.step(state, blocks, upper_batch, lower_batch)
    assert (caught.value.quantity, caught.value.block) == ("indefinite", 4)
    for old, new in zip(before, everything(state), strict=True):
        assert torch.equal(old, new)


SHORT = {  # the same estimators with loops short enough for many steps
    "conjugate_gradient": Case(lambda: mmb.ConjugateGradient(iterations=1)),
    "neumann": Case(lambda: mmb.Neumann(terms=2, smoothness=2.5)),
}


@pytest.fixture
def frozen():
    """What there is already is left out of collections, which would take longer than all steps."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_memory_does_not_grow_over_many_steps(name):
    """What a step leaves behind is seen after a hundred; no tensor at all outlives it, as shown below."""
    quadratic = Quadratic.make(dim_x=2, dim_y=2, dim_dual=1, identity=True)
    solver = solver_for(quadratic, SHORT.get(name, ESTIMATORS[name]), lr=0.001)
    state = started(solver, quadratic)
    run(solver, state, quadratic, 20)
    tensors, resident = live_tensors(), resident_bytes()
    run(solver, state, quadratic, 100)
    assert live_tensors() == tensors
    assert resident_bytes() - resident < 2e6  # 20 kB a step


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", SHORT)
def test_no_tensor_of_a_long_loop_outlives_its_step(name):
    quadratic = Quadratic.make()
    solver = solver_for(quadratic, ESTIMATORS[name])
    state = started(solver, quadratic)
    run(solver, state, quadratic, 2)
    tensors = live_tensors()
    run(solver, state, quadratic, 5)
    assert live_tensors() == tensors


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
