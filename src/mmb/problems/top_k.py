"""A scalar lower variable per block: the smoothed threshold above which a fixed share of the scores lies."""

import math
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import as_number, check_nonnegative, check_positive, check_sizes
from mmb.known_problem import KnownProblem
from mmb.problem import Problem
from mmb.trees import gather

ACCURACY = 1e-10
"""How accurately the thresholds are known."""


class TopKThreshold(KnownProblem):
    r"""Move the top-k thresholds of `m` groups to given places, with a small weight vector.

    Row `j` of group `i` has features $a_{ij}$ and the score $s_{ij} = a_{ij}'x$. The
    lower variable is the smoothed threshold $\lambda_i(x)$ above which a share $\rho$ of the
    scores lies:

    $$
    g_i(x, \lambda) = \rho\lambda + \tfrac{\tau_2}{2}\lambda^2
    + \tau_1 \operatorname{mean}_j \log(1 + e^{(s_{ij}-\lambda)/\tau_1}), \qquad
    f_i(x, \lambda) = \tfrac12 (\lambda - c_i)^2 + \tfrac{\nu}{2} |x|^2
    $$

    Its slope in $\lambda$ is $\rho + \tau_2\lambda - \operatorname{mean}_j
    \mathrm{sigmoid}((s_{ij}-\lambda)/\tau_1)$, which increases, so bisection gives $\lambda_i(x)$.
    Batches are rows drawn with replacement. There are no duals.

    Args:
        num_blocks: `m`.
        generator: Draws features and places; everything lives on its device.
        d_x: Number of features.
        rows: Number of rows of a group.
        share: `rho`.
        temperature: `tau_1`; the smaller, the closer to the exact top-k threshold.
        strong_convexity: `tau_2`.
        decay: `nu`.
        dtype: Of all tensors.
    """

    def __init__(
        self,
        num_blocks: int,
        generator: torch.Generator,
        *,
        d_x: int = 10,
        rows: int = 50,
        share: float = 0.2,
        temperature: float = 0.5,
        strong_convexity: float = 0.1,
        decay: float = 0.1,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if not 0 < as_number(share) < 1:
            raise ValueError(f"share: expected a number in (0, 1), got {share!r}")
        check_sizes(num_blocks=num_blocks, d_x=d_x, rows=rows)
        check_positive(temperature=temperature, strong_convexity=strong_convexity)
        check_nonnegative(decay=decay)
        self.share, self.temperature, self.strong_convexity = share, temperature, strong_convexity
        self.decay = decay
        device = generator.device
        shape = (num_blocks, rows, d_x)
        # Features have a common mean, so that x can move all thresholds at once, and norms of about 1.
        features = 0.5 + torch.randn(shape, generator=generator, dtype=dtype, device=device)
        self._features = features / math.sqrt(d_x)
        self._places = 1 + 0.5 * torch.randn(num_blocks, generator=generator, dtype=dtype, device=device)
        self.problem = Problem(self._upper, self._lower, num_blocks)
        self.x0 = torch.full((d_x,), -1.0, dtype=dtype, device=device)
        self.dual0 = None
        self.lower0 = torch.zeros_like(self._places)

    def sample(self, blocks: Tensor, batch_size: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Rows of the blocks for `g`; `f` has no noise. See the base class."""
        blocks, shape = blocks.to(self.device), (len(blocks), batch_size)
        rows = torch.randint(self._features.shape[1], shape, generator=generator, device=self.device)
        return gather(self._places, blocks), self._features[blocks.unsqueeze(1), rows]

    def exact(self, blocks: Tensor) -> tuple[Any, Any]:
        """All rows of the blocks; see the base class."""
        blocks = blocks.to(self.device)
        return gather(self._places, blocks), gather(self._features, blocks)

    def lower_star(self, x: Tensor) -> Tensor:
        """The thresholds to `ACCURACY` by bisection, differentiable by the implicit function theorem."""
        scores = (self._features @ x).double()
        fixed = scores.detach()
        # The sigmoid is within (0, 1), which brackets the root of the slope.
        low = torch.full_like(fixed[:, 0], -self.share / self.strong_convexity)
        high = torch.full_like(low, (1 - self.share) / self.strong_convexity)
        for _ in range(math.ceil(math.log2(1 / (self.strong_convexity * ACCURACY)))):
            middle = (low + high) / 2
            rising = self._slope(fixed, middle) > 0
            low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
        middle = (low + high) / 2
        # One Newton step: it leaves the value as good or better, and its derivative in x is the implicit one.
        soft = torch.sigmoid((fixed - middle.unsqueeze(1)) / self.temperature)
        curvature = self.strong_convexity + (soft * (1 - soft)).mean(1) / self.temperature
        return (middle - self._slope(scores, middle) / curvature).to(x.dtype)

    def dual_star(self, x: Tensor) -> None:
        """There are no duals."""
        return

    def _slope(self, scores: Tensor, threshold: Tensor) -> Tensor:
        above = torch.sigmoid((scores - threshold.unsqueeze(1)) / self.temperature).mean(1)
        return self.share + self.strong_convexity * threshold - above

    def _upper(self, x: Tensor, dual: None, threshold: Tensor, place: Tensor) -> Tensor:
        return 0.5 * (threshold - place) ** 2 + 0.5 * self.decay * x @ x

    def _lower(self, x: Tensor, threshold: Tensor, features: Tensor) -> Tensor:
        above = torch.nn.functional.softplus((features @ x - threshold) / self.temperature).mean()
        convex = 0.5 * self.strong_convexity * threshold**2
        return self.share * threshold + convex + self.temperature * above
