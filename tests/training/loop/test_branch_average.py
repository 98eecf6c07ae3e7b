"""A run with branches: one start, branches for different objectives, the average of what they learn."""

import math
import shutil
from dataclasses import replace

import pytest
import torch

from mmb import soup
from mmb.metrics import evaluate
from mmb.training import Observer, Run, RunError, evaluate_run, export_run, predict_file, resolve, train
from mmb.training.loop import branch_average
from mmb.training.loop.branch_average import average_branches, branch_weights, validation_values
from mmb.training.loop.evaluate import evaluate_part, part_logits, recalibrate
from mmb.training.loop.selected_weights import load_weights
from mmb.training.loop.setup import make_setup
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from processes import in_processes, quick_workers
from tiny_runs import molecule_recipe, newest_step, tiny_recipe

BRANCHES = {"ce": {}, "auc": {}, "pauc": {}, "ce+auc": {"method": "sum"}}


def soup_recipe(soup=None, **changes):
    """A greedy one that always trains its branches and never returns to its start, unless a test asks."""
    always = {"start": False, "still_rising": 1, "still_gaining": 1}
    settings = {"share": 0.5, "rule": "greedy", "guard": 0.0, **always, **(soup or {})}
    return tiny_recipe("soup", **{"branches": BRANCHES, "soup": settings, **changes})


def last_weights(run):
    return checkpoint.load(checkpoint.steps(run.checkpoints)[-1])["job"]["model"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("soup") / "run", soup_recipe())
    train(run)
    return run


def test_the_weights_are_the_average_of_the_picked_branches(undisturbed):
    result = undisturbed.result()
    branches = {name: Run.open(undisturbed.path / "branches" / name) for name in BRANCHES}
    assert list(result["branches"]) == ["start", *BRANCHES]
    shares = {name: facts["share"] for name, facts in result["branches"].items()}
    assert shares.pop("start") == 0
    assert sum(shares.values()) == pytest.approx(1)
    found = last_weights(undisturbed)
    for entry, value in found.items():
        expected = sum(shares[name] * last_weights(run)[entry] for name, run in branches.items())
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("select", ["pauc", "brier"])
@pytest.mark.parametrize("spoiled", [True, False])
def test_the_start_is_taken_if_it_is_better_on_validation_rows(tmp_path, spoiled, select):
    """Beside branches that unlearn what it knows, or beside a start that knows nothing."""
    branch = {"optimizer": {"lr": 1.0 if spoiled else 0.02}, "schedule": {"name": "constant"}}
    recipe = soup_recipe(
        branches={"ce": branch, "auc": {**branch, "method": "ce"}},
        optimizer={"lr": 0.01 if spoiled else 1e-5},
        soup={"rule": "uniform", "start": True},
        training={"select": select},
        data={"noise": 0.0},
    )
    result = train(run := Run.create(tmp_path, recipe))
    start = Run.open(run.path / "pretrain")
    shares = {name: facts["share"] for name, facts in result["branches"].items()}
    assert shares == ({"start": 1, "ce": 0, "auc": 0} if spoiled else {"start": 0, "ce": 0.5, "auc": 0.5})
    better = result["valid"][select] > start.result()["valid"][select]
    assert better == (not spoiled and select == "pauc")  # less of the Brier score is better
    if spoiled:
        selected = checkpoint.load(start.best_checkpoint())["job"]["model"]
        assert all(torch.equal(value, selected[entry]) for entry, value in last_weights(run).items())
        assert result["valid"] == pytest.approx(start.result()["valid"])


def test_branches_that_go_far_from_a_start_near_random_weights_are_averaged(tmp_path, monkeypatch):
    """As where the start is selected after a few steps: weights do not tell that it was theirs."""
    monkeypatch.setattr(branch_average, "_WHOLE", math.inf)
    monkeypatch.setattr(branch_average, "_HALFWAY", -math.inf)
    far = {"optimizer": {"lr": 1.0}, "schedule": {"name": "constant"}}
    recipe = soup_recipe(
        branches={"ce": far}, model={"hidden": [32]}, optimizer={"lr": 1e-5}, soup={"start": True}
    )
    result = train(run := Run.create(tmp_path, recipe))
    states = [last_weights(Run.open(run.path / place)) for place in ("pretrain", "branches/ce")]
    with pytest.raises(ValueError, match="one start"):
        soup.uniform(states, like=make_setup(recipe).model)
    assert {name: facts["share"] for name, facts in result["branches"].items()} == {"start": 0.5, "ce": 0.5}


