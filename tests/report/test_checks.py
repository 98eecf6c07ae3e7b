from types import SimpleNamespace

import pytest
import torch

from mmb.auc import ThresholdReport
from mmb.report.checks import check_run
from mmb.report.page_values import rounded
from mmb.report.run_facts import RunFacts
from mmb.report.selected_scores import SelectedScores


def facts(flip=False, flat=False, shift=0.0, soft=0.1, dual_error=0.01, positives=60, finished=True):
    """A run of three tasks on 400 rows a part that ranks well."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.zeros(400, 3, dtype=torch.int8)
    labels[:positives] = 1
    logits = {
        part: torch.randn(400, 3, generator=generator) + 2 * labels for part in ("train", "valid", "test")
    }
    if flat:
        logits = {part: torch.zeros_like(found) for part, found in logits.items()}
    labels_of = dict.fromkeys(logits, labels)
    if flip:
        logits["test"][:, 1] *= -1
    scores = SelectedScores(100, ["a", "b", "c"], {}, logits, labels_of, torch.ones(2, 3), {})
    training = SimpleNamespace(select="pauc")
    recipe = SimpleNamespace(training=training, objective={"max_fpr": 0.1, "margin": 1.0}, branches={})
    log = [
        {"kind": "valid", "step": k, "auc": 0.5 + 0.4 * min(k, 1), "pauc": 0.5 + 0.3 * min(k, 1)}
        for k in range(5)
    ]
    log.append({"kind": "train", "step": 5, "dual_error": dual_error})
    tracked = {90: ThresholdReport(*torch.tensor([[0.0] * 3, [0.0] * 3, [0.1] * 3, [soft] * 3]))}
    decisions = {"fpr": rounded(torch.full((3,), 0.1) + shift)}
    run = SimpleNamespace(finished=finished, recipe=recipe)
    return RunFacts(run, run.finished, log, scores, 0.1, tracked, decisions)


def test_a_good_run_is_said_to_work_with_its_value():
    found = check_run(facts())
    assert found["status"] == "good"
    assert found["verdict"].startswith("Working: pAUC 0.")
    assert found["advice"] == ""
    titles = [one["title"] for one in found["checks"]]
    assert "learned its training rows" in titles
    assert "leveled off" in titles


@pytest.mark.parametrize(
    ("change", "title", "words"),
    [
        ({"soft": 0.4}, "thresholds lag behind", "lr_threshold"),
        ({"dual_error": 0.5}, "duals lag behind", "lr_dual"),
        ({"shift": 0.2}, "decisions shift on test rows", "a, b, c"),
        ({"shift": torch.tensor([0.2, torch.nan, torch.nan])}, "decisions shift on test rows", ": a."),
        ({"flip": True}, "some tasks are ranked backwards", ": b."),
    ],
)
def test_what_stands_out_is_named_with_what_to_do(change, title, words):
    found = check_run(facts(**change))
    assert found["status"] == "remark"
    assert title in found["verdict"]
    (said,) = [one["text"] + one["advice"] for one in found["checks"] if one["title"] == title]
    assert words in said


@pytest.mark.parametrize(
    "options", [{"fpr": 0.4}, {"parts": {"ce": {"weight": 1.0}, "pauc": {"max_fpr": 0.4}}}]
)
def test_thresholds_are_judged_at_the_rate_that_the_objective_states(options):
    found = facts(soft=0.4)
    found.run.recipe.objective = options
    (said,) = [one for one in check_run(found)["checks"] if one["title"].startswith("thresholds")]
    assert said["title"] == "thresholds keep up"
    assert "the target is 40.0%" in said["text"]


@pytest.mark.parametrize(("share", "title"), [(0.2, "bounds are not kept"), (0.9, "bounds are kept")])
def test_bounds_are_judged_by_the_tasks_that_keep_them(share, title):
    found = facts()
    found.run.recipe.objective = {"fpr": 0.01}
    found.log.extend(
        {"kind": "train", "step": step, "feasible": value} for step, value in ((6, 0.5), (7, share))
    )
    checked = check_run(found)
    (said,) = [one for one in checked["checks"] if one["title"].startswith("bounds")]
    assert said["title"] == title
    assert f"bound of 1.0% on the false positive rate of training rows in {share:.0%}" in said["text"]
    assert (title in checked["verdict"]) == (share < 0.5)


def test_the_average_of_branches_is_no_step_of_training():
    found = facts()
    for step, area in ((6, 0.7), (7, 0.9)):
        found.log.append({"kind": "valid", "step": step, "auc": area, "pauc": area - 0.1})
    assert "still improving" in check_run(found)["verdict"]
    found.run.recipe.branches = {"ce": {}, "auc": {}}
    assert "its best" in check_run(found)["verdict"]


@pytest.mark.parametrize(("positives", "word"), [(2, "6 positives"), (398, "6 negatives")])
def test_few_rows_of_a_class_cannot_tell(positives, word):
    found = check_run(facts(positives=positives))
    assert found["status"] == "unknown"
    assert found["verdict"].startswith(f"Cannot tell: {word} among the ")


def test_the_verdict_of_an_unfinished_run_says_so():
    found = check_run(facts(finished=False))
    assert found["status"] == "remark"
    assert "not finished" in found["verdict"]
    assert "mmb resume" in found["advice"]


def test_equal_scores_are_named():
    found = check_run(facts(flat=True))
    assert found["verdict"] == "Not working: it does not learn."
    assert "method=ce" in found["advice"]
    assert any(one["title"] == "all rows have nearly the same score" for one in found["checks"])
