import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from compositional_steps import assert_equals_solver, gradients
from mmb.auc.batches import DenseBatch, TaskBatch
from mmb.auc.compositional.per_task_model import is_mlp
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.sampling import TaskSampler
from mmb.models import MultiTask, mlp

NUM_TASKS, NUM_ROWS = 5, 60


def make_labels(seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(NUM_ROWS, NUM_TASKS, generator=generator) < 0.4).to(torch.int8)
    labels[torch.rand(NUM_ROWS, NUM_TASKS, generator=generator) < 0.2] = -1
    return labels


def make_inputs(dtype=torch.float64):
    return torch.randn(NUM_ROWS, 4, generator=torch.Generator().manual_seed(1)).to(dtype)


def make_model(*layers, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    layers = layers or (nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.Softplus())
    model = MultiTask(nn.Sequential(*layers), 3, NUM_TASKS).to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.7 * torch.randn(weight.shape, generator=generator))
    return model


def make(model=None, dtype=torch.float64, **options):
    """An objective with random block state."""
    generator = torch.Generator().manual_seed(3)
    model = make_model(dtype=dtype) if model is None else model
    options = {"inner_lr": 0.3, "lr_lower": 0.4, **options}
    objective = CompositionalAUC(make_labels(), model, **options).to(dtype)
    with torch.no_grad():
        for name, state in objective.state_dict().items():
            noise = torch.rand(state.shape, generator=generator, dtype=torch.float64)
            state.add_(((0.5 * noise) if "copies" not in name else (noise - 0.5)).to(state.dtype))
    return objective, model


def task_batch(lower=True, dtype=torch.float64, tasks=3):
    sampler = TaskSampler(
        make_labels(), tasks, 8, positive_fraction=0.4, independent_lower=lower, generator=5
    )
    return next(iter(sampler)).batch(make_inputs(dtype))


def dense_batch(dtype=torch.float64, weighted=True):
    rows = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(7))[:24]
    weights = torch.rand(24, generator=torch.Generator().manual_seed(8)).to(dtype) + 0.5 if weighted else None
    return DenseBatch(make_inputs(dtype)[rows], make_labels()[rows], weights)


BATCHES = {
    "sampled": task_batch,
    "sampled, one batch": lambda dtype=torch.float64: task_batch(lower=False, dtype=dtype),
    "dense": dense_batch,
}


@pytest.mark.parametrize("gradient", ["exact", "first_order"])
@pytest.mark.parametrize("feed", BATCHES)
@pytest.mark.parametrize("scores", ["sigmoid", "logit", "recentered"])
@pytest.mark.parametrize("kept", ["offsets", "weights"])
def test_equals_the_general_solver(gradient, feed, scores, kept):
    compare_with_the_general_solver(gradient, feed, scores, kept, torch.float64, 1e-10)


@pytest.mark.parametrize("kept", ["offsets", "weights"])
def test_equals_the_general_solver_in_single_precision(kept):
    compare_with_the_general_solver("exact", "sampled", "recentered", kept, torch.float32, 1e-6)


def compare_with_the_general_solver(gradient, feed, scores, kept, dtype, tolerance):
    objective, model = make(
        dtype=dtype, gradient=gradient, transform=scores, copies_as=kept, task_weighting=0.5
    )
    assert_equals_solver(objective, model, BATCHES[feed](dtype=dtype), ("dual", "copies.stacked"), tolerance)


@pytest.mark.parametrize("feed", BATCHES)
def test_without_copies_it_equals_offsets_that_are_up_to_date(feed):
    batch = BATCHES[feed]()
    kept, model = make(copies_as="offsets", lr_lower=1.0)
    start = {name: value.clone() for name, value in kept.state_dict().items()}
    kept.backward(model, batch)  # offsets are now the steps of this batch
    for name, value in start.items():
        if "copies" not in name:
            kept.state_dict()[name].copy_(value)
    found = []
    for objective in (kept, make(copies_as="none", lr_lower=1.0)[0]):
        model.zero_grad()
        objective.zero_grad()
        objective.load_state_dict(
            {name: value for name, value in start.items() if "copies" not in name}, strict=False
        )
        loss = objective.backward(model, batch)["loss"]
        found.append({"loss": loss, "dual": objective.dual.clone(), **gradients(objective, model)})
        found[-1] = {name: value.clone() for name, value in found[-1].items()}
    torch.testing.assert_close(found[0], found[1])
    assert objective.copies.footprint.bytes == 0
    assert not any("copies" in name for name in objective.state_dict())
    assert objective.memory_note() == "no weight copies"


