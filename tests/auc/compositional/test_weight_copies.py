"""Where weight copies are stored: read ahead, written back, and refused where they cannot fit."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from mmb import memory
from mmb.auc import CompositionalAUC, TaskSampler
from mmb.auc.batches import TaskBatch
from mmb.auc.compositional.copies_memory import Footprint
from mmb.auc.compositional.host_rows import HostRows
from mmb.auc.compositional.weight_copies import WeightCopies
from mmb.memory import NoRoomError, free_bytes, readable_bytes
from mmb.models import MultiTask, mlp

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
NUM_TASKS, NUM_ROWS = 6, 80
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


def make_problem(device="cpu", **options):
    generator = torch.Generator().manual_seed(3)
    labels = (torch.rand(NUM_ROWS, NUM_TASKS, generator=generator) < 0.4).to(torch.int8)
    inputs = torch.randn(NUM_ROWS, 4, generator=generator).to(device)
    torch.manual_seed(0)  # the model's start
    model = mlp(4, [8], NUM_TASKS).to(device)
    objective = CompositionalAUC(labels, model, lr_lower=0.4, **options).to(device)
    return labels, inputs, model, objective


def to_device(batch, device):
    """All but the task numbers, as the feed of a run does."""
    lower = None if batch.lower is None else to_device(batch.lower, device)
    return TaskBatch(batch.inputs, batch.labels.to(device), batch.tasks, lower=lower)


def train(ahead, device="cpu", steps=12, **options):
    labels, inputs, model, objective = make_problem(device, **options)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    # four of six tasks a step, so that consecutive steps have at least two in common
    sampler = TaskSampler(labels, 4, 8, independent_lower=True, steps_per_epoch=steps + 1, generator=1)
    shared = 0
    for draw, following in pairwise(sampler):
        if ahead:
            objective.prefetch(following.tasks)
        shared += int(torch.isin(draw.tasks, following.tasks).sum())
        optimizer.zero_grad()
        objective.backward(model, to_device(draw.batch(inputs), device))
        optimizer.step()
    assert shared >= 2 * steps
    return {**model.state_dict(), **objective.state_dict()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float64])
def test_reading_ahead_changes_no_bit(device, dtype, monkeypatch):
    start = {"copies_dtype": dtype, "copies_device": "cpu"}
    plain, started = train(False, device, **start), count_reads(monkeypatch)
    ahead = train(True, device, **start)
    assert len(started) == 12 + 1  # all of them ahead, but for the first
    for name, value in plain.items():
        assert torch.equal(value, ahead[name]), name
    on_device = train(False, device, copies_dtype=dtype)
    for name, value in plain.items():
        assert torch.equal(value.cpu(), on_device[name].cpu()), name


def test_joining_undoes_splitting():
    encoder = nn.Sequential(nn.Conv1d(3, 4, 2), nn.Flatten(), nn.Linear(8, 5))
    copies = WeightCopies(MultiTask(encoder, 5, NUM_TASKS))
    rows = torch.randn(2, copies.stacked.shape[1], generator=torch.Generator().manual_seed(0))
    assert torch.equal(copies.join(copies.split(rows)), rows)
    assert torch.equal(copies.join([part.contiguous() for part in copies.split(rows)]), rows)


def test_state_loaded_after_reading_ahead_is_what_counts():
    labels, inputs, model, objective = make_problem(copies_device="cpu")
    batch = next(iter(TaskSampler(labels, 4, 8, independent_lower=True, generator=1))).batch(inputs)
    other, twin = copy.deepcopy(objective), copy.deepcopy(model)
    with torch.no_grad():
        other.copies.stacked.add_(0.1)
    objective.prefetch(batch.tasks)
    objective.load_state_dict(other.state_dict())
    duplicate, third = copy.deepcopy(objective), copy.deepcopy(model)
    objective.backward(model, batch)
    other.backward(twin, batch)
    duplicate.backward(third, batch)
    for found, network in ((objective, model), (duplicate, third)):
        for name, value in other.state_dict().items():
            assert torch.equal(value, found.state_dict()[name]), name
        for left, right in zip(network.parameters(), twin.parameters(), strict=True):
            assert torch.equal(left.grad, right.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_step_with_copies_in_host_memory_never_waits_for_the_device():
    labels, inputs, model, objective = make_problem("cuda", copies_device="cpu")
    draw = next(iter(TaskSampler(labels, 4, 8, independent_lower=True, generator=1)))
    batch = to_device(draw.batch(inputs), "cuda")
    objective.backward(model, batch)  # first use locks memory and loads kernels
    assert objective.copies.stacked.is_pinned()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            objective.prefetch(draw.tasks)
            objective.backward(model, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


class TestRoom:
    def free(self, monkeypatch, **devices):
        monkeypatch.setattr(memory, "free_bytes", lambda device: devices.get(device.type))

    def test_the_size_is_that_of_what_is_made(self):
        _, _, model, objective = make_problem(copies_dtype=torch.bfloat16)
        stacked = objective.copies.stacked
        size = objective.copies.measure(model, torch.bfloat16)
        assert size.bytes == stacked.numel() * stacked.element_size() == 2 * NUM_TASKS * (4 * 8 + 8 + 8 + 1)
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


class TestFreeBytes:
    def test_of_the_host(self):
        import os

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
