"""Settings by the size of the data and the rarity of its positives."""

from dataclasses import replace

import pytest
import torch

from mmb.data import make_dataset
from mmb.training.recipes.adapted import adapted, adapted_to


def data(rows, rate, tasks=2):
    labels = torch.zeros(rows, tasks)
    labels[: max(1, round(rate * rows))] = 1
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    return make_dataset(torch.zeros(rows, 1), labels[order], fractions=(0.8, 0.1, 0.1))


@pytest.mark.parametrize(
    ("rows", "rate", "batch", "epochs", "rich"),
    [
        (60, 0.2, 128, 1500, 0.0),  # 48 rows: an epoch is a step
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
    assert found["training"].get("evaluate_every") == (50 if rows <= 500 else None)


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


@pytest.mark.parametrize(
    ("positives", "options", "added"),
    [
        (
            range(1, 4),
            {},
            {"split": "stratified"},
        ),  # three positives: a random split leaves some part without
        (range(1, 200, 2), {}, None),
        (range(1, 4), {"split": "random"}, None),  # as asked
        (range(1, 4), {"time": "t"}, None),
        ([1], {}, None),  # a single one cannot be divided
    ],
)
def test_rows_are_stratified_where_a_random_split_leaves_a_part_without_positives(
    tmp_path, positives, options, added
):
    path = tmp_path / "table.csv"
    path.write_text("x,t,y\n" + "".join(f"{row},{row},{int(row in positives)}\n" for row in range(200)))
    fragment = {"method": "ce", "data": {"name": "table", "path": str(path), "labels": "y", **options}}
    seen = []
    assert adapted(fragment, seen=seen.append).get("data") == added
    parts = [int((seen[0].labels[rows] == 1).sum()) for rows in seen[0].split.values()]
    assert added is None or min(parts) == 1


def test_the_only_positive_of_a_task_is_trained_on(tmp_path):
    path = tmp_path / "table.csv"
    fragment = {"method": "ce", "data": {"name": "table", "path": str(path), "labels": "y"}}
    found = []
    for only in range(40):
        path.write_text("x,y\n" + "".join(f"{row},{int(row == only)}\n" for row in range(40)))
        seen = []
        found.append(adapted(fragment, seen=seen.append).get("data"))
        assert seen[0].labels[seen[0].split["train"]].sum() == 1
    assert found.count({"split": "stratified"}) == 8  # of 40 rows, a random split does not train on these