@pytest.mark.parametrize("gradient", ["exact", "first_order"])
def test_equals_plain_autograd_task_by_task(gradient):
    """The formulas of the class, written out for one task at a time."""
    objective, model = make(gradient=gradient)
    batch = task_batch()
    old = objective.copies.stacked.clone()
    dual = objective.dual.clone()
    copies = objective.copies.split(old.clone())
    means = objective.mean_positive.detach(), objective.mean_negative.detach()
    objective.backward(model, batch)
    names = [name for name, _ in model.encoder.named_parameters()]
    expected = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}

    def logits(weights, inputs):
        *encoder, head, bias = weights
        return (
            torch.func.functional_call(model.encoder, dict(zip(names, encoder, strict=True)), inputs) @ head
            + bias
        )

    for position, task in enumerate(batch.tasks.tolist()):
        u = [part[task].requires_grad_() for part in copies]
        h = logits(u, batch.inputs[position]).sigmoid()
        positive, negative = batch.labels[position] == 1, batch.labels[position] == 0
        gap = 1 + h[negative].mean() - h[positive].mean()
        loss = (
            (h[positive] - means[0][task]).square().mean()
            + (h[negative] - means[1][task]).square().mean()
            + 2 * dual[task] * gap
            - dual[task] ** 2
        )
        v = torch.autograd.grad(loss, u)
        shared = [weight.detach().clone().requires_grad_() for weight in model.encoder.parameters()]
        w = [
            *shared,
            model.weight[task].detach().requires_grad_(),
            model.bias[task].detach().requires_grad_(),
        ]
        s = logits(w, batch.lower.inputs[position])
        positive, negative = batch.lower.labels[position] == 1, batch.lower.labels[position] == 0
        ce = 0.5 * functional.softplus(-s[positive]).mean() + 0.5 * functional.softplus(s[negative]).mean()
        slope = torch.autograd.grad(ce, w, create_graph=True)
        product = torch.autograd.grad(slope, w, v)
        delta = [
            a - (objective.inner_lr * b if gradient == "exact" else 0)
            for a, b in zip(v, product, strict=True)
        ]
        for name, part in zip(names, delta, strict=False):
            expected[f"encoder.{name}"] += part / 3
        expected["weight"][task] += delta[-2] / 3
        expected["bias"][task] += delta[-1] / 3
        new = [part[task] for part in objective.copies.split(objective.copies.stacked)]
        for a, b, c, d in zip(new, u, w, slope, strict=True):
            target = c - objective.inner_lr * d
            torch.testing.assert_close(a, (b - objective.lr_lower * (b - target)).detach())
        torch.testing.assert_close(
            objective.dual[task], (dual[task] + objective.lr_dual * 2 * (gap - dual[task])).detach()
        )
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], msg=lambda m, n=name: f"{n}: {m}")


