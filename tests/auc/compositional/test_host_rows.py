"""Rows in host memory: read ahead, written back."""

from __future__ import annotations

import pytest
import torch

from mmb.auc.compositional.host_rows import HostRows

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def numbers(*values):
    return torch.tensor(values)


def count_reads(monkeypatch):
    started, start = [], HostRows._start
    monkeypatch.setattr(
        HostRows, "_start", lambda self, numbers: started.append(numbers.tolist()) or start(self, numbers)
    )
    return started


def make_matrix(rows=6, width=5, dtype=torch.float32):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("device", DEVICES)
class TestHostRows:
    def test_reads_and_writes_rows(self, device):
        matrix = make_matrix()
        before, host = matrix.clone(), HostRows(matrix, torch.device(device))
        rows = host.gather(numbers(4, 1))
        assert rows.device.type == device
        assert torch.equal(rows.cpu(), before[[4, 1]])
        host.scatter_(numbers(4, 1), rows + 1)
        host.wait()
        assert torch.equal(matrix[[4, 1]], before[[4, 1]] + 1)
        assert torch.equal(matrix[[0, 2, 3, 5]], before[[0, 2, 3, 5]])

    def test_what_was_read_ahead_is_what_was_written_last(self, device):
        matrix = make_matrix()
        host = HostRows(matrix, torch.device(device))
        host.prefetch(numbers(0, 1, 2))
        host.prefetch(numbers(3, 2, 1))
        rows = host.gather(numbers(0, 1, 2))
        new = rows + 1
        host.scatter_(numbers(0, 1, 2), new)
        got = host.gather(numbers(3, 2, 1))
        assert torch.equal(got.cpu(), torch.stack([make_matrix()[3], new[2].cpu(), new[1].cpu()]))

    def test_reading_ahead_is_used(self, device, monkeypatch):
        started = count_reads(monkeypatch)
        host = HostRows(make_matrix(), torch.device(device))
        host.prefetch(numbers(0, 1))
        host.gather(numbers(4, 5))  # the step before
        host.prefetch(numbers(2, 3))
        host.gather(numbers(0, 1))
        host.gather(numbers(2, 3))
        assert started == [[0, 1], [4, 5], [2, 3]]
        host.gather(numbers(2, 3))  # only once
        assert started[3:] == [[2, 3]]

    def test_other_rows_than_foreseen_are_right_too(self, device):
        matrix = make_matrix()
        host = HostRows(matrix, torch.device(device))
        host.prefetch(numbers(0, 1))
        assert torch.equal(host.gather(numbers(1, 0)).cpu(), matrix[[1, 0]])
        assert host.gather(torch.empty(0, dtype=torch.int64)).shape == (0, 5)

    def test_what_others_wrote_is_seen(self, device):
        matrix = make_matrix()
        host = HostRows(matrix, torch.device(device))
        host.prefetch(numbers(0, 1))
        host.wait()
        matrix.fill_(7)
        assert torch.equal(host.gather(numbers(0, 1)).cpu(), torch.full((2, 5), 7.0))

    def test_rounds_to_the_dtype_of_the_matrix_however_they_come_back(self, device):
        host = HostRows(make_matrix(dtype=torch.bfloat16), torch.device(device))
        host.prefetch(numbers(2))
        host.scatter_(numbers(2), torch.full((1, 5), 1 / 3, device=device))
        assert torch.equal(host.gather(numbers(2)).cpu(), torch.full((1, 5), 1 / 3).bfloat16())
