"""Objectives in a Lightning Trainer: the same steps as a plain loop, and resuming continues them."""

from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from mmb import auc, metrics
from mmb.models import mlp

L = pytest.importorskip("lightning.pytorch")
from mmb.lightning import Batches, ObjectiveModule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on logging and workers

OPTIMIZER = partial(torch.optim.Adam, lr=0.01)


def make_data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(96, 5, generator=generator)
    scores = inputs @ torch.randn(5, 3, generator=generator)
    labels = (scores + torch.randn(96, 3, generator=generator) > 1.5).to(torch.int8)
    labels[torch.rand(96, 3, generator=generator) < 0.2] = -1
    return inputs, labels


INPUTS, LABELS = make_data()


def make_parts(name):
    """Equal models, objectives and batches at every call."""
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(1)
        model = mlp(5, [8], 3)
    if name == "auc-ct":
        sampler = auc.TaskSampler(LABELS, 2, 8, independent_lower=True, generator=0)
        return model, auc.CompositionalAUC(LABELS, model), sampler
    sampler = auc.RichRowSampler(LABELS, 16, 0.5, generator=0)
    return model, {"pauc": auc.PartialAUC, "sopa": auc.SOPA}[name](LABELS), sampler


def make_trainer(folder, **options):
    options = {"enable_checkpointing": False, "logger": False, **options}
    return L.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def everything(model, objective):
    return {**model.state_dict(), **{f"objective.{k}": v for k, v in objective.state_dict().items()}}


def same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


@pytest.mark.parametrize("name", ["pauc", "auc-ct", "sopa"])
def test_a_trainer_makes_the_steps_of_a_plain_loop(name, tmp_path):
    model, objective, sampler = make_parts(name)
    module = ObjectiveModule(model, objective, OPTIMIZER)
    make_trainer(tmp_path, max_epochs=2).fit(module, Batches(sampler, INPUTS, LABELS))

    plain, plain_objective, sampler = make_parts(name)
    optimizer = OPTIMIZER([*plain.parameters(), *plain_objective.parameters()])
    for _ in range(2):
        for batch in Batches(sampler, INPUTS, LABELS):
            optimizer.zero_grad()
            plain_objective.backward(plain, batch)
            optimizer.step()
    same(everything(model, objective), everything(plain, plain_objective))


@pytest.mark.parametrize("name", ["pauc", "auc-ct", "sopa"])
@pytest.mark.parametrize("stop", [4, 6])  # within an epoch (of 6 batches), and at its end
def test_resuming_from_a_checkpoint_continues_bit_for_bit(name, stop, tmp_path):
    parts = make_parts(name)
    module = ObjectiveModule(*parts[:2], OPTIMIZER)
    steps = 2 * stop + 3
    make_trainer(tmp_path, max_steps=steps).fit(module, Batches(parts[2], INPUTS, LABELS))

    first = make_parts(name)
    trainer = make_trainer(tmp_path, max_steps=stop)
    trainer.fit(ObjectiveModule(*first[:2], OPTIMIZER), Batches(first[2], INPUTS, LABELS))
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")

    second = make_parts(name)
    module = ObjectiveModule(*second[:2], OPTIMIZER)
    loaded = torch.load(tmp_path / "stopped.ckpt", weights_only=True)["state_dict"]
    same(
        {k: v for k, v in loaded.items() if k.startswith("objective.")},
        {f"objective.{k}": v for k, v in first[1].state_dict().items()},
    )
    make_trainer(tmp_path, max_steps=steps).fit(
        module, Batches(second[2], INPUTS, LABELS), ckpt_path=tmp_path / "stopped.ckpt"
    )
    same(everything(*second[:2]), everything(*parts[:2]))


@pytest.mark.parametrize("name", ["pauc", "auc-ct"])
def test_resuming_after_whole_epochs_draws_what_would_have_come(name, tmp_path):
    parts = make_parts(name)
    whole = ObjectiveModule(*parts[:2], OPTIMIZER)
    make_trainer(tmp_path, max_epochs=4).fit(whole, Batches(parts[2], INPUTS, LABELS))

    first = make_parts(name)
    trainer = make_trainer(tmp_path, max_epochs=2)
    trainer.fit(ObjectiveModule(*first[:2], OPTIMIZER), Batches(first[2], INPUTS, LABELS))
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")

    second = make_parts(name)
    module = ObjectiveModule(*second[:2], OPTIMIZER)
    make_trainer(tmp_path, max_epochs=4).fit(
        module, Batches(second[2], INPUTS, LABELS), ckpt_path=tmp_path / "stopped.ckpt"
    )
    same(everything(*second[:2]), everything(*parts[:2]))
    assert torch.equal(second[2].generator.get_state(), parts[2].generator.get_state())