def test_estimate_is_the_gradient_of_the_composition_once_the_copies_are_there():
    """With copies at their lower solution, Delta is the gradient of w -> L(w - inner_lr grad CE(w))."""
    objective, model = make(lr_lower=1.0)
    batch = task_batch(tasks=NUM_TASKS)
    objective.backward(model, batch)  # lr_lower = 1 puts the copies exactly there
    model.zero_grad()
    objective.zero_grad()
    dual, means = objective.dual.clone(), (objective.mean_positive.detach(), objective.mean_negative.detach())
    objective.backward(model, batch)

    def composition(weights):
        total = 0.0
        for position, task in enumerate(batch.tasks.tolist()):
            names = [n for n in weights if "." in n]
            own = {n: weights[n] for n in names} | {n: weights[n][task] for n in ("weight", "bias")}

            def logits(own, part, position=position):
                encoder = {n[8:]: own[n] for n in own if "." in n}
                features = torch.func.functional_call(model.encoder, encoder, part.inputs[position])
                return features @ own["weight"] + own["bias"]

            def ce(own, part=batch.lower, position=position, logits=logits):
                s, y = logits(own, part), part.labels[position]
                return 0.5 * (functional.softplus(-s[y == 1]).mean() + functional.softplus(s[y == 0]).mean())

            slope = torch.func.grad(ce)(own)
            h = logits({n: own[n] - objective.inner_lr * slope[n] for n in own}, batch).sigmoid()
            y = batch.labels[position]
            loss = (h[y == 1] - means[0][task]).square().mean() + (h[y == 0] - means[1][task]).square().mean()
            total = (
                total + loss + 2 * dual[task] * (1 + h[y == 0].mean() - h[y == 1].mean()) - dual[task] ** 2
            )
        return total / NUM_TASKS

    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    truth = torch.func.grad(composition)(weights)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, truth[name], msg=lambda m, n=name: f"{n}: {m}")
    # and by finite differences, which share no code with autograd
    direction = {name: torch.randn_like(value) for name, value in weights.items()}
    step = 1e-5
    ahead, behind = (
        composition({n: weights[n] + sign * step * direction[n] for n in weights}) for sign in (1, -1)
    )
    along = sum((model.get_parameter(n).grad * direction[n]).sum() for n in weights)
    torch.testing.assert_close(along, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-9)


def test_first_step_with_tiny_inner_step_is_minmax():
    """Copies start at the weights: without the inner step the estimate is MinMaxAUC's."""
    model = make_model()
    twin = copy.deepcopy(model)
    for batch in (task_batch(), dense_batch()):
        model.zero_grad()
        twin.zero_grad()
        ours = CompositionalAUC(make_labels(), model, inner_lr=1e-12).double()
        ours.backward(model, batch)
        plain = MinMaxAUC(make_labels()).double()
        plain.backward(twin, batch)
        for left, right in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(ours.dual, plain.dual)


def test_offsets_follow_the_weights_and_copies_stay_behind():
    """However far the model moved since a task was sampled, its copy is one inner step from it."""
    batch, model = task_batch(), make_model()
    plain, offsets, weights = (
        make_kind().double()
        for make_kind in (
            lambda: MinMaxAUC(make_labels()),
            lambda: CompositionalAUC(make_labels(), model, inner_lr=1e-12, copies_as="offsets"),
            lambda: CompositionalAUC(make_labels(), model, inner_lr=1e-12),
        )
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(9)))
    found = []
    for objective in (plain, offsets, weights):
        model.zero_grad()
        objective.backward(model, batch)
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-11)
    assert (found[2] - found[0]).norm() > 0.05 * found[0].norm()
    offsets.copies.reset(model)
    assert not offsets.copies.stacked.any()


def test_gradients_accumulate():
    objective, model = make()
    batch = task_batch()
    twin = copy.deepcopy(objective)
    objective.backward(model, batch)
    once = {name: value.clone() for name, value in gradients(objective, model).items()}
    twin.backward(model, batch)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, 2 * once[f"model.{name}"])


def test_eval_mode_leaves_block_state_alone_and_gives_the_same_gradient():
    objective, model = make()
    still, twin = copy.deepcopy(objective).eval(), copy.deepcopy(model)
    before = copy.deepcopy(still.state_dict())
    objective.backward(model, task_batch())
    still.backward(twin, task_batch())
    for name, value in still.state_dict().items():
        assert torch.equal(value, before[name]), name
    for left, right in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(left.grad, right.grad)


def test_a_task_without_labels_in_the_batch_stays_bit_identical():
    for batch in (task_batch(), dense_batch()):
        objective, model = make()
        labels = batch.labels.clone()
        if isinstance(batch, TaskBatch):
            labels[1] = -1
            task = int(batch.tasks[1])
            batch = TaskBatch(batch.inputs, labels, batch.tasks, lower=batch.lower)
        else:
            labels[:, 2], task = -1, 2
            batch = DenseBatch(batch.inputs, labels)
        before = copy.deepcopy(objective.state_dict())
        objective.backward(model, batch)
        after = objective.state_dict()
        for name in ("dual", "copies.stacked"):
            assert torch.equal(after[name][task], before[name][task])
            assert not torch.equal(after[name], before[name])
        assert model.weight.grad[task].abs().max() == 0
        assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_a_class_absent_from_the_batch_gives_finite_numbers():
    objective, model = make()
    batch = task_batch(lower=False)
    labels = batch.labels.clone()
    labels[0] = 0
    labels[1] = 1
    objective.backward(model, TaskBatch(batch.inputs, labels, batch.tasks))
    assert all(value.isfinite().all() for value in gradients(objective, model).values())
    assert all(value.isfinite().all() for value in objective.state_dict().values())


