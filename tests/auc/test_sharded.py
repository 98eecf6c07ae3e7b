"""Objectives divided among real processes: the same path as in one, whatever their number."""

from __future__ import annotations

import warnings

import pytest
import torch

from objective_bank import estimate, make_data
from processes import in_processes
from sharded_steps import (
    CASES,
    TASKS,
    bytes_reduced,
    every_objective,
    make_objective,
    means_over_all_draws,
    run_steps,
)


@pytest.fixture(scope="module")
def in_one_process():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {f"{name}/{kind}": run_steps(name, kind, sharded=False) for name, kind in CASES}


@pytest.mark.parametrize("world", [2, 3, 4])
def test_any_number_of_processes_takes_the_same_path(world, in_one_process):
    """Every objective, fed in every way: weights, block state and logged numbers, after steps of Adam."""
    answers = in_processes(world, every_objective)
    for case, expected in in_one_process.items():
        for key, value in expected.items():
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


def test_unequal_numbers_of_tasks_leave_the_estimate_unbiased():
    """Three, three and one of seven tasks: the mean over all draws is the estimate of all tasks, exactly."""
    names = ["minmax", "partial-full", "pairwise-hinge-full", "cross-entropy", "compositional"]
    answers = in_processes(3, means_over_all_draws, names)
    for number, name in enumerate(names):
        data = make_data(seed=4, tasks=TASKS)
        whole = make_objective(name, data.labels, data.model).to(torch.float64).eval()
        for key, expected in estimate(whole, data, data.everything()).items():
            own = f"inner.{key}" if key.startswith("mean_") else key
            found = [answer[number][own] for answer in answers]
            found = [torch.tensor(one, dtype=torch.float64) for one in found]
            found = [torch.cat(found)] if key.startswith("mean_") else found  # of each process's own tasks
            for one in found:
                torch.testing.assert_close(one, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["sampled", "compositional"])
def test_what_travels_does_not_grow_with_the_number_of_tasks(kind):
    """The encoder (4 x 6 weights, 6 biases), three heads of 7 numbers, and a few numbers that are logged."""
    for few, many in in_processes(2, bytes_reduced, kind):
        assert few == many
        assert 8 * (30 + 21) < few <= 8 * (30 + 21 + 5)
