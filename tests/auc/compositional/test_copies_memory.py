"""Weight copies that do not fit in memory are refused, with what would fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mmb import memory
from mmb.auc import CompositionalAUC
from mmb.auc.compositional.copies_memory import Footprint
from mmb.auc.compositional.weight_copies import WeightCopies
from mmb.memory import NoRoomError
from mmb.models import MultiTask, mlp

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


class TestRoom:
    def free(self, monkeypatch, **devices):
        monkeypatch.setattr(memory, "free_bytes", lambda device: devices.get(device.type))

    def test_the_size_is_that_of_what_is_made(self):
        copies = WeightCopies(mlp(4, [8], 6), torch.bfloat16)
        size = copies.measure(mlp(4, [8], 6), torch.bfloat16)
        assert size == copies.footprint
        assert size.bytes == copies.stacked.numel() * copies.stacked.element_size()
        assert size.bytes == 2 * 6 * (4 * 8 + 8 + 8 + 1)
        assert str(size) == "6 weight copies of 49 weights in bfloat16 on cpu: 588 bytes"

    def test_refused_before_anything_is_allocated(self, monkeypatch):
        self.free(monkeypatch, cpu=2 * 2**30)
        with torch.device("meta"):
            model = MultiTask(nn.Linear(1000, 10_000), 10_000, 1000)
        labels = torch.zeros(2, 1000, dtype=torch.int8)
        labels[0] = 1
        with pytest.raises(
            NoRoomError, match=r"1,000 weight copies .* on cpu: 37\.3 GiB, but 2\.0 GiB are free"
        ):
            CompositionalAUC(labels, model, copies_device="cpu")

    def test_names_what_would_fit(self, monkeypatch):
        size = Footprint(1000, 2**20, torch.float32, GPU)  # 3.9 GiB
        self.free(monkeypatch, cuda=2 * 2**30, cpu=3 * 2**30)
        with pytest.raises(NoRoomError) as refused:
            size.check()
        message = str(refused.value)
        assert "3.9 GiB, but 2.0 GiB are free there" in message
        assert "what would fit: copies_dtype=bfloat16 (2.0 GiB); " in message
        assert "copies_dtype=bfloat16 and copies_device=cpu (2.0 GiB); " in message
        assert "2 times as many processes" in message
        assert "copies_device=cpu (3.9 GiB)" not in message
        self.free(monkeypatch, cuda=2**30, cpu=8 * 2**30)
        with pytest.raises(NoRoomError, match=r"copies_device=cpu \(3\.9 GiB\)") as refused:
            size.check()
        assert "copies_dtype=bfloat16 (" not in str(refused.value)
        self.free(monkeypatch, cuda=100, cpu=100)
        with pytest.raises(NoRoomError, match="not even one copy would fit"):
            size.check()
        self.free(monkeypatch, cuda=4 * 2**30)
        size.check()

    def test_processes_that_share_the_memory_count(self, monkeypatch):
        size = Footprint(1000, 2**18, torch.float32, CPU)  # 1 GB
        self.free(monkeypatch, cpu=2**30)
        size.check()
        with pytest.raises(NoRoomError, match=r"for each of 2 processes.*copies_dtype=bfloat16"):
            size.check(sharers=2)

    def test_where_free_memory_is_not_known_nothing_is_refused(self, monkeypatch):
        self.free(monkeypatch)
        Footprint(10**9, 10**9, torch.float32, CPU).check()