def test_a_checkpoint_that_is_only_tested_does_not_move_later_draws(tmp_path):
    first = make_parts("pauc")
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(ObjectiveModule(*first[:2], OPTIMIZER), Batches(first[2], INPUTS, LABELS))
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    second = make_parts("pauc")
    module = ObjectiveModule(*second[:2], OPTIMIZER)
    rows = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=20)
    make_trainer(tmp_path).test(module, rows, ckpt_path=tmp_path / "stopped.ckpt", verbose=False)
    make_trainer(tmp_path, max_epochs=1).fit(module, Batches(second[2], INPUTS, LABELS))
    assert torch.equal(second[2].generator.get_state(), first[2].generator.get_state())


def test_metrics_are_of_all_validation_rows_together(tmp_path):
    model, objective, sampler = make_parts("pauc")
    module = ObjectiveModule(model, objective, OPTIMIZER, max_fpr=0.3)
    trainer = make_trainer(tmp_path, max_epochs=1)
    valid = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=20)
    trainer.fit(module, Batches(sampler, INPUTS, LABELS), valid)
    assert trainer.callback_metrics["train/loss"].isfinite()
    model.eval()
    with torch.no_grad():
        expected = metrics.roc_auc(model(INPUTS), LABELS, 0.3).nanmean()
    assert trainer.callback_metrics["valid/pauc"] == pytest.approx(float(expected), rel=1e-6)
    assert trainer.test(module, valid, verbose=False)[0]["test/pauc"] == pytest.approx(
        float(expected), rel=1e-6
    )


def test_labels_of_one_task_need_no_second_axis(tmp_path):
    labels = LABELS[:, 0]
    model, sampler = mlp(INPUTS.shape[1], [4], 1), auc.RichRowSampler(labels, 16)
    trainer = make_trainer(tmp_path, max_epochs=1)
    valid = DataLoader(TensorDataset(INPUTS, labels), batch_size=20)
    module = ObjectiveModule(model, auc.MinMaxAUC(labels))
    trainer.fit(module, Batches(sampler, INPUTS, labels), valid)
    model.eval()
    with torch.no_grad():
        expected = metrics.roc_auc(model(INPUTS).squeeze(1), labels)
    assert trainer.callback_metrics["valid/auc"] == pytest.approx(float(expected), rel=1e-6)


def test_logits_of_one_task_need_no_second_axis(tmp_path):
    labels = LABELS[:, 0]
    model = torch.nn.Sequential(mlp(INPUTS.shape[1], [4], 1), torch.nn.Flatten(0))
    trainer = make_trainer(tmp_path, max_epochs=1)
    valid = DataLoader(TensorDataset(INPUTS, labels), batch_size=20)
    module = ObjectiveModule(model, auc.MinMaxAUC(labels))
    trainer.fit(module, Batches(auc.RichRowSampler(labels, 16), INPUTS, labels), valid)
    model.eval()
    with torch.no_grad():
        expected = metrics.roc_auc(model(INPUTS), labels)
    assert trainer.callback_metrics["valid/auc"] == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("gap", [-1, float("nan")])
def test_validation_rows_without_a_label_give_nan(gap, tmp_path):
    model, objective, sampler = make_parts("pauc")
    valid = DataLoader(TensorDataset(INPUTS, torch.full(LABELS.shape, gap)), batch_size=48)
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(ObjectiveModule(model, objective), Batches(sampler, INPUTS, LABELS), valid)
    assert all(trainer.callback_metrics[f"valid/{name}"].isnan() for name in metrics.SHORT_NAMES)


