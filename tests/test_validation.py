"""What users hand to the solver: order of dicts, names of saved state, schedules, batches."""

import math

import pytest
import torch

import mmb
from mmb.hypergradients import ConjugateGradient, Exact


def two_duals(x, dual, lower, batch):
    gain = (dual["a"] * (x - 1)).sum() + (dual["b"] * (x + 1)).sum()
    return (x * x).sum() + gain - (dual["a"] ** 2).sum() - 5 * (dual["b"] ** 2).sum()


def solved(project_dual):
    problem = mmb.Problem(two_duals, None, 4, project_dual=project_dual)
    solver = mmb.Solver(problem, lr=0.1, lr_dual=0.05)
    state = solver.init(torch.zeros(2), dual={"a": torch.zeros(4, 2), "b": torch.zeros(4, 2)})
    mmb.solve(
        solver, state, sampler=mmb.BlockSampler(4, 4), batches=lambda blocks: (blocks.float(), None), steps=50
    )
    return state


def test_a_projection_may_order_its_dict_as_it_likes():
    free = solved(None)
    other = solved(lambda dual: {"b": dual["b"].clamp(-9, 9), "a": dual["a"].clamp(-9, 9)})
    assert torch.equal(other.x, free.x)
    assert torch.equal(other.dual["a"], free.dual["a"])


def test_a_projection_that_drops_a_dual_is_refused():
    with pytest.raises(ValueError, match=r"project_dual.*names"):
        solved(lambda dual: {"a": dual["a"]})


def test_a_projection_of_one_tensor_is_not_for_a_dict_of_duals():
    with pytest.raises(TypeError, match=r"nonnegative.*dual.*dict"):
        solved(mmb.projections.nonnegative())


def distance(x, dual, lower, batch):
    return 0.5 * (x - batch).square().sum()


def zeros(blocks):
    return torch.zeros(len(blocks), 2), None


def plain(**options):
    return mmb.Solver(mmb.Problem(distance, None, 4), **options)


def test_state_is_loaded_by_name():
    solver = mmb.Solver(mmb.Problem(lambda x, d, y, b: (x["w"] ** 2).sum() + 0 * b, None, 4), lr=0.1)
    saved = solver.init({"w": torch.zeros(2), "b": torch.full((2,), 7.0)}).state_dict()
    other = solver.init({"b": torch.zeros(2), "w": torch.ones(2)})
    other.load_state_dict(saved)
    assert other.x["b"].tolist() == [7, 7]
    assert other.x["w"].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"x:.*foo.*w"):
        solver.init({"foo": torch.zeros(2), "bar": torch.zeros(2)}).load_state_dict(saved)


def test_state_of_another_optimizer_is_refused():
    adam = plain(optimizer=lambda weights: torch.optim.Adam(weights, lr=0.1)).init(torch.zeros(2))
    sgd = plain(optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1)).init(torch.ones(2))
    with pytest.raises(ValueError, match=r"optimizer.*momentum.*betas"):
        sgd.load_state_dict(adam.state_dict())
    assert sgd.x.tolist() == [1, 1]


def test_state_of_other_groups_of_parameters_is_refused():
    def two(weights):
        return torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:]}], lr=0.1)

    start = {"w": torch.zeros(2), "b": torch.zeros(2)}
    saved = plain(optimizer=two).init(start).state_dict()
    one = plain(optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1))
    state = one.init({name: torch.ones(2) for name in start})
    with pytest.raises(ValueError, match=r"optimizer.* 2\)\].* 1\), .* 1\)\]"):
        state.load_state_dict(saved)
    assert state.x["w"].tolist() == [1, 1]


def test_moments_of_an_optimizer_go_by_the_order_of_x():
    solver = plain(optimizer=lambda weights: torch.optim.Adam(weights, lr=0.1))
    saved = solver.init({"w": torch.zeros(2), "b": torch.zeros(2)}).state_dict()
    other = solver.init({"b": torch.ones(2), "w": torch.ones(2)})
    with pytest.raises(ValueError, match=r"x:.*order.*\[.*b.*w.*\].*\[.*w.*b.*\]"):
        other.load_state_dict(saved)
    assert other.x["b"].tolist() == [1, 1]