class TestCopies:
    def test_state_dict_resumes_bit_for_bit(self):
        objective, model = make()
        sampler = TaskSampler(make_labels(), 2, 6, independent_lower=True)
        optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)

        def run(steps):
            for _, draw in zip(range(steps), sampler, strict=False):
                optimizer.zero_grad()
                objective.backward(model, draw.batch(make_inputs()))
                optimizer.step()

        run(2)
        saved = copy.deepcopy((objective.state_dict(), model.state_dict(), sampler.state_dict()))
        run(2)
        expected = copy.deepcopy((objective.state_dict(), model.state_dict()))
        objective.load_state_dict(saved[0])
        model.load_state_dict(saved[1])
        sampler.load_state_dict(saved[2])
        run(2)
        for left, right in zip((objective.state_dict(), model.state_dict()), expected, strict=True):
            for name in right:
                assert torch.equal(left[name], right[name]), name

    def test_memory_is_reported(self):
        objective, model = make(dtype=torch.float32)
        per_task = sum(weight.numel() for weight in model.encoder.parameters()) + 3 + 1
        assert objective.copies.stacked.shape == (NUM_TASKS, per_task)
        assert objective.memory_bytes() == 4 * NUM_TASKS * (per_task + 3)

    def test_smaller_dtype_stays_and_tracks(self):
        full, model = make(dtype=torch.float32, lr_lower=1.0)
        small = CompositionalAUC(
            make_labels(), model, inner_lr=0.3, lr_lower=1.0, copies_dtype=torch.bfloat16
        )
        small = small.to(torch.float32)
        assert small.copies.stacked.dtype == torch.bfloat16
        assert small.memory_bytes() < full.memory_bytes()
        batch = task_batch(dtype=torch.float32)
        small.load_state_dict(full.state_dict())
        full.backward(model, batch)
        model.zero_grad()
        small.backward(model, batch)
        new = full.copies.stacked[batch.tasks]
        torch.testing.assert_close(small.copies.stacked[batch.tasks].float(), new, rtol=2**-8, atol=1e-6)
        assert torch.equal(small.copies.stacked[batch.tasks], new.bfloat16())

    def test_storage_device_stays_where_it_was_put(self):
        _, model = make(dtype=torch.float32)
        follows = CompositionalAUC(make_labels(), model)
        fixed = CompositionalAUC(make_labels(), model, copies_device="cpu")
        assert follows.to("meta").copies.stacked.device.type == "meta"
        assert fixed.to("meta").copies.stacked.device.type == "cpu"
        assert fixed.dual.device.type == "meta"

    def test_dtype_follows_unless_chosen(self):
        _, model = make(dtype=torch.float32)
        assert CompositionalAUC(make_labels(), model).double().copies.stacked.dtype == torch.float64
        fixed = CompositionalAUC(make_labels(), model, copies_dtype=torch.float16)
        assert fixed.double().copies.stacked.dtype == torch.float16
        assert fixed.dual.dtype == torch.float64

    def test_reset_puts_them_at_the_weights(self):
        objective, model = make()
        objective.copies.reset(model)
        parts = objective.copies.split(objective.copies.stacked)
        for part, weight in zip(parts, model.encoder.parameters(), strict=False):
            for copied in part:
                assert torch.equal(copied, weight)
        assert torch.equal(parts[-2], model.weight)
        assert torch.equal(parts[-1], model.bias)

    def test_frozen_parameters_are_not_copied(self):
        model = make_model()
        model.encoder[0].requires_grad_(False)
        objective, _ = make(model)
        assert objective.copies.names == ["2.weight", "2.bias"]
        objective.backward(model, task_batch())
        assert model.encoder[0].weight.grad is None
        assert model.encoder[2].weight.grad.abs().max() > 0
        model.encoder.requires_grad_(False)
        for gradient in ("exact", "first_order"):
            objective, _ = make(model, gradient=gradient)
            assert objective.copies.names == []
            model.zero_grad()
            objective.backward(model, task_batch())
            objective.backward(model, dense_batch())
            assert model.weight.grad.abs().max() > 0


