import copy

import pytest
import torch
from torch import nn

from compositional_steps import assert_equals_solver
from mmb.auc.as_problem.compositional_problem import as_compositional_problem
from mmb.auc.as_problem.objective_problems import as_blocks
from mmb.auc.batches import DenseBatch, TaskBatch
from mmb.auc.compositional.heads import HeadCompositionalAUC
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.sampling import TaskSampler
from mmb.models import MultiTask

NUM_TASKS, NUM_ROWS, WIDTH = 5, 60, 3


def make_labels():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(NUM_ROWS, NUM_TASKS, generator=generator) < 0.3).to(torch.int8)
    labels[torch.rand(NUM_ROWS, NUM_TASKS, generator=generator) < 0.2] = -1
    return labels


def make_inputs():
    return torch.randn(NUM_ROWS, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def make_model(*layers):
    generator = torch.Generator().manual_seed(0)
    layers = layers or (nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, WIDTH), nn.Softplus())
    model = MultiTask(nn.Sequential(*layers), WIDTH, NUM_TASKS).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.7 * torch.randn(weight.shape, generator=generator))
    return model


def make(model=None, **options):
    """An objective with random block state."""
    model = make_model() if model is None else model
    options = {"inner_lr": 0.3, "lr_lower": 0.4, **options}
    objective = HeadCompositionalAUC(make_labels(), model, **options).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for state in objective.state_dict().values():
            state.add_(0.5 * torch.rand(state.shape, generator=generator, dtype=torch.float64))
    return objective, model


def task_batch(lower=True, tasks=3):
    sampler = TaskSampler(make_labels(), tasks, 8, 0.4, independent_lower=lower, generator=5)
    return next(iter(sampler)).batch(make_inputs())


def dense_batch():
    rows = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(7))[:24]
    weights = torch.rand(24, generator=torch.Generator().manual_seed(8), dtype=torch.float64) + 0.5
    return DenseBatch(make_inputs()[rows], make_labels()[rows], weights)


BATCHES = {
    "sampled": task_batch,
    "sampled, one batch": lambda: task_batch(lower=False),
    "dense": dense_batch,
}


@pytest.mark.parametrize("gradient", ["exact", "first_order"])
@pytest.mark.parametrize("feed", BATCHES)
@pytest.mark.parametrize("scores", ["sigmoid", "logit", "recentered"])
def test_equals_the_general_solver(gradient, feed, scores):
    objective, model = make(gradient=gradient, transform=scores, task_weighting=0.5)
    assert_equals_solver(objective, model, BATCHES[feed](), ("dual", "offset"), 1e-11)


def test_estimate_is_the_gradient_of_the_composition_once_the_offsets_are_there():
    """By finite differences of w -> L(w, v - inner_lr grad CE(w, v)), on all rows."""
    objective, model = make(lr_lower=1.0)
    batch = DenseBatch(make_inputs(), make_labels())
    objective.backward(model, batch)  # lr_lower = 1 puts the offsets exactly there
    model.zero_grad()
    objective.eval()
    objective.backward(model, batch)
    truth = as_compositional_problem(objective, model)
    blocks = as_blocks(objective, batch)
    means = {name: mean.detach() for name, mean in objective.named_parameters()}

    def composition(weights):
        total = 0.0
        for task in range(NUM_TASKS):
            x = {"model": weights, **means}
            one = {name: value[task] for name, value in blocks.batch.items()}
            zero = {"weight": torch.zeros(WIDTH).double(), "bias": torch.zeros(()).double()}
            there = torch.func.grad(lambda d, x=x, one=one: truth.lower(x, d, one))(zero)
            solved = {name: -value for name, value in there.items()}
            total += truth.upper(x, objective.dual[task], solved, one)
        return total / NUM_TASKS

    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    generator = torch.Generator().manual_seed(4)
    direction = {n: torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in weights.items()}
    ahead, behind = (composition({n: weights[n] + e * direction[n] for n in weights}) for e in (1e-5, -1e-5))
    along = sum((model.get_parameter(n).grad * direction[n]).sum() for n in weights)
    torch.testing.assert_close(along, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("feed", BATCHES)
def test_without_an_inner_step_it_is_minmax(feed):
    model = make_model()
    twin = copy.deepcopy(model)
    ours = HeadCompositionalAUC(make_labels(), model, inner_lr=1e-12, transform="logit").double()
    plain = MinMaxAUC(make_labels(), transform="logit").double()
    ours.backward(model, BATCHES[feed]())
    plain.backward(twin, BATCHES[feed]())
    for left, right in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.dual, plain.dual)


def test_a_task_without_labels_in_the_batch_stays_bit_identical():
    objective, model = make()
    labels = make_labels()
    labels[:, 2] = -1
    before = copy.deepcopy(objective.state_dict())
    objective.backward(model, DenseBatch(make_inputs(), labels))
    for name, value in objective.state_dict().items():
        if name in ("dual", "offset"):
            assert torch.equal(value[2], before[name][2])
            assert not torch.equal(value, before[name])
    assert not model.weight.grad[2].any()


def test_eval_mode_leaves_block_state_alone():
    objective, model = make()
    objective.eval()
    before = copy.deepcopy(objective.state_dict())
    objective.backward(model, dense_batch())
    for name, value in objective.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_takes_a_compiled_model_and_mixed_precision():
    objective, model = make(make_model(nn.Linear(4, WIDTH), nn.BatchNorm1d(WIDTH)).float())
    objective, batch = objective.float(), dense_batch()
    batch = DenseBatch(batch.inputs.float(), batch.labels, batch.weights.float())
    twin, other = copy.deepcopy(objective), copy.deepcopy(model)
    objective.backward(torch.compile(model, backend="aot_eager"), batch)
    with torch.autocast("cpu", torch.bfloat16):
        twin.backward(other, batch)
    for left, right in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=0.1, atol=0.02)
    assert torch.equal(model.encoder[1].num_batches_tracked, torch.tensor(1))


def test_says_what_is_wrong():
    model = make_model()
    for options, message in (
        ({"inner_lr": 0.0}, "inner_lr"),
        ({"lr_lower": 1.5}, "lr_lower"),
        ({"gradient": "third"}, "gradient"),
    ):
        with pytest.raises(ValueError, match=message):
            HeadCompositionalAUC(make_labels(), model, **options)
    with pytest.raises(TypeError, match="MultiTask"):
        HeadCompositionalAUC(make_labels(), nn.Linear(4, NUM_TASKS))
    with pytest.raises(ValueError, match="heads"):
        HeadCompositionalAUC(make_labels(), MultiTask(nn.Identity(), 4, 2))
    objective, model = make()
    with pytest.raises(TypeError, match="backward"):
        objective(torch.zeros(2, NUM_TASKS), torch.zeros(2, NUM_TASKS))
    before = copy.deepcopy(objective.state_dict())
    batch = task_batch()
    wrong = TaskBatch(batch.inputs, batch.labels[:, :-1], batch.tasks, lower=batch.lower)
    with pytest.raises(ValueError, match="same shape"):
        objective.backward(model, wrong)
    assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())