def test_the_schedule_steps_with_every_batch_and_the_gradient_is_clipped(tmp_path):
    model, objective, sampler = make_parts("pauc")
    start = {name: value.clone() for name, value in model.state_dict().items()}
    module = ObjectiveModule(
        model,
        objective,
        partial(torch.optim.SGD, lr=1.0),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step == 0)),
        clip=1e-3,
    )
    make_trainer(tmp_path, max_steps=3).fit(module, Batches(sampler, INPUTS, LABELS))
    moved = sum((value - start[name]).square().sum() for name, value in model.state_dict().items()) ** 0.5
    assert 0 < moved <= 1.001e-3  # one step of the clipped length, and none after


def test_mixed_bfloat16_trains(tmp_path):
    model, objective, sampler = make_parts("pauc")
    module, batches = ObjectiveModule(model, objective), Batches(sampler, INPUTS, LABELS)
    trainer = make_trainer(tmp_path, max_steps=2, precision="bf16-mixed")
    trainer.fit(module, batches)
    assert trainer.callback_metrics["train/loss"].isfinite()


@pytest.mark.parametrize("precision", ["bf16-true", "64-true", "16-true"])
def test_other_precisions_are_refused(precision, tmp_path):
    model, objective, sampler = make_parts("pauc")
    trainer = make_trainer(tmp_path, max_steps=1, precision=precision)
    with pytest.raises(ValueError, match=rf"precision.*{precision}.*bf16-mixed"):
        trainer.fit(ObjectiveModule(model, objective), Batches(sampler, INPUTS, LABELS))


def test_what_would_train_something_else_is_refused(tmp_path):
    model, objective, sampler = make_parts("pauc")
    module, batches = ObjectiveModule(model, objective), Batches(sampler, INPUTS, LABELS)
    trainer = make_trainer(tmp_path, max_steps=1)
    module.trainer = trainer
    trainer.strategy.precision_plugin.precision = "16-mixed"
    with pytest.raises(ValueError, match=r"precision.*bf16-mixed"):
        trainer.fit(module, batches)
    trainer = make_trainer(tmp_path, max_steps=1, devices=2, strategy="ddp_spawn")
    module.trainer = trainer
    with pytest.raises(ValueError, match="devices=1"):
        module.setup("fit")


class HasLogits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return {"logits": self.model(inputs)}


def test_an_ordinary_loader_and_a_model_that_returns_more_will_do(tmp_path):
    found = []
    for wrap in (lambda model: model, HasLogits):
        model, objective, _ = make_parts("pauc")
        loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=24)
        module = ObjectiveModule(wrap(model), objective, OPTIMIZER)
        trainer = make_trainer(tmp_path, max_epochs=2)
        trainer.fit(module, loader, loader)
        found.append((model.weight.detach().clone(), float(trainer.callback_metrics["valid/auc"])))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_objectives_with_a_number_per_positive_need_the_rows(tmp_path):
    model, objective, _ = make_parts("sopa")
    module = ObjectiveModule(model, objective, OPTIMIZER)
    with pytest.raises(ValueError, match=r"SOPA.*\(inputs, labels, row\)"):
        make_trainer(tmp_path, max_epochs=1).fit(module, DataLoader(TensorDataset(INPUTS, LABELS), 24))
    with_rows = TensorDataset(INPUTS, LABELS, torch.arange(len(INPUTS)))
    make_trainer(tmp_path, max_epochs=1).fit(module, DataLoader(with_rows, 24))
    assert objective.level.value.abs().sum() > 0
    with pytest.raises(TypeError, match=r"\(inputs, labels\)"):
        module._as_batch(INPUTS)


def test_loaders_with_row_numbers_validate_and_those_of_inputs_alone_predict(tmp_path):
    model, objective, _ = make_parts("sopa")
    module = ObjectiveModule(model, objective, OPTIMIZER)
    loader = DataLoader(TensorDataset(INPUTS, LABELS, torch.arange(len(INPUTS))), 24)
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(module, loader, loader)
    found = float(trainer.callback_metrics["valid/auc"])
    scores = torch.cat(trainer.predict(module, DataLoader(TensorDataset(INPUTS), 24)))
    torch.testing.assert_close(scores, model.eval()(INPUTS))
    assert found == pytest.approx(float(metrics.roc_auc(scores, LABELS).mean()))
    with pytest.raises(TypeError, match=r"batch: expected \(inputs, labels\)"):
        module.validation_step(INPUTS, 0)
