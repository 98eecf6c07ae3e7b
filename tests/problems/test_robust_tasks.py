"""What makes the robust multi-task problem itself: weights on worse groups, and no convexity."""

import torch

from mmb.problems import RobustTasks


def test_worse_groups_have_larger_weights():
    known = RobustTasks(6, torch.Generator().manual_seed(0))
    weights = known.dual_star(known.x0)
    torch.testing.assert_close(weights.sum(1), torch.ones(6, dtype=weights.dtype))
    assert weights.min() >= 0
    judge, _ = known.exact(torch.arange(6))
    features = torch.tanh(judge["inputs"] @ known.x0["weight"].mT + known.x0["bias"])
    heads = known.lower_star(known.x0)
    losses = ((torch.einsum("mgnh,mh->mgn", features, heads) - judge["targets"]) ** 2).mean(2)
    assert torch.equal(losses.argmax(1), weights.argmax(1))
    assert (weights.max(1).values > 1 / 3).all()


def test_the_value_is_not_convex():
    known = RobustTasks(3, torch.Generator().manual_seed(0))
    mirrored = {name: -leaf for name, leaf in known.x0.items()}  # the heads can change sign too
    middle = {name: torch.zeros_like(leaf) for name, leaf in known.x0.items()}
    torch.testing.assert_close(known.value(mirrored), known.value(known.x0))
    assert known.value(middle) > known.value(known.x0)
