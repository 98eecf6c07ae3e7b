"""Capture is decided before training; what cannot be captured is refused or reported."""

import re
from dataclasses import replace

import pytest
import torch

from mmb.auc import Labels
from mmb.training.loop.capture import decide_capture, most_positives
from mmb.training.loop.sampler import make_sampler
from mmb.training.loop.setup import make_setup
from mmb.training.processes.group import ONE
from tiny_runs import tiny_recipe


@pytest.mark.parametrize(
    ("changes", "device", "message"),
    [
        ({}, "cpu", "GPU.*cpu"),
        ({"method": "auc-ct", "objective": {"copies_device": "cpu"}}, "cuda", "copies_device=null"),
        ({"sampler": {"kind": "own_parts:EveryRow"}}, "cuda", "own sampler"),
    ],
)
def test_capture_is_refused_where_it_cannot_work_and_auto_says_so(changes, device, message):
    recipe = tiny_recipe(**{**changes, "training": {"capture": True}})
    with pytest.raises(ValueError, match=message):
        decide_capture(recipe, torch.device(device))
    found, note = decide_capture(with_capture(recipe, "auto"), torch.device(device))
    assert not found
    assert note is None if device == "cpu" else re.search(message, note)
    assert decide_capture(with_capture(recipe, False), torch.device(device)) == (False, None)


@pytest.mark.parametrize("method", ["ce", "pauc", "auc-ct", "auc-ct-heads", "pauc-pairwise"])
def test_auto_captures_on_a_gpu_and_only_there(method):
    recipe = tiny_recipe(method, schedule={"decay_blocks": True}, training={"capture": "auto"})
    assert decide_capture(recipe, torch.device("cuda")) == (True, None)
    assert decide_capture(recipe, torch.device("cpu")) == (False, None)
    many = replace(ONE, size=2)
    assert "one process" in decide_capture(recipe, torch.device("cuda"), many)[1]
    assert not make_setup(recipe).captured


def with_capture(recipe, choice):
    return replace(recipe, training=replace(recipe.training, capture=choice))


@pytest.mark.parametrize("kind", ["rows", "tasks"])
def test_room_for_positives_is_more_than_batches_have(kind):
    labels = Labels((torch.rand(400, 6, generator=torch.Generator().manual_seed(0)) < 0.1).long())
    recipe = tiny_recipe(sampler={"kind": kind})
    counts = [
        int((d.batch(labels.values, labels.values).labels == 1).sum()) for d in make_sampler(recipe, labels)
    ]
    room = most_positives(make_sampler(recipe, labels), labels)
    assert max(counts) < room <= 1.5 * max(counts) + 32
