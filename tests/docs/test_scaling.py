"""The page on many processes: what it quotes is what the code says and what the log has."""

import json
import re
import statistics

import pytest
import torch

from docs.conftest import ROOT
from mmb import memory
from mmb.auc.compositional.copies_memory import Footprint
from mmb.memory import NoRoomError

PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
LOG = (ROOT / "results/distributed/distributed.txt").read_text(encoding="utf-8").splitlines()
LINES = json.loads(LOG[-1])["lines"]


def numbers_and_options(text):
    return re.findall(r"[\d,.]+ (?:weights|weight copies|GiB)|copies_\w+=\w+", text)


def test_the_quoted_refusal_has_the_numbers_of_the_real_one(monkeypatch):
    free = {"cuda": 22 * 2**30, "cpu": 200 * 2**30}
    monkeypatch.setattr(memory, "free_bytes", lambda device: free[device.type])
    with pytest.raises(NoRoomError) as refused:
        Footprint(1000, 11_181_642, torch.float32, torch.device("cuda:0")).check()
    quoted = " ".join(line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> "))
    assert len(numbers_and_options(quoted)) == 12
    assert numbers_and_options(quoted) == numbers_and_options(str(refused.value))


def test_tables_of_the_log_are_shown_whole():
    ranges = re.findall(r"results/distributed/distributed.txt:(\d+):(\d+)", PAGE)
    shown = ["\n".join(LOG[int(first) - 1 : int(last)]) for first, last in ranges]
    first, second, third = shown
    assert first.startswith("64 blocks a step")
    assert first.splitlines()[-1].split()[:3] == ["CompositionalAUC", "100,000", "2"]
    assert second.startswith("Bare all-reduce")
    assert second.splitlines()[-1].startswith("latency")
    assert third.startswith("Model, not measured: ms per step with 1.25 GB/s")
    assert third.splitlines()[-1].startswith("CompositionalAUC  100,000")


def test_memory_is_that_of_the_log():
    found = {(line["case"], line["m"], line["processes"]): line["block_bytes"] for line in LINES}
    for case, one, two in (("v1", "0.42 GB", "0.21 GB"), ("v2", "0.027 GB", "0.013 GB")):
        assert one in PAGE
        assert two in PAGE
        for text, processes in ((one, 1), (two, 2)):
            digits = len(text.split(".")[1]) - len(" GB")
            assert f"{found[f'Solver, {case}', 100_000, processes] / 1e9:.{digits}f} GB" == text


def test_what_is_sent_does_not_grow_with_the_number_of_blocks():
    for case in {line["case"] for line in LINES}:
        several = [line for line in LINES if line["case"] == case and line["processes"] == 2]
        assert len({line["reduced"] for line in several}) == 1
        for line in several:
            assert line["reduced"] < line["wire"] < 1.1 * line["reduced"]


def test_speed_and_prediction_are_those_of_the_log():
    pairs = list(zip(LINES[::2], LINES[1::2], strict=True))
    for start in ("Solver", ""):
        gains = [
            one["ms"] / two["ms"] for one, two in pairs if one["case"].startswith("Solver") == bool(start)
        ]
        assert re.search(rf"{min(gains):.2f}\s+to {max(gains):.2f} times as fast", PAGE)
    ratios = [two["ms"] / two["predicted_ms"] for _, two in pairs]
    assert re.search(rf"{statistics.median(ratios):.2f} times .* median", PAGE)
    assert re.search(rf"between {min(ratios):.2f} and {max(ratios):.2f}", PAGE)
