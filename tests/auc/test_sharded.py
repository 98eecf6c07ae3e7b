"""Objectives divided among real processes: the same path as in one, whatever their number."""

from __future__ import annotations

import warnings

import pytest
import torch

from objective_bank import estimate, make_data
from processes import in_processes
from sharded_steps import (
    CASES,
    FEW_CASES,
    TASKS,
    UNBIASED,
    in_this_group,
    make_objective,
    run_steps,
)


@pytest.fixture(scope="module")
def in_one_process():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {f"{name}/{kind}": run_steps(name, kind, sharded=False) for name, kind in CASES}


@pytest.fixture(scope="module")
def groups():
    """What groups of 2, 3 and 4 processes answer: all cases in one of them, a few in the others."""
    return {
        world: in_processes(world, in_this_group, CASES if world == 3 else FEW_CASES) for world in (2, 3, 4)
    }


@pytest.mark.parametrize("world", [2, 3, 4])
def test_any_number_of_processes_takes_the_same_path(world, in_one_process, groups):
    """With every kind of batch: weights, block state and logged numbers, after steps of Adam."""
    answers = [answer["steps"] for answer in groups[world]]
    for case in answers[0]:
        for key, value in in_one_process[case].items():
            found = [answer[case][key] for answer in answers]
            if key != "numbers" and not key.startswith("model."):
                found = [[row for part in found for row in part]]  # each process has its own blocks
            for one in found:
                torch.testing.assert_close(
                    torch.tensor(one, dtype=torch.float64),
                    torch.tensor(value, dtype=torch.float64),
                    rtol=1e-8,
                    atol=1e-10,
                    equal_nan=True,
                    msg=lambda text, case=case, key=key: f"{case} {key}: {text}",
                )


def test_unequal_numbers_of_tasks_leave_the_estimate_unbiased(groups):
    """Three, three and one of seven tasks: the mean over all draws is the estimate of all tasks, exactly."""
    for name in UNBIASED:
        data = make_data(seed=4, tasks=TASKS)
        whole = make_objective(name, data.labels, data.model).to(torch.float64).eval()
        for key, expected in estimate(whole, data, data.everything()).items():
            own = f"inner.{key}" if key.startswith("mean_") else key
            found = [answer["means"][name][own] for answer in groups[3]]
            found = [torch.tensor(one, dtype=torch.float64) for one in found]
            found = [torch.cat(found)] if key.startswith("mean_") else found  # of each process's own tasks
            for one in found:
                torch.testing.assert_close(one, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["sampled", "compositional"])
def test_what_travels_does_not_grow_with_the_number_of_tasks(kind, groups):
    """The encoder (4 x 6 weights, 6 biases), three heads of 7 numbers, and a few numbers that are logged."""
    for few, many in (answer["bytes"][kind] for answer in groups[2]):
        assert few == many
        assert 8 * (30 + 21) < few <= 8 * (30 + 21 + 5)


def test_state_that_belongs_to_no_task_is_refused(groups):
    for answer in groups[2]:
        assert "previous.value" in answer["refusal"]
        assert "train with one" in answer["refusal"]