@pytest.mark.parametrize("by_position", [True, False])
def test_a_memory_of_all_lower_variables_goes_by_their_order(by_position):
    problem = mmb.Problem(distance, lambda x, y, b: sum((leaf**2).sum() for leaf in y.values()), 4)
    estimator = mmb.MomentumHessian() if by_position else mmb.QuadraticSGD(lr=0.1)
    solver = mmb.Solver(problem, estimator, lr=0.1, lr_lower=0.1)
    lower = {"a": torch.ones(4, 1), "b": torch.zeros(4, 2)}
    saved = solver.init(torch.zeros(2), lower=lower).state_dict()
    other = solver.init(torch.ones(2), lower={"b": torch.ones(4, 2), "a": torch.ones(4, 1)})
    if by_position:
        with pytest.raises(ValueError, match=r"lower.*memory.*order"):
            other.load_state_dict(saved)
        assert other.x.tolist() == [1, 1]
    else:
        other.load_state_dict(saved)
        assert not other.lower["b"].any()


def test_an_optimizer_is_one():
    with pytest.raises(TypeError, match=r"optimizer.*Optimizer.*NoneType"):
        plain(optimizer=lambda weights: None).init(torch.zeros(2))


def test_a_batch_for_no_lower_level_is_refused():
    solver = plain(lr=0.1)
    with pytest.raises(ValueError, match=r"lower_batch.*None"):
        solver.step(solver.init(torch.zeros(2)), torch.arange(4), torch.ones(4, 2), torch.ones(4, 2))


@pytest.mark.parametrize(
    ("option", "schedule", "made"),
    [
        ("lr", lambda step: 0.1 * (1 - step / 3), 4),
        ("lr", lambda step: math.nan, 0),
        ("beta", lambda step: 1.0 + step, 1),
        ("lr", lambda step: None, 0),
        ("lr", lambda step: "0.1", 0),
    ],
)
def test_schedules_that_leave_their_range_are_refused(option, schedule, made):
    solver = plain(**{"lr": 0.1, option: schedule})
    state = solver.init(torch.ones(2))
    with pytest.raises(ValueError, match=rf"{option}.*at step {made}$"):
        mmb.solve(solver, state, sampler=mmb.BlockSampler(4, 4), batches=zeros, steps=9)
    assert state.step == made
    assert state.x.isfinite().all()


def test_weights_of_another_dtype_are_as_good():
    problem = mmb.Problem(
        lambda x, d, y, b: ((y - b) ** 2).sum(), lambda x, y, b: ((y - x) ** 2).sum(), num_blocks=4
    )
    found = []
    for dtype in (torch.float32, torch.float64):
        solver = mmb.Solver(problem, mmb.QuadraticSGD(lr=0.1), lr=0.1, lr_lower=0.1)
        state = solver.init(torch.zeros(2), lower=torch.ones(4, 2))
        for _ in range(3):
            solver.step(
                state,
                torch.arange(4),
                torch.ones(4, 2),
                torch.zeros(4, 2),
                weights=torch.tensor([1.0, 2, 3, 4], dtype=dtype),
            )
        found.append(state.x)
    assert torch.equal(*found)


def test_an_optimizer_that_raises_leaves_the_state():
    problem = mmb.Problem(lambda x, a, y, b: (a * (x - b)).sum() - (a**2).sum(), None, 4)
    solver = mmb.Solver(problem, lr_dual=0.1, optimizer=torch.optim.LBFGS)  # which needs a closure
    state = solver.init(torch.zeros(2), dual=torch.zeros(4, 2))
    with pytest.raises(TypeError):
        solver.step(state, torch.arange(4), torch.ones(4, 2))
    assert not state.dual.any()


def test_conjugate_gradients_of_a_block_that_is_fitted_already():
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(3, 4, 4, generator=generator)
    curvature = 1e-4 * (factor @ factor.mT / 4 + 0.3 * torch.eye(4))
    batch = {"a": torch.randn(3, 4, generator=generator), "margin": torch.tensor([1.0, 2.0, 30.0])}
    problem = mmb.Problem(
        lambda x, _, y, b: torch.nn.functional.softplus(-b["a"] @ y - b["margin"]),
        lambda x, y, matrix: 0.5 * (y - x) @ matrix @ (y - x),
        num_blocks=3,
    )
    found = []
    for estimator in (ConjugateGradient(), Exact()):
        solver = mmb.Solver(problem, estimator, lr=0.1, lr_lower=1e3)
        state = solver.init(torch.zeros(4), lower=torch.zeros(3, 4))
        found.append(solver.step(state, torch.arange(3), batch, curvature).estimate)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-6)


