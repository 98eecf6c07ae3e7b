import json
import random
import shutil

import pytest
import torch

from mmb import metrics
from mmb.report import content as page_content
from mmb.report import selected_scores, write_report
from mmb.report.run_groups import find_runs, methods_of, phases_of, run_names
from mmb.report.selected_scores import run_scores
from mmb.training import Observer, Run, RunError, train
from mmb.training.loop import threshold_log
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import make_setup
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from tiny_runs import tiny_recipe


def test_the_page_has_what_the_runs_came_to(runs, written):
    _, content = written
    assert [run["name"] for run in content["runs"]] == ["CE, seed 0", "MMB-pAUC, seed 0", "MMB-pAUC, seed 1"]
    assert [method["runs"] for method in content["methods"]] == [1, 2]
    for run, shown in zip(runs, content["runs"], strict=True):
        result = run.result()
        tasks = result["tasks"]
        assert content["tasks"]["train_positives"] == tasks["positives"]
        assert content["tasks"]["train_negatives"] == tasks["negatives"]
        for name in ("auc", "pauc", "ap", "fpr", "tpr"):
            assert shown["tasks"][name] == pytest.approx(tasks[f"test_{name}"], abs=1e-5)
        predictor = json.loads((run.path / "predictor.json").read_text())
        assert shown["tasks"]["threshold"] == pytest.approx(predictor["thresholds"]["0.1"], abs=1e-4)
        assert shown["means"] == pytest.approx(result["test"], abs=1e-5)
        assert shown["curves"]["valid"]["step"] == [0, 10, 20, 30, 40]
        assert shown["facts"]["steps"] == "40 of 40"
        assert shown["facts"]["seed"] == str(run.recipe.seed)
        assert "torch" in shown["facts"]["versions"]
    counts = content["tasks"]
    assert all(
        p + n == content["sizes"]["test"]
        for p, n in zip(counts["test_positives"], counts["test_negatives"], strict=True)
    )


def test_the_metric_that_selects_is_on_the_page(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe(training={"select": "fpr_at_tpr"}))
    result = train(run)
    content = write_report([run], tmp_path / "report.html")
    assert content["titles"]["fpr_at_tpr"] == "FPR at TPR 0.8"
    assert "TPR >= 0.8" in content["select_meaning"]
    (shown,) = content["runs"]
    assert shown["means"]["fpr_at_tpr"] == pytest.approx(result["test"]["fpr_at_tpr"], abs=1e-5)
    assert len(shown["tasks"]["fpr_at_tpr"]) == 4
    logged = [line["fpr_at_tpr"] for line in read_log(run.path) if line["kind"] == "valid"]
    assert shown["curves"]["valid"]["fpr_at_tpr"] == pytest.approx(logged, abs=1e-5)