@pytest.mark.parametrize(
    ("whole", "halfway", "shares"),
    [
        (1.0, 0.25, {"start": 0, "ce": 0.5, "auc": 0.5}),
        (1e6, 0.25, {"start": 0.5, "ce": 0.25, "auc": 0.25}),
        (1e6, 1e6, {"start": 1, "ce": 0, "auc": 0}),
    ],
)
def test_the_average_goes_as_far_from_its_start_as_noise_allows(
    tmp_path, monkeypatch, whole, halfway, shares
):
    """Beside a start that knows nothing."""
    monkeypatch.setattr(branch_average, "_WHOLE", whole)
    monkeypatch.setattr(branch_average, "_HALFWAY", halfway)
    branch = {"method": "ce", "optimizer": {"lr": 0.02}}
    recipe = soup_recipe(
        branches={"ce": branch, "auc": branch},
        optimizer={"lr": 1e-5},
        soup={"start": True, "rule": "uniform"},
        data={"noise": 0.0},
    )
    run = Run.create(tmp_path, recipe)
    facts = train(run)["branches"]
    assert {name: one["share"] for name, one in facts.items()} == shares
    start = checkpoint.load(Run.open(run.path / "pretrain").best_checkpoint())["job"]["model"]
    parts = {"start": start} | {
        name: last_weights(Run.open(run.path / "branches" / name)) for name in recipe.branches
    }
    for entry, value in last_weights(run).items():
        torch.testing.assert_close(value, sum(share * parts[name][entry] for name, share in shares.items()))


@pytest.mark.parametrize(("select", "sign"), [("bedroc", 1), ("brier", -1)])
def test_branches_are_picked_by_any_metric_in_its_own_direction(tmp_path, select, sign):
    setup = make_setup(tiny_recipe("ce", training={"select": select}))
    logits, labels = part_logits(setup, "valid")
    expected = evaluate(logits, labels, also=[select])[select]
    values = validation_values(setup)(setup.model)
    assert float(values.nanmean()) * sign > 0
    assert float(values.nanmean()) == pytest.approx(sign * float(expected.nanmean()), rel=0.5)  # a jackknife


def test_metrics_of_branches_are_those_of_the_weights_that_are_averaged(undisturbed):
    setup = make_setup(undisturbed.recipe)
    start, *branches = undisturbed.result()["branches"].items()
    assert start[0] == "start"
    assert start[1]["valid"] == Run.open(undisturbed.path / "pretrain").result()["valid"]
    for name, facts in branches:
        setup.model.load_state_dict(last_weights(Run.open(undisturbed.path / "branches" / name)))
        assert evaluate_part(setup, "valid") == pytest.approx(facts["valid"])
        assert evaluate_part(setup, "test") == pytest.approx(facts["test"])


def test_in_mixed_precision_each_branch_is_judged_by_its_own_weights(undisturbed):
    recipe = replace(undisturbed.recipe, training=replace(undisturbed.recipe.training, precision="bfloat16"))
    setup = make_setup(recipe)
    branches = {name: Run.open(undisturbed.path / "branches" / name) for name in BRANCHES}
    found = average_branches(setup, branches)
    for name, branch in branches.items():
        setup.model.load_state_dict(branch_weights(branch, setup))
        assert found.values[name] == float(validation_values(setup)(setup.model).nanmean())


def test_branches_start_where_the_first_phase_was_best(undisturbed):
    start = Run.open(undisturbed.path / "pretrain")
    first = next(
        r for r in read_log(start.path) if r.get("step") == start.result()["best_step"] and "auc" in r
    )
    for name in BRANCHES:
        at_start = next(r for r in read_log(undisturbed.path / "branches" / name) if r["kind"] == "valid")
        assert at_start["step"] == 0
        assert at_start["pauc"] == pytest.approx(first["pauc"])


def test_steps_count_all_phases_and_the_log_begins_with_the_first(undisturbed):
    result = undisturbed.result()
    assert result["steps"] == 40 + 4 * 20
    assert newest_step(undisturbed) == result["steps"] == result["best_step"]
    records = [record for record in read_log(undisturbed.path) if record["kind"] == "valid"]
    assert [record["step"] for record in records] == [0, 10, 20, 30, 40, 120]
    assert records[-1]["pauc"] == pytest.approx(result["valid"]["pauc"])