def run(batches, steps=3):
    solver = plain(lr=0.1)
    state = solver.init(torch.zeros(2))
    mmb.solve(solver, state, sampler=mmb.BlockSampler(4, 2), batches=batches, steps=steps)
    return state


def test_batches_that_are_no_pair_are_refused():
    table = torch.arange(8.0).view(4, 2)
    with pytest.raises(TypeError, match=r"batches.*upper_batch.*Tensor"):
        run(lambda blocks: table[blocks])


def test_batches_may_come_with_weights():
    table = torch.arange(8.0).view(4, 2)
    doubled = run(lambda blocks: (table[blocks], None, torch.full((2,), 2.0)), steps=1)
    once = run(lambda blocks: (table[blocks], None), steps=1)
    torch.testing.assert_close(doubled.x, 2 * once.x)


def test_nothing_inside_a_batch_is_refused():
    solver = plain(lr=0.1)
    with pytest.raises(TypeError, match=r"upper_batch.*NoneType"):
        solver.step(solver.init(torch.zeros(2)), torch.arange(4), {"t": torch.zeros(4, 2), "mask": None})


def test_a_matrix_has_no_place_on_the_simplex():
    with pytest.raises(ValueError, match=r"simplex.*vector.*\(3, 3\)"):
        mmb.projections.simplex()(torch.rand(3, 3))


def test_what_a_watch_finds_is_in_the_state_already():
    solver = plain(lr=5.0, check_every=0)
    state = solver.init(torch.full((1,), 3.0))
    with pytest.raises(mmb.BrokenStepError) as error:
        mmb.solve(
            solver,
            state,
            sampler=mmb.BlockSampler(4, 4),
            batches=lambda blocks: (blocks.float()[:, None], None),
            steps=200,
            callbacks=[mmb.Watch(100, print=lambda line: None)],
        )
    assert "as before this step" not in str(error.value)
    steep = mmb.Solver(mmb.Problem(lambda x, d, y, b: (x - x).sqrt().sum() + 0 * b, None, 4), lr=1.0)
    start = steep.init(torch.zeros(1))
    with pytest.raises(mmb.BrokenStepError, match=r"first step.*as before this step"):
        steep.step(start, torch.arange(4), torch.zeros(4))


def test_a_watch_passes_over_steps_without_blocks():
    lines = []
    watch = mmb.Watch(2, print=lines.append)
    solver = plain(lr=0.1)
    state = solver.init(torch.zeros(2))
    info = solver.step(state, torch.arange(4), torch.ones(4, 2))
    watch(state, info)
    nothing = mmb.Info(
        step=1,
        blocks=torch.zeros(0, dtype=torch.long),
        estimate=info.estimate,
        staleness=torch.zeros(0),
        values=torch.zeros(0),
        z_norm=info.z_norm,
    )
    state.last_visit = state.last_visit[:0]
    watch(state, nothing)
    assert len(lines) == 1
    assert "f 1 " in lines[0]
    assert "broken" not in lines[0]