def test_methods_are_compared_over_their_runs(runs, written):
    _, content = written
    values = [metrics.roc_auc(s.logits["test"], s.labels["test"]) for s in map(run_scores, runs)]
    expected = (values[1] + values[2]) / 2 - values[0]
    (pair,) = content["pairs"]
    assert (pair["a"], pair["b"]) == (1, 0)
    assert pair["auc"]["tasks"]["value"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert pair["auc"]["value"] == pytest.approx(expected.mean().item(), abs=1e-5)
    assert pair["auc"]["low"] < pair["auc"]["value"] < pair["auc"]["high"]
    assert pair["auc"]["adjusted"] >= pair["auc"]["p"]
    assert content["methods"][0]["auc"]["spread"] is None
    assert content["methods"][1]["auc"]["spread"] > 0


def test_scores_are_computed_once_for_the_same_weights(runs, tmp_path, monkeypatch):
    run = Run.open(shutil.copytree(runs[1].path, tmp_path / "run"))
    first = run_scores(run)
    monkeypatch.setattr(selected_scores, "stored_setup", None)  # computing them again would fail
    again = run_scores(run)
    assert (again.step, again.task_names, again.sizes) == (first.step, first.task_names, first.sizes)
    for part in ("train", "valid", "test"):
        assert torch.equal(again.logits[part], first.logits[part])
        assert torch.equal(again.labels[part], first.labels[part])
    assert again.tracked.keys() == first.tracked.keys()
    cache = run.path / "report.safetensors"
    cache.write_bytes(cache.read_bytes()[:100])
    with pytest.raises(TypeError):  # damaged, so computed again
        run_scores(run)


def test_scores_of_other_weights_are_not_used(runs, tmp_path):
    run = Run.open(shutil.copytree(runs[1].path, tmp_path / "run"))
    run_scores(run)
    manifest = run.best_checkpoint() / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert (
        selected_scores._read(run.path / "report.safetensors", selected_scores._mark(run.best_checkpoint()))
        is None
    )


def test_scores_that_were_changed_are_not_used(runs, tmp_path):
    run = Run.open(shutil.copytree(runs[1].path, tmp_path / "run"))
    run_scores(run)
    file, mark = run.path / "report.safetensors", selected_scores._mark(run.best_checkpoint())
    whole = file.read_bytes()
    assert selected_scores._read(file, mark) is not None
    places = random.Random(0)
    for place in [len(whole) - 1, *(places.randrange(len(whole)) for _ in range(200))]:
        changed = bytearray(whole)
        changed[place] ^= 1 << places.randrange(8)
        file.write_bytes(changed)
        assert selected_scores._read(file, mark) is None


def test_a_run_in_training_is_read_although_its_checkpoints_come_and_go(runs, tmp_path, monkeypatch):
    run = Run.open(shutil.copytree(runs[1].path, tmp_path / "run"))
    for name in ("result.json", "report.safetensors"):
        (run.path / name).unlink(missing_ok=True)
    load, read = checkpoint.load_selected, []

    def load_while_training(path, *ranks):
        read.append(path)
        if len(read) == 1:  # another process finds a better one, and deletes this
            checkpoint.save(run.checkpoints, 50, load(path), best_step=50)
            checkpoint.keep_only(run.checkpoints, 50)
        return load(path, *ranks)

    monkeypatch.setattr(checkpoint, "load_selected", load_while_training)
    assert run_scores(run).step == 50
    assert read[0].name != read[1].name == "00000050"
    shutil.rmtree(run.checkpoints / "00000050")
    (run.checkpoints / "00000050").mkdir()
    with pytest.raises(checkpoint.CheckpointError, match="damaged"):  # which does not go away
        run_scores(run)


def test_a_run_that_finishes_meanwhile_is_shown_as_it_was(runs, tmp_path, monkeypatch):
    run = Run.open(shutil.copytree(runs[0].path, tmp_path / "run"))
    result = run.path / "result.json"
    kept = result.read_bytes()
    result.unlink()
    score = page_content.run_scores

    def score_while_training(run):
        found = score(run)
        result.write_bytes(kept)
        return found

    monkeypatch.setattr(page_content, "run_scores", score_while_training)
    (shown,) = write_report([run], tmp_path / "report.html")["runs"]
    assert "not finished" in shown["verdict"]
    assert "device" not in shown["facts"]


class Stop(Observer):
    def stepped(self, step, numbers):
        if step == 28:
            raise KeyboardInterrupt


def test_an_unfinished_run_has_a_page_that_says_so(tmp_path):
    run = Run.create(tmp_path / "run", tiny_recipe("auc"))
    with pytest.raises(RunError, match="no checkpoint"):
        write_report([run], tmp_path / "report.html")
    with pytest.raises(KeyboardInterrupt):
        train(run, Stop())
    content = write_report([run], tmp_path / "page" / "report.html")
    (shown,) = content["runs"]
    assert "not finished" in shown["verdict"]
    assert shown["facts"]["steps"] == "28 of 40"
    assert content["pairs"] == []


def test_only_the_selected_checkpoint_is_needed(runs, tmp_path):
    run = Run.open(shutil.copytree(runs[1].path, tmp_path / "run"))
    (run.path / "report.safetensors").unlink(missing_ok=True)
    for path in checkpoint.steps(run.checkpoints):
        if path != run.best_checkpoint():
            (path / "state.json").write_text("{}")
    write_report([run], tmp_path / "report.html")
    (run.path / "report.safetensors").unlink()
    shutil.rmtree(run.best_checkpoint())
    with pytest.raises(checkpoint.CheckpointError, match=r"selected weights.*checkpoints"):
        write_report([run], tmp_path / "report.html")


def test_runs_with_other_rows_are_refused(runs, tmp_path):
    other = Run.create(tmp_path / "run", tiny_recipe("ce", training={"steps": 2}))
    train(other)
    with pytest.raises(RunError, match="test rows"):
        write_report([runs[0], other], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(ValueError, match="max_fpr"):
        write_report([other], tmp_path / "report.html", max_fpr=1.5)


def test_runs_without_a_class_or_without_rows_to_test_on(tmp_path):
    rows = ["a,y,part", *(f"{k % 7},{k % 2},{'train' if k < 40 else 'valid'}" for k in range(60))]
    for name, test_rows in (("one-class", ["1,0,test", "2,0,test"]), ("no-rows", [])):
        (tmp_path / f"{name}.csv").write_text("\n".join([*rows, *test_rows]) + "\n")
        data = {"name": "csv", "path": str(tmp_path / f"{name}.csv"), "labels": "y", "split_column": "part"}
        run = Run.create(tmp_path / name, tiny_recipe("ce", data=data, training={"steps": 2}))
        train(run)
    content = write_report([Run.open(tmp_path / "one-class")], tmp_path / "report.html")
    assert content["runs"][0]["means"] == {"auc": None, "pauc": None, "ap": None}
    with pytest.raises(RunError, match="labeled test rows"):
        write_report([Run.open(tmp_path / "no-rows")], tmp_path / "report.html")


def test_another_limit_changes_partial_areas_and_thresholds(runs, tmp_path):
    content = write_report(runs[1:2], tmp_path / "report.html", max_fpr=0.3)
    found = run_scores(runs[1])
    expected = metrics.roc_auc(found.logits["test"], found.labels["test"], 0.3)
    assert content["runs"][0]["tasks"]["pauc"] == pytest.approx(expected.tolist(), abs=1e-5)
    fpr = content["runs"][0]["tasks"]["fpr"]
    assert sum(fpr) / len(fpr) == pytest.approx(0.3, abs=0.1)


def test_thresholds_over_training_are_recorded_and_read_back(tmp_path):
    with own_randomness(1, torch.device("cpu")):  # no scores are equal
        setup = make_setup(tiny_recipe("pauc"))
    logits, labels = threshold_log.training_scores(setup)
    setup.objective.warm_start(logits, labels)
    for step in (0, 10, 10):  # a resumed run writes a step again
        threshold_log.record(tmp_path, setup, step)
    with open(tmp_path / "thresholds.jsonl", "a") as file:
        file.write('{"step": 20, "tr')  # still being written, or cut short by a kill
    assert list(threshold_log.read(tmp_path)) == [0, 10]
    for step in (30, 40):
        threshold_log.record(tmp_path, setup, step)
    found = threshold_log.read(tmp_path)
    assert list(found) == [0, 10, 30, 40]
    negative = labels == 0
    for task in range(labels.shape[1]):
        scores = logits[negative[:, task], task].sort(descending=True).values
        place = int(0.1 * len(scores))
        assert found[10].quantile[task].item() == pytest.approx(scores[place].item(), abs=1e-5)
        # A warm start puts the tracked threshold there.
        assert found[10].tracked[task].item() == pytest.approx(scores[place].item(), abs=1e-4)
        assert found[10].rate[task].item() == pytest.approx(place / len(scores), abs=2 / len(scores))
        lower = setup.objective.tracked
        soft = ((scores.sigmoid() - scores[place].sigmoid()) / lower.tau1).sigmoid().mean()
        assert found[10].soft_rate[task].item() == pytest.approx(soft.item(), abs=1e-3)
    threshold_log.record(tmp_path / "none", make_setup(tiny_recipe("ce")), 0)
    assert threshold_log.read(tmp_path / "none") == {}


def test_recorded_thresholds_are_on_the_page(runs, tmp_path):
    run = Run.open(shutil.copytree(runs[1].path, tmp_path / "run"))
    setup = make_setup(run.recipe)
    for step in range(0, 200, 2):
        threshold_log.record(run.path, setup, step)
    (shown,) = write_report([run], tmp_path / "report.html")["runs"]
    assert shown["tracked"]["step"][0] == 0
    assert shown["tracked"]["step"][-1] == 198
    assert len(shown["tracked"]["step"]) == len(shown["tracked"]["quantile"]) == 30


def test_runs_are_found_in_folders(runs):
    folder = runs[0].path.parent
    assert [run.path for run in find_runs([runs[2].path, folder])] == [
        runs[2].path,
        runs[0].path,
        runs[1].path,
    ]
    with pytest.raises(RunError, match="no run"):
        find_runs([folder / "ce-0" / "checkpoints"])


def test_phases_of_a_run_are_parts_of_it(runs, tmp_path):
    run = Run.open(shutil.copytree(runs[0].path, tmp_path / "runs" / "run"))
    phases = ["pretrain", "branches/ce", "branches/ce/longer"]
    for phase in phases:
        (run.path / phase).mkdir(parents=True)
        shutil.copy(run.path / "recipe.yaml", run.path / phase)
    for path in (run.path, tmp_path / "runs"):
        assert [found.path for found in find_runs([path])] == [run.path]
    assert {phase.path for phase in phases_of(run, {})} == {run.path / phase for phase in phases}


def test_folders_without_permission_are_not_passed_over(runs, monkeypatch):
    def refuse(path, *_, onerror):
        onerror(PermissionError(13, "Permission denied", str(path)))
        return iter(())

    monkeypatch.setattr("os.walk", refuse)
    with pytest.raises(PermissionError):
        find_runs([runs[0].path.parent])


def test_methods_are_named_by_what_differs(runs):
    recipes = [
        tiny_recipe("ce", optimizer={"lr": lr}, seed=seed) for lr, seed in ((0.1, 0), (0.1, 1), (0.2, 0))
    ]
    made = [Run(runs[0].path, recipe) for recipe in [*recipes, tiny_recipe("auc")]]
    names, member = methods_of(made)
    assert names == ["CE (optimizer.lr=0.1)", "CE (optimizer.lr=0.2)", "mAUC"]
    assert member == [0, 0, 1, 2]
    assert len(set(run_names(made, names, member))) == 4
