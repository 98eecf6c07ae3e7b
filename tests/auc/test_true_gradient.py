"""At the exact dual and thresholds, the estimate on all data is the gradient of the true F.

F is differentiated by finite differences.
"""

from __future__ import annotations

import pytest

from exact_blocks import settle, true_value
from objective_bank import estimate, make, make_data

BILEVEL = [
    "minmax",
    "minmax-logit",
    "minmax-recentered",
    "partial-full",
    "partial-two-widths",
    "partial-range",
    "partial-logit",
    "partial-recentered",
    "partial-recentered-range",
    "two-way-full",
    "two-way-recentered",
    "pairwise-logistic-full",
    "pairwise-hinge-full",
]


@pytest.mark.parametrize("name", BILEVEL)
def test_estimate_is_the_gradient_of_the_true_function(name):
    data = make_data(seed=3, rows=16, tasks=3)
    objective = make(name, data, task_weighting=0.5)
    settle(objective, data)
    batch = data.dense()  # the conformance suite shows that task-sampled batches give the same
    ours = estimate(objective, data, batch)
    step, checked = 1e-5, 0
    for key, parameter in [*data.model.named_parameters(), *objective.named_parameters()]:
        flat = parameter.detach().view(-1)
        for i in range(0, len(flat), 3):
            old = float(flat[i])
            flat[i] = old + step
            above = true_value(objective, data)
            flat[i] = old - step
            below = true_value(objective, data)
            flat[i] = old
            difference = (above - below) / (2 * step)
            assert float(ours[key].view(-1)[i]) == pytest.approx(difference, abs=2e-8, rel=1e-6), (key, i)
            checked += 1
    assert checked > 15
    assert float(ours["weight"].abs().max()) > 1e-3
    if name.startswith(
        ("partial", "pairwise", "two-way")
    ):  # the part through the thresholds is not negligible
        objective.gradient = "practical"
        assert float((estimate(objective, data, batch)["weight"] - ours["weight"]).abs().max()) > 1e-4