class TestPlainPerceptrons:
    """Linear and pointwise layers in sequence are evaluated without vmap: to the same numbers."""

    @pytest.mark.parametrize("gradient", ["exact", "first_order"])
    @pytest.mark.parametrize("feed", BATCHES)
    @pytest.mark.parametrize("frozen", [[], ["0.weight", "2.bias"]])
    def test_equals_vmap(self, gradient, feed, frozen, monkeypatch):
        model = make_model(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3, bias=False), nn.GELU())
        if frozen:
            model = make_model()
            for name in frozen:
                model.encoder.get_parameter(name).requires_grad_(False)
        objective, _ = make(model, gradient=gradient)
        twin, other = copy.deepcopy(objective), copy.deepcopy(model)
        assert is_mlp(model.encoder)
        objective.backward(model, BATCHES[feed]())
        monkeypatch.setattr("mmb.auc.compositional.per_task_model.is_mlp", lambda encoder: False)
        twin.backward(other, BATCHES[feed]())
        for left, right in zip(model.parameters(), other.parameters(), strict=True):
            assert (left.grad is None) == (right.grad is None)
            if left.grad is not None:
                torch.testing.assert_close(left.grad, right.grad)
        torch.testing.assert_close(objective.state_dict(), twin.state_dict())

    def test_what_is_not_plain(self):
        class Double(nn.Linear):
            def forward(self, inputs):
                return 2 * super().forward(inputs)

        linear = nn.Linear(3, 3)
        hooked = nn.Sequential(nn.Linear(3, 3))
        hooked[0].register_forward_hook(lambda *_: None)
        tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        tied[1].weight = tied[0].weight
        for encoder in (
            linear,
            nn.Sequential(nn.Linear(3, 3), nn.Softmax(1)),
            nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
            nn.Sequential(Double(3, 3)),
            nn.Sequential(linear, linear),
            nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))),
            hooked,
            tied,
        ):
            assert not is_mlp(encoder)
        assert is_mlp(mlp(4, [3, 3], 2, dropout=0.1).encoder)

    @pytest.mark.parametrize("kind", ["shared module", "shared parameter", "bare layer"])
    def test_other_encoders_are_right_too_and_stay_whole(self, kind):
        layer, second = nn.Linear(3, 3), nn.Linear(3, 3)
        second.weight = layer.weight
        second = layer if kind == "shared module" else second
        model = make_model(nn.Linear(4, 3), nn.Tanh(), layer, nn.Tanh(), second)
        if kind == "bare layer":
            model.encoder = nn.Linear(4, 3).double()
        objective, _ = make(model, inner_lr=1e-12)
        objective.copies.reset(model)
        plain, other = MinMaxAUC(make_labels()).double(), copy.deepcopy(model)
        plain.load_state_dict({k: v for k, v in objective.state_dict().items() if "copies" not in k})
        for batch in (task_batch(), dense_batch()):
            objective.copies.reset(model)
            objective.backward(model, batch)
            plain.backward(other, batch)
        for left, right in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad, rtol=1e-8, atol=1e-10)
        assert list(dict(model.named_parameters())) == list(dict(other.named_parameters()))