@pytest.mark.parametrize("phase", ["pretrain", "ce", "pauc", "ce+auc", "run"])
def test_killed_in_any_phase_it_continues_bit_for_bit(undisturbed, tmp_path, phase):
    class Killer(Observer):
        def evaluated(self, step, valid):
            if self.phase == phase and step > 0:
                raise KeyboardInterrupt

        def begin(self, run, step, steps):
            self.phase = run.path.name

    run = Run.create(tmp_path / "run", soup_recipe())
    with pytest.raises(KeyboardInterrupt):
        train(run, Killer())
    assert not run.finished
    train(run)
    for entry, value in last_weights(run).items():
        assert torch.equal(value, last_weights(undisturbed)[entry])
    results = [one.result() for one in (run, undisturbed)]
    assert results[0]["test"] == results[1]["test"]
    assert [f["share"] for f in results[0]["branches"].values()] == [
        f["share"] for f in results[1]["branches"].values()
    ]


def test_a_folder_that_is_moved_between_branches_continues(undisturbed, tmp_path):
    class Killer(Observer):
        def begin(self, run, step, steps):
            if run.path.name == "auc":
                raise KeyboardInterrupt

    run = Run.create(tmp_path / "here", soup_recipe())
    with pytest.raises(KeyboardInterrupt):
        train(run, Killer())
    shutil.move(run.path, tmp_path / "there")
    moved = Run.open(tmp_path / "there")
    assert train(moved)["test"] == undisturbed.result()["test"]


def test_branches_side_by_side_are_the_same(undisturbed, tmp_path):
    run = Run.create(tmp_path / "run", soup_recipe())
    with quick_workers():
        train(run, jobs=2)
    for entry, value in last_weights(run).items():
        assert torch.equal(value, last_weights(undisturbed)[entry])


def train_here(path):
    return train(Run.open(path))["test"]


def test_many_processes_train_the_same(tmp_path):
    recipe = soup_recipe(model={"dropout": 0.0})  # each process drops other units
    alone, together = (Run.create(tmp_path / name, recipe) for name in ("alone", "together"))
    expected = train(alone)
    found = in_processes(2, train_here, together.path)
    assert found[0] == found[1] == pytest.approx(expected["test"], abs=1e-6)
    for entry, value in last_weights(together).items():
        torch.testing.assert_close(value, last_weights(alone)[entry], rtol=1e-3, atol=1e-4)


def test_a_weak_branch_is_stopped_and_left_out(tmp_path):
    wild = {"method": "ce", "optimizer": {"lr": 1.0}, "schedule": {"name": "constant"}}
    changes = {"branches": {"ce": {}, "wild": wild}, "soup": {"rule": "uniform"}}
    run = Run.create(tmp_path / "run", soup_recipe(**changes, optimizer={"lr": 0.01}, data={"noise": 0.0}))
    facts = train(run)["branches"]
    assert facts["wild"]["stopped_early"]
    assert facts["wild"]["steps"] < 20
    assert facts["ce"]["steps"] == 20
    assert (facts["wild"]["share"], facts["ce"]["share"]) == (0, 1)


def test_branches_that_are_all_stopped_are_averaged_as_if_none_were(tmp_path):
    """A start that was lucky on few validation rows: whatever follows is below it."""
    wild = {"optimizer": {"lr": 1.0}, "schedule": {"name": "constant"}}
    changes = {"branches": {"ce": wild, "auc": wild}, "soup": {"rule": "uniform"}}
    run = Run.create(tmp_path / "run", soup_recipe(**changes, optimizer={"lr": 0.01}, data={"noise": 0.0}))
    facts = train(run)["branches"]
    assert facts["ce"]["stopped_early"]
    assert facts["auc"]["stopped_early"]
    assert (facts["ce"]["share"], facts["auc"]["share"]) == (0.5, 0.5)


def test_batch_normalization_is_computed_again_for_the_average(tmp_path):
    pytest.importorskip("rdkit")
    branches = {"ce": {}, "auc": {}}
    settings = {"share": 0.5, "rule": "uniform", "start": False}
    recipe = molecule_recipe(tmp_path, "soup", branches=branches, soup=settings)
    run = Run.create(tmp_path / "run", recipe)
    train(run)
    setup = make_setup(recipe)
    load_weights(setup, run.best_checkpoint())
    before = part_logits(setup, "valid")[0]
    recalibrate(setup)
    torch.testing.assert_close(part_logits(setup, "valid")[0], before)


