"""Free memory of hosts, containers and devices."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from mmb import memory
from mmb.memory import free_bytes, readable_bytes

CPU = torch.device("cpu")


class TestFreeBytes:
    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
    def test_of_the_host(self):
        everything = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert 0 < free_bytes(CPU) <= everything

    def test_of_a_container(self, tmp_path, monkeypatch):
        (tmp_path / "memory.max").write_text("5000\n")
        (tmp_path / "memory.current").write_text("3000\n")
        (tmp_path / "memory.stat").write_text("anon 2500\ninactive_file 400\n")
        monkeypatch.setattr(memory, "_CGROUPS", ((str(tmp_path), "memory.max", "memory.current"),))
        assert free_bytes(CPU) == 5000 - 3000 + 400
        (tmp_path / "memory.max").write_text("max\n")
        assert free_bytes(CPU) > 5000

    def test_of_a_device_that_does_not_tell(self):
        assert free_bytes(torch.device("meta")) is None

    @pytest.mark.parametrize(
        ("count", "text"),
        [(12, "12 bytes"), (2048, "2.0 KiB"), (3 << 20, "3.0 MiB"), (5000 << 30, "5,000.0 GiB")],
    )
    def test_readable(self, count, text):
        assert readable_bytes(count) == text