class TestBatchNormalization:
    def build(self, **options):
        model = make_model(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh())
        return make(model, **options)

    @pytest.mark.parametrize("gradient", ["exact", "first_order"])
    def test_running_statistics_move_to_the_mean_over_tasks(self, gradient):
        objective, model = self.build(gradient=gradient)
        batch = task_batch()
        norm = model.encoder[1]
        hidden = model.encoder[0](batch.lower.inputs).detach()  # [k, r, 3], the model's own weights
        mean, variance = hidden.mean(1).mean(0), hidden.var(1).mean(0)
        objective.backward(model, batch)
        torch.testing.assert_close(norm.running_mean, 0.1 * mean)
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance)
        assert norm.num_batches_tracked == 1

    @pytest.mark.parametrize("gradient", ["exact", "first_order"])
    @pytest.mark.parametrize(("layer", "axis"), [(nn.BatchNorm1d, 0), (nn.LayerNorm, 1)])
    def test_equals_the_formula_on_each_tasks_own_rows(self, layer, axis, gradient):
        """Normalization written out gives the same gradient; its second derivatives are easily got wrong."""

        class Normalize(nn.Module):
            def __init__(self, norm):
                super().__init__()
                self.weight, self.bias = norm.weight, norm.bias

            def forward(self, hidden):
                centered = hidden - hidden.mean(axis, keepdim=True)
                scale = (centered.square().mean(axis, keepdim=True) + 1e-5).sqrt()
                return centered / scale * self.weight + self.bias

        model = make_model(nn.Linear(4, 3), layer(3), nn.Tanh())
        objective, _ = make(model, gradient=gradient)
        other, twin = copy.deepcopy(model), copy.deepcopy(objective)
        other.encoder[1] = Normalize(other.encoder[1])
        objective.backward(model, task_batch())
        twin.backward(other, task_batch())
        for name, weight in other.named_parameters():
            torch.testing.assert_close(model.get_parameter(name).grad, weight.grad)
        torch.testing.assert_close(objective.copies.stacked, twin.copies.stacked)

    @pytest.mark.parametrize("gradient", ["exact", "first_order"])
    def test_eval_mode_uses_and_keeps_running_statistics(self, gradient):
        objective, model = self.build(gradient=gradient)
        norm = model.encoder[1]
        norm.running_mean.fill_(0.3)
        norm.running_var.fill_(2.0)
        model.eval()
        before = copy.deepcopy(model.state_dict())
        objective.backward(model, task_batch())
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]), name
        first = model.encoder[0].weight.grad.clone()
        norm.running_var.fill_(4.0)
        model.zero_grad()
        objective.backward(model, task_batch())
        assert not torch.allclose(model.encoder[0].weight.grad, first)

    def test_other_buffers_stay_exactly_as_they_are(self):
        model = make_model(nn.Linear(4, 3), nn.Tanh())
        model.encoder.register_buffer("constant", torch.tensor([0.1, 1 / 3]))
        objective, _ = make(model)
        objective.backward(model, task_batch())
        assert torch.equal(model.encoder.constant, torch.tensor([0.1, 1 / 3]))


@pytest.mark.parametrize("gradient", ["exact", "first_order"])
def test_parameters_the_encoder_does_not_use_get_no_gradient(gradient):
    model = make_model()
    model.encoder[3].spare = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    objective, _ = make(model, gradient=gradient)
    objective.backward(model, task_batch())
    assert model.encoder[3].spare.grad.abs().max() == 0
    assert model.encoder[0].weight.grad.abs().max() > 0


@pytest.mark.parametrize("gradient", ["exact", "first_order"])
def test_convolutions_dropout_pooling_and_nested_inputs(gradient):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolve = nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(0.2)
            )
            self.embed = nn.Embedding(7, 4)

        def forward(self, inputs):
            return self.convolve(inputs["image"]).mean((2, 3)) + self.embed(inputs["kind"])

    labels = make_labels()
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "image": torch.randn(NUM_ROWS, 1, 8, 8, generator=generator),
        "kind": torch.randint(7, (NUM_ROWS,), generator=generator),
    }
    model = MultiTask(Encoder(), 4, NUM_TASKS)
    objective = CompositionalAUC(labels, model, gradient=gradient)
    torch.manual_seed(0)  # dropout
    for draw in TaskSampler(labels, 2, 8, independent_lower=True, steps_per_epoch=2):
        objective.backward(model, draw.batch(inputs))
    dense = DenseBatch({name: value[:16] for name, value in inputs.items()}, labels[:16])
    objective.backward(model, dense)
    for name, weight in model.named_parameters():
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


