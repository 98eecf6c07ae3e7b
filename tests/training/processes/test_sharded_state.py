"""Checkpoints of many processes: whole or not at all, and read by any number of them."""

from __future__ import annotations

import errno

import pytest
import torch

from mmb.training import CheckpointError
from mmb.training.processes.group import Ranks
from mmb.training.processes.sharded_state import Piece, Pieces
from mmb.training.runs import checkpoint, state_files
from processes import in_processes, in_turn

WHOLE = torch.arange(14.0).view(7, 2)


def share(ranks: Ranks) -> tuple[int, int]:
    size = -(-7 // ranks.size)
    return min(7, ranks.rank * size), min(7, (ranks.rank + 1) * size)


def save(folder, step=3, best_step=1):
    ranks = Ranks.of_this_process()
    start, stop = share(ranks)
    state = {
        "weights": torch.linspace(0, 1, 5),
        "optimizer": {0: {"step": torch.tensor(4.0), "half": torch.ones(2, dtype=torch.bfloat16)}},
        "blocks": Piece.of(WHOLE[start:stop] + step, start, 7),  # none on the last of four
        "random": Piece.of(torch.full((1, 3), ranks.rank, dtype=torch.uint8), ranks.rank, ranks.size),
        "plain": [1, None, "text"],
    }
    checkpoint.save(folder, step, state, best_step, ranks)


def read(folder, said=None):
    """What this process reads, as plain lists."""
    ranks = Ranks.of_this_process()
    said = [] if said is None else said
    state = checkpoint.load_newest(folder, said.append, ranks)
    blocks, random = state["blocks"], state["random"]
    assert isinstance(blocks, Pieces)
    assert state["plain"] == [1, None, "text"]
    assert torch.equal(state["weights"], torch.linspace(0, 1, 5))
    assert state["optimizer"][0]["step"].shape == ()
    assert state["optimizer"][0]["half"].dtype == torch.bfloat16
    rows = blocks.read(*share(ranks)).tolist()
    return rows, random.read(0, random.total).tolist(), said


def test_saved_by_four_read_by_any_number(tmp_path):
    in_processes(4, save, tmp_path)
    (path,) = checkpoint.steps(tmp_path)
    files = {file.name for file in path.iterdir()}
    assert {"manifest.json", "state.json"} < files
    assert all(name.endswith((".safetensors", ".json")) for name in files)  # nothing to execute
    for answers in (in_processes(3, read, tmp_path), in_processes(2, read, tmp_path), [read(tmp_path)]):
        assert [row for rows, _, _ in answers for row in rows] == (WHOLE + 3).tolist()
        assert all(random == [[rank] * 3 for rank in range(4)] for _, random, _ in answers)


def test_a_damaged_file_of_one_process_is_noticed_by_all(tmp_path):
    in_processes(2, in_turn, [(save, tmp_path, 3), (save, tmp_path, 4)])
    newest = checkpoint.steps(tmp_path)[-1]
    last = sorted(newest.glob("*.safetensors"))[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    for answers in (in_processes(2, read, tmp_path), [read(tmp_path)]):
        assert [row for rows, _, _ in answers for row in rows] == (WHOLE + 3).tolist()
        assert all(f"{newest} is damaged" in said[0] for _, _, said in answers)


def fail_in_one(folder, where):
    """A full disk in the second process, or in the main one at the end."""

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    rank = Ranks.of_this_process().rank
    with pytest.MonkeyPatch.context() as patch:
        if where == "tensors" and rank == 1:
            patch.setattr(state_files.Piece, "__get_tensor_shard__", fail)
        if where == "manifest" and rank == 0:
            patch.setattr(checkpoint, "write_whole", fail)
        try:
            save(folder, 4)
        except CheckpointError as error:
            return str(error)
    return "saved"


def test_a_disk_that_is_full_for_one_fails_for_all_and_leaves_the_last(tmp_path):
    calls = [(save, tmp_path, 3), (fail_in_one, tmp_path, "tensors"), (fail_in_one, tmp_path, "manifest")]
    for _, tensors, manifest, (_, _, said) in in_processes(2, in_turn, [*calls, (read, tmp_path)]):
        for message in (tensors, manifest):
            assert "step 4 could not be written" in message
            assert "No space left on device" in message
        assert said == []
    assert [path.name for path in tmp_path.iterdir()] == ["00000003"]
