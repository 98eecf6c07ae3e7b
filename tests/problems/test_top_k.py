"""The smoothed top-k threshold against its definition and against sorting."""

import pytest
import torch

from mmb.problems import TopKThreshold


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_threshold_solves_its_equation_to_the_promised_accuracy():
    known = TopKThreshold(20, seeded(0))
    x = known.x0
    threshold = known.lower_star(x)
    _, features = known.exact(torch.arange(20))
    above = torch.sigmoid((features @ x - threshold.unsqueeze(1)) / known.temperature).mean(1)
    # The slope is at least strong_convexity, so this bounds the distance from the root.
    residual = known.share + known.strong_convexity * threshold - above
    assert residual.abs().max() / known.strong_convexity < 1e-10


def test_threshold_is_the_top_k_quantile_when_it_is_hardly_smoothed():
    known = TopKThreshold(5, seeded(0), rows=50, share=0.21, temperature=1e-5, strong_convexity=1e-6)
    x = torch.randn(known.x0.shape, generator=seeded(1), dtype=torch.float64)
    _, features = known.exact(torch.arange(5))
    ordered = (features @ x).sort(dim=1, descending=True).values
    # A share of 0.21 of 50 rows is 10.5: the root sits on the eleventh score, counted half.
    torch.testing.assert_close(known.lower_star(x), ordered[:, 10], rtol=0, atol=1e-4)


def test_share_is_checked():
    with pytest.raises(ValueError, match="share"):
        TopKThreshold(5, seeded(0), share=1.5)