class Square(torch.autograd.Function):
    """A square with a first derivative alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y):
        return y**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, weight):
        (y,) = ctx.saved_tensors
        return 2 * y * weight


WITHOUT_CURVATURE = {
    "absolute value": lambda x, y, b: (y - x).abs(),
    "linear": lambda x, y, b: y * x,
    "once": lambda x, y, b: Square.apply(y - x),
    "detached": lambda x, y, b: (y.detach() - x) ** 2,
    "concave": lambda x, y, b: -((y - x) ** 2),
}
ESTIMATORS = [
    mmb.MomentumHessian(0.9),
    mmb.QuadraticSGD(0.1),
    mmb.ConjugateGradient(5),
    mmb.Neumann(5, 10.0),
    mmb.Exact(),
]


@pytest.mark.parametrize("kind", WITHOUT_CURVATURE)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_lower_problems_without_second_derivatives_say_so_and_change_nothing(kind, estimator):
    problem = mmb.Problem(lambda x, a, y, b: (y - b) ** 2 + x**2, WITHOUT_CURVATURE[kind], 4)
    solver = mmb.Solver(problem, estimator, lr=0.1, lr_lower=0.1)
    state, batch, before = solver.init(torch.tensor(1.0), lower=torch.zeros(4)), torch.ones(4), {}

    def two_steps():
        for _ in range(2):  # QuadraticSGD multiplies by zero at first
            before.update(state.state_dict())
            solver.step(state, torch.arange(4), batch, batch)

    with pytest.raises(
        mmb.BrokenStepError, match=r"(?s)lower.*strongly convex.*twice.*mu.*second derivatives"
    ):
        two_steps()
    torch.testing.assert_close(state.state_dict(), before, rtol=0, atol=0)


def test_batches_nested_another_way_than_functions_take_them():
    problem = mmb.Problem(lambda x, a, y, b: (y - b) ** 2 + x**2, lambda x, y, b: (y - x) ** 2, 4)
    solver = mmb.Solver(problem, mmb.QuadraticSGD(0.1), lr=0.1, lr_lower=0.1)
    state, blocks, batch = (
        solver.init(torch.tensor(1.0), lower=torch.zeros(4)),
        torch.arange(4),
        torch.ones(4),
    )
    before = state.state_dict()
    with pytest.raises(TypeError) as error:
        solver.step(state, blocks, (batch, batch), batch)
    assert all(word in error.value.__notes__[0] for word in ("upper", "((), ())", "nesting"))
    with pytest.raises(ValueError, match=r"lower_batch.*len\(blocks\) = 4.*torch.stack"):
        solver.step(state, blocks, batch, [torch.ones(3) for _ in range(4)])
    torch.testing.assert_close(state.state_dict(), before, rtol=0, atol=0)


def test_a_batch_that_is_missing_is_said_to_be_none():
    problem = mmb.Problem(lambda x, a, y, b: (y - b) ** 2 + x**2, lambda x, y, b: (y - x - b) ** 2, 4)
    solver = mmb.Solver(problem, mmb.QuadraticSGD(0.1), lr=0.1, lr_lower=0.1)
    state = solver.init(torch.tensor(1.0), lower=torch.zeros(4))
    with pytest.raises(TypeError) as error:
        solver.step(state, torch.arange(4), torch.ones(4))
    assert all(word in error.value.__notes__[0] for word in ("lower", "None"))


NOTES = [
    (lambda x, a, y, b: (y - b) ** 2 if y > 0 else y, RuntimeError, ["torch.where", ".item()"]),
    (lambda x, a, y, b: (y - b.item()) ** 2, RuntimeError, ["torch.where", ".item()"]),
    (lambda x, a, y, b: a * y, TypeError, ["None for dual", "init"]),
    (
        lambda x, a, y, b: b[None] @ y[None].double(),
        RuntimeError,
        ["batch of torch.float32", "dtype of x0"],
    ),
    (lambda x, a, y, b: y + torch.ones((), device="meta"), RuntimeError, ["lower of cpu", "device of x0"]),
]


@pytest.mark.parametrize(("upper", "kind", "words"), NOTES)
def test_an_error_in_a_function_says_what_to_change(upper, kind, words):
    problem = mmb.Problem(upper, lambda x, y, b: (y - x - b) ** 2, 4)
    solver = mmb.Solver(problem, mmb.QuadraticSGD(0.1), lr=0.1, lr_lower=0.1)
    state, batch = solver.init(torch.tensor(1.0), lower=torch.zeros(4)), torch.ones(4)
    before = state.state_dict()
    with pytest.raises(kind) as error:
        solver.step(state, torch.arange(4), batch, batch)
    assert all(word in error.value.__notes__[0] for word in words)
    torch.testing.assert_close(state.state_dict(), before, rtol=0, atol=0)


def test_variables_on_another_device_are_refused():
    solver = mmb.Solver(mmb.Problem(distance, None, 4), lr=0.1, lr_dual=0.1)
    with pytest.raises(ValueError, match=r"dual.*cpu.*x0.*meta"):
        solver.init(torch.zeros(2), dual=torch.zeros(4, device="meta"))


@pytest.mark.parametrize(("made", "steps"), [(None, "storm"), ("storm", "saga"), ("saga", None)])
def test_a_state_goes_with_one_variance_reduction(made, steps):
    state = plain(lr=0.1, variance_reduction=made).init(torch.zeros(2))
    with pytest.raises(ValueError, match=r"state.*variance reduction.*init"):
        plain(lr=0.1, variance_reduction=steps).step(state, torch.arange(4), *zeros(range(4)))
    assert state.step == 0
