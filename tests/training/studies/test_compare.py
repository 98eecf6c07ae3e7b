"""What a comparison brings along; several processes end as a whole at the first signal, with checkpoints."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from mmb.training import Run, merge, plan_comparison, summarize, train_many
from mmb.training.recipes.recipe import SoupSettings
from mmb.training.runs.tables import as_text
from mmb.training.studies.compare import comparison_table
from tiny_runs import TINY, is_free, newest_step, wait_until

COMPARE = ["compare", "--methods", "ce,pauc", "--seeds", "2"]
TUNE = ["tune", "--method", "ce", "--trials", "4"]


def test_soups_bring_their_controls_and_share_the_first_phase(tmp_path):
    planned = plan_comparison({**TINY, "soup": {"share": 0.5}}, ["soup"], 2, tmp_path)
    methods = [one.run.recipe.method for one in planned[:4]]
    assert methods == ["ce", "soup", "ce-average", "ce-longer"]
    assert [one.after for one in planned] == [None, *["ce/seed-0"] * 3, None, *["ce/seed-1"] * 3]
    for one in planned[2:4]:  # controls train to the end, however much they overfit
        assert {branch.training.stop_below for branch in one.run.recipe.branches.values()} == {None}
    train_many(planned[:4])  # of the first seed
    assert not any((one.run.path / "pretrain").exists() for one in planned)
    summary = summarize([one.run for one in planned[:4]])
    assert [summary[method]["steps"] for method in methods] == [40, 140, 140, 140]
    again = plan_comparison({**TINY, "soup": {"share": 0.5}}, ["soup"], 2, tmp_path)
    assert [one.run.finished for one in again] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("method", [{}, {"method": "soup"}])
def test_branches_of_a_recipe_are_those_of_its_soup_alone(tmp_path, method):
    settings = {"still_rising": 1.0, "still_gaining": 1.0, "start": False, "rule": "greedy", "share": 0.2}
    own = {"branches": {"ce": {}, "pauc": {"objective": {"max_fpr": 0.2}}}, "soup": settings}
    planned = plan_comparison({**TINY, **method, **own}, ["ce", "auc", "soup"], 1, tmp_path)
    recipes = {one.run.recipe.method: one.run.recipe for one in planned}
    branches = {name: list(recipe.branches) for name, recipe in recipes.items()}
    controls = {"ce-average": ["ce-1", "ce-2"], "ce-longer": ["ce"]}
    assert branches == {"ce": [], "auc": [], "soup": ["ce", "pauc"], **controls}
    for name, rule, share in (
        ("soup", "greedy", 0.2),
        ("ce-average", "uniform", 0.2),
        ("ce-longer", "uniform", 0.4),
    ):
        assert asdict(recipes[name].soup) == {
            **asdict(SoupSettings(**settings)),
            "rule": rule,
            "share": share,
        }
    assert recipes["ce"].pretrain is recipes["auc"].pretrain is None


def test_a_comparison_says_where_it_was_too_early_for_branches(tmp_path):
    fast = {"data": {"noise": 0.0, "rows": 1000}, "optimizer": {"lr": 0.03}, "soup": {"still_rising": 0.0}}
    training = {"steps": 20, "evaluate_every": 4}
    fragment = merge(TINY, {**fast, "training": training})
    planned = plan_comparison(fragment, ["soup"], 1, tmp_path)
    train_many(planned)
    table = comparison_table(summarize([one.run for one in planned]), planned[0].run.recipe)
    text = " ".join(as_text(table).split())
    rise = planned[1].run.result()["still_rising"]
    assert f"Soup and CE, average (1 of 1 seeds): Partial AUC on validation rows rose by {rise:.3f}" in text


def test_soups_can_be_compared_without_controls(tmp_path):
    planned = plan_comparison(TINY, ["auc", "soup"], 1, tmp_path, controls=False)
    assert [one.run.recipe.method for one in planned] == ["auc", "soup"]
    assert planned[1].run.recipe.pretrain is not None


@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(os.name == "nt", reason="signals, and one that is sent to a group of processes")
@pytest.mark.parametrize(
    ("command", "number", "code"), [(COMPARE, signal.SIGINT, 130), (TUNE, signal.SIGTERM, 143)]
)
def test_the_first_signal_ends_all_processes(tmp_path, command, number, code):
    sections = {section: TINY[section] for section in ("data", "model")}
    overrides = [f"{name}.{key}={value}" for name, part in sections.items() for key, value in part.items()]
    overrides += ["training.steps=1000000", "training.evaluate_every=1000000", "training.tensorboard=false"]
    command = [sys.executable, "-m", "mmb", *command, "--data", "synthetic", "--jobs", "2"]
    command += ["--output", str(tmp_path), *overrides]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )

    def training():
        return [log.parent for log in tmp_path.glob("**/metrics.jsonl") if b'"train"' in log.read_bytes()]

    try:
        wait_until(lambda: len(training()) == 2 or process.poll() is not None)
        paths = training()
        assert not any(is_free(path) for path in paths)
        start = time.monotonic()
        if number == signal.SIGINT:  # as a terminal does
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=30)
        seconds = time.monotonic() - start
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in err
    assert seconds < 20
    assert all(is_free(path) for path in paths)
    assert all(newest_step(Run.open(path)) > 0 for path in paths)  # written because of the signal
    assert len(training()) == 2  # what was queued was not started