@pytest.mark.parametrize(("lr", "taken"), [(0.02, True), (0.0, False)])
def test_a_fresh_branch_takes_the_place_of_the_average_if_it_is_better(tmp_path, lr, taken):
    """Beside a start that learns nothing; or it learns nothing itself, and is stopped."""
    other = {"method": "pauc", "fresh": True, "optimizer": {"lr": lr}}
    recipe = soup_recipe(
        branches={"ce": {}, "auc": {}, "other": other},
        optimizer={"lr": 1e-5 if taken else 0.02},
        soup={"fresh_share": 2.0},
    )
    result = train(run := Run.create(tmp_path, recipe))
    fresh = Run.open(run.path / "branches/other")
    facts = result["branches"]
    steps = {name: branch["steps"] for name, branch in facts.items()}
    expected = {"start": 40, "ce": 20, "auc": 20, "other": 80 if taken else 40}
    assert steps == expected
    assert (facts["other"]["share"] == 1.0) == taken
    assert (facts["other"]["valid"]["pauc"] > facts["auc"]["valid"]["pauc"]) == taken
    assert sum(branch["share"] for branch in facts.values()) == pytest.approx(1)
    if taken:
        selected = checkpoint.load(fresh.best_checkpoint())["job"]["model"]
        assert all(torch.equal(value, selected[entry]) for entry, value in last_weights(run).items())
        assert result["valid"]["pauc"] == pytest.approx(fresh.result()["valid"]["pauc"])


def test_it_is_evaluated_and_exported_as_any_run(undisturbed, tmp_path):
    assert evaluate_run(undisturbed, "test")["mean"] == undisturbed.result()["test"]
    export_run(undisturbed, tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").exists()


def test_without_validation_rows_it_is_trained_exported_and_predicts(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,z,y\n" + "".join(f"{k % 7},{k % 5},{k % 3 // 2}\n" for k in range(90)))
    data = {"name": "table", "path": str(table), "labels": "y", "fractions": [1, 0, 0]}
    run = Run.create(tmp_path / "run", soup_recipe({"start": True}, data=data, training={"steps": 6}))
    assert train(run)["valid"]["pauc"] is None
    assert export_run(run, tmp_path / "export")["rows_compared"] == 69
    predict_file(run, table, tmp_path / "out.csv")
    cells = (tmp_path / "out.csv").read_text().splitlines()[1].split(",")
    assert 0 < float(cells[-3]) < 1
    assert cells[-2:] == ["", ""]  # neither a probability nor a decision, for lack of rows
    with pytest.raises(RunError, match="validation rows"):
        predict_file(run, table, tmp_path / "out.csv", confidence=0.9)


def test_a_branch_of_another_recipe_is_refused(tmp_path):
    class Killer(Observer):
        def begin(self, run, step, steps):
            if run.path.name == "auc":
                raise KeyboardInterrupt

    recipe = soup_recipe()
    run = Run.create(tmp_path / "run", recipe)
    with pytest.raises(KeyboardInterrupt):
        train(run, Killer())
    auc = recipe.branches["auc"]
    other = replace(recipe, branches={**recipe.branches, "auc": replace(auc, objective={"margin": 2.0})})
    with pytest.raises(RunError, match=r"auc.*another recipe"):
        train(Run(run.path, other))


def test_a_start_that_is_not_finished_is_refused_and_left_alone(tmp_path):
    start = Run.create(tmp_path / "start", tiny_recipe("ce"))
    run = Run.create(tmp_path / "run", soup_recipe(init_from=str(start.path)))
    with pytest.raises(RunError, match=r"start is not finished.*mmb resume"):
        train(run)
    assert newest_step(start) == -1
    train(start)
    assert train(run)["steps"] == 40 + 4 * 20


def test_a_written_recipe_resolves_to_the_same(undisturbed):
    assert resolve(to_plain(undisturbed.recipe)) == undisturbed.recipe


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_branches_are_those_of_plain_steps(tmp_path):
    results = []
    for capture in (False, True):
        training = {"device": "cuda", "capture": capture, "steps": 60, "evaluate_every": 30}
        recipe = tiny_recipe("soup", model={"dropout": 0.0}, training=training, soup={"rule": "uniform"})
        results.append(train(Run.create(tmp_path / str(capture), recipe)))
    plain, captured = ([branch["valid"] for branch in result["branches"].values()] for result in results)
    for one, other in zip(plain, captured, strict=True):
        assert one == pytest.approx(other, abs=5e-3)
    assert results[0]["test"] == pytest.approx(results[1]["test"], abs=5e-3)
