from types import SimpleNamespace

import pytest
import torch

from mmb.auc import ThresholdReport
from mmb.report.checks import RunFacts, _learning, check_run
from mmb.report.selected_scores import SelectedScores


def titles(checks):
    return [(found.status, found.title) for found in checks]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0.5, 0.505, 0.498, 0.501], [("bad", "does not learn")]),
        ([0.5, 0.7, 0.8, 0.805, 0.8], [("good", "learned"), ("good", "leveled off")]),
        ([0.5, 0.6, 0.7, 0.8], [("good", "learned"), ("remark", "still improving")]),
        ([0.5, 0.8, 0.6, 0.55], [("good", "learned"), ("remark", "past its best at the end")]),
        ([0.8, 0.805, 0.8], [("remark", "did not improve on its start"), ("good", "leveled off")]),
    ],
)
def test_what_a_curve_says(curve, expected):
    assert titles(_learning(curve, 0.01, "validation AUC", finished=True)) == expected


def test_an_unfinished_run_may_still_learn():
    assert titles(_learning([0.5, 0.5], 0.01, "", finished=False)) == [("remark", "has not learned yet")]


def facts(flip=False, shift=0.0, soft=0.1, dual_error=0.01, positives=60, spread=1.0):
    """A run of three tasks on 400 rows a part that ranks well."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.zeros(400, 3, dtype=torch.int8)
    labels[:positives] = 1
    logits = {
        part: spread * (torch.randn(400, 3, generator=generator) + 2 * labels)
        for part in ("train", "valid", "test")
    }
    highest = torch.tensor([0.9, 0.3 if flip else 0.9, torch.nan])
    scores = SelectedScores(
        100, ["a", "b", "c"], {}, logits, dict.fromkeys(logits, labels), torch.ones(2, 3), {}
    )
    training = SimpleNamespace(select="pauc")
    recipe = SimpleNamespace(training=training, objective={"max_fpr": 0.1, "margin": 1.0})
    log = [{"kind": "valid", "step": k, "pauc": 0.5 + 0.3 * min(k, 1)} for k in range(5)]
    log.append({"kind": "train", "step": 5, "dual_error": dual_error})
    tracked = {90: ThresholdReport(*torch.tensor([[0.0] * 3, [0.0] * 3, [0.1] * 3, [soft] * 3]))}
    run = SimpleNamespace(finished=True, recipe=recipe)
    return RunFacts(run, run.finished, log, scores, 0.1, tracked, torch.full((3,), 0.1 + shift), highest)


def test_a_good_run_is_said_to_work():
    found = check_run(facts())
    assert found["status"] == "good"
    assert found["verdict"].startswith("Working: it learned")
    assert len(found["checks"]) == 6


@pytest.mark.parametrize(
    ("change", "title", "words"),
    [
        ({"soft": 0.4}, "thresholds lag behind", "lr_threshold"),
        ({"dual_error": 0.5}, "duals lag behind", "lr_dual"),
        ({"shift": 0.2}, "decisions shift on test rows", "a, b, c"),
        ({"flip": True}, "some tasks are worse than chance", ": b."),
        ({"spread": 0.02}, "all rows have nearly the same score", "objective.anneal"),
        ({"positives": 6}, "some tasks have few test rows", "3 of 3 tasks"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(change, title, words):
    found = check_run(facts(**change))
    assert found["status"] == "remark"
    assert title in found["verdict"]
    (said,) = [one["text"] for one in found["checks"] if one["title"] == title]
    assert words in said
