"""Batch normalization in training on batches that are not drawn like the data."""

from dataclasses import replace

import pytest
import torch

from mmb.models.batch_norm import recalibrate_batch_norm
from mmb.training import Run, train
from mmb.training.loop import evaluate
from mmb.training.loop.selected_weights import load_weights
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from tiny_runs import molecule_recipe, tiny_recipe

pytest.importorskip("rdkit")


def statistics(run):
    state = checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]["model"]
    return {name: value for name, value in state.items() if "running_" in name}


def trained(folder, method, batch_norm):
    training = {"batch_norm": batch_norm, "steps": 5, "checkpoint_every": 5}
    settings = {"training": training, "sampler": {"kind": "tasks"}}
    run = Run.create(folder / "run", molecule_recipe(folder, method, **settings))
    train(run)
    return run


def test_frozen_statistics_stay(tmp_path):
    for name, value in statistics(trained(tmp_path, "pauc", "frozen")).items():
        assert torch.equal(value, torch.ones_like(value) if name.endswith("var") else torch.zeros_like(value))


@pytest.mark.parametrize("method", ["pauc", "auc-ct"])
def test_recalibrated_statistics_are_those_of_the_training_rows(tmp_path, method):
    run = trained(tmp_path, method, "recalibrate")
    setup = make_setup(run.recipe)
    load_weights(setup, checkpoint.steps(run.checkpoints)[-1])
    found = statistics(run)
    recalibrate_batch_norm(setup.model, [setup.dataset.batch(setup.dataset.split["train"])])
    for name, value in found.items():
        torch.testing.assert_close(value, setup.model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_recalibration_gives_every_row_the_same_weight(monkeypatch):
    setup = make_setup(tiny_recipe(training={"evaluation_batch_size": 32}))
    sizes = []
    monkeypatch.setattr(
        evaluate, "recalibrate_batch_norm", lambda _, batches: sizes.extend(map(len, batches))
    )
    evaluate.recalibrate(setup)
    rows = len(setup.dataset.split["train"])
    assert rows % 32
    assert sum(sizes) == rows
    assert max(sizes) - min(sizes) <= 1 < len(sizes)


def test_rows_are_augmented_for_recalibration_always_in_the_same_way():
    setup = make_setup(tiny_recipe("ce"))

    class Noisy:
        """Inputs with an augmentation."""

        def __init__(self, values):
            self.values, self.device = values, values.device

        def __len__(self):
            return len(self.values)

        def __getitem__(self, rows):
            return self.values[rows]

        def augmented(self, rows, generator):
            return self[rows] + torch.rand(len(rows), 1, generator=generator)

    plain = torch.cat(list(evaluate.CalibrationInputs(setup)))
    setup = replace(setup, dataset=replace(setup.dataset, inputs=Noisy(setup.dataset.inputs)))
    inputs = evaluate.CalibrationInputs(setup)
    first, second = torch.cat(list(inputs)), torch.cat(list(inputs))
    assert torch.equal(first, second)
    assert ((first - plain) > 0).all()


def test_tracked_statistics_are_those_of_the_batches(tmp_path):
    run = trained(tmp_path, "pauc", "track")
    setup = make_setup(run.recipe)
    load_weights(setup, checkpoint.steps(run.checkpoints)[-1])
    recalibrate_batch_norm(setup.model, [setup.dataset.batch(setup.dataset.split["train"])])
    now = setup.model.state_dict()
    assert not any(torch.allclose(v, now[k], rtol=1e-2) for k, v in statistics(run).items())