@pytest.mark.parametrize("gradient", ["exact", "first_order"])
@pytest.mark.parametrize("seed", range(2))
def test_improves_auc_on_an_imbalanced_problem(gradient, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(600, 8, generator=generator)
    direction = torch.randn(8, 4, generator=generator)
    scores = inputs @ direction + 1.5 * torch.randn(600, 4, generator=generator)
    labels = (scores > scores.quantile(0.9, dim=0)).to(torch.int8)  # one in ten
    torch.manual_seed(seed)  # the model's start
    model = mlp(8, [16], 4)
    objective = CompositionalAUC(labels, model, gradient=gradient)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)

    def auc():
        with torch.no_grad():
            out = model(inputs)
        found = []
        for task in range(4):
            positive, negative = out[labels[:, task] == 1, task], out[labels[:, task] == 0, task]
            found.append((positive[:, None] > negative).float().mean())
        return float(torch.stack(found).mean())

    start = auc()
    for draw in TaskSampler(labels, 2, 32, independent_lower=True, steps_per_epoch=150, generator=seed):
        optimizer.zero_grad()
        objective.backward(model, draw.batch(inputs))
        optimizer.step()
    assert auc() > max(start + 0.1, 0.75)


class TestBadInput:
    def refuse(self, error, message, batch, model=None):
        objective, own = make()
        model = own if model is None else model
        before = copy.deepcopy(objective.state_dict())
        with pytest.raises(error, match=message):
            objective.backward(model, batch)
        for name, value in objective.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert all(weight.grad is None for weight in own.parameters())

    def test_labels_outside_zero_one_missing(self):
        batch = task_batch()
        labels = batch.labels.clone()
        labels[0, 0] = 3
        self.refuse(ValueError, r"labels.*0, 1", TaskBatch(batch.inputs, labels, batch.tasks))

    def test_unknown_task(self):
        batch = task_batch()
        self.refuse(ValueError, r"task.*99", TaskBatch(batch.inputs, batch.labels, torch.tensor([0, 1, 99])))

    def test_lower_batch_of_other_tasks(self):
        batch = task_batch()
        lower = TaskBatch(batch.inputs, batch.labels, (batch.tasks + 1) % NUM_TASKS)
        self.refuse(ValueError, "same tasks", TaskBatch(batch.inputs, batch.labels, batch.tasks, lower=lower))

    def test_rows_of_inputs_and_labels_differ(self):
        batch = task_batch()
        self.refuse(ValueError, "logits", TaskBatch(batch.inputs[:, :5], batch.labels, batch.tasks))
        lower = TaskBatch(batch.inputs[:, :5], batch.labels, batch.tasks)  # found after the upper evaluation
        self.refuse(ValueError, "logits", TaskBatch(batch.inputs, batch.labels, batch.tasks, lower=lower))

    def test_inputs_without_task_axis(self):
        batch = task_batch()
        self.refuse(TypeError, "first axis", TaskBatch(batch.inputs[0], batch.labels, batch.tasks))
        self.refuse(TypeError, "first axis", TaskBatch("rows", batch.labels, batch.tasks))

    def test_other_model(self):
        batch = task_batch()
        self.refuse(TypeError, "MultiTask", batch, nn.Linear(4, NUM_TASKS))
        self.refuse(ValueError, "7 heads", batch, MultiTask(make_model().encoder, 3, 7))
        self.refuse(ValueError, "other shapes", batch, make_model(nn.Linear(4, 3)))

    def test_constructor(self):
        labels, model = make_labels(), make_model()
        for options, message in (
            ({"inner_lr": 0.0}, "inner_lr"),
            ({"lr_lower": 1.5}, "lr_lower"),
            ({"gradient": "second"}, "gradient"),
        ):
            with pytest.raises(ValueError, match=message):
                CompositionalAUC(labels, model, **options)
        with pytest.raises(ValueError, match=r"5 heads.*3 tasks"):
            CompositionalAUC(labels[:, :3], model)
        with pytest.raises(TypeError, match="MultiTask"):
            CompositionalAUC(labels, nn.Linear(4, NUM_TASKS))

    def test_scores_alone_are_not_enough(self):
        objective, _ = make()
        with pytest.raises(TypeError, match="backward"):
            objective(torch.zeros(3, NUM_TASKS), torch.zeros(3, NUM_TASKS))
