"""Settings by the size of the data and the rarity of its positives."""

from dataclasses import replace

import pytest
import torch

from mmb.data import make_dataset
from mmb.training.recipes.adapted import adapted_to


def data(rows, rate, tasks=2):
    labels = torch.zeros(rows, tasks)
    labels[: max(1, round(rate * rows))] = 1
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    return make_dataset(torch.zeros(rows, 1), labels[order], fractions=(0.8, 0.1, 0.1))


@pytest.mark.parametrize(
    ("rows", "rate", "batch", "epochs", "rich"),
    [
        (500, 0.2, 128, 480, 0.0),  # 400 rows: 1,500 steps
        (20_000, 0.2, 128, 30, 0.0),
        (20_000, 0.01, 128, 30, 0.5),  # 1.3 positives in a batch
        (20_000, 0.02, 128, 30, 0.0),
        (100_000, 0.2, 256, 30, 0.0),
        (1_000_000, 0.2, 512, 19.2, 0.0),  # 30,000 steps
    ],
)
def test_the_rule(rows, rate, batch, epochs, rich):
    found = adapted_to(data(rows, rate))
    assert found["sampler"] == {"batch_size": batch, "rich_fraction": rich}
    assert found["training"]["epochs"] == pytest.approx(epochs, rel=0.01)
    assert found["training"].get("evaluate_every") == (50 if rows == 500 else None)


def test_fingerprints_of_molecules_train_for_fewer_steps():
    few = data(500, 0.2)
    for features, steps in (("descriptors", 300), ("fingerprint", 300), ("graph", 1500)):
        found = adapted_to(replace(few, details={"features": features}))["training"]
        assert found["epochs"] * 400 / 128 == pytest.approx(steps, rel=0.01)
        assert found["evaluate_every"] == steps // 30


def test_tasks_without_positives_do_not_count():
    rare = data(20_000, 0.2)
    rare.labels[:, 1] = 0
    assert adapted_to(rare)["sampler"]["rich_fraction"] == 0.0
