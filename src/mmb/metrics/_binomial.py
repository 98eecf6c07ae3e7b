"""The binomial distribution, exactly, for many tasks at once: tails and Clopper-Pearson intervals."""

import torch
from torch import Tensor

_TINY = 1e-300
_CONVERGED = 1e-14
_MOST_TERMS = 10_000  # about the square root of the number of rows are needed
_HALVINGS = 45  # of an interval of rates


def binomial_cdf(count: Tensor, number: Tensor, rate: Tensor) -> Tensor:
    """P(at most `count` of `number` events), each of probability `rate`; float64, elementwise."""
    shape = torch.broadcast_shapes(count.shape, number.shape, rate.shape)  # type: ignore[no-untyped-call]
    count, number, rate = (value.double().expand(shape) for value in (count, number, rate))
    inside = (count >= 0) & (count < number)
    k = count.where(inside, 0.0)
    n = number.where(inside, 1.0)
    found = _incomplete_beta(n - k, k + 1, 1 - rate)
    return torch.where(inside, found, (count >= number).double())


def clopper_pearson(count: Tensor, number: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Limits of the exact two-sided interval of a rate, from `count` events among `number`; NaN without any.

    The true rate is in it with a probability of at least `confidence`, whatever it is.
    """
    tail = (1 - confidence) / 2
    # at the lower limit, P(count or more) = tail; at the upper one, P(count or fewer) = tail
    counts = torch.stack([count.double() - 1, count.double()])
    wanted = torch.tensor([1 - tail, tail], dtype=torch.float64, device=count.device).unsqueeze(1)
    low, high = torch.zeros_like(counts), torch.ones_like(counts)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = binomial_cdf(counts, number, middle) > wanted  # falls with the rate
        low, high = middle.where(below, low), high.where(below, middle)
    limits = (low + high) / 2
    lower = limits[0].where(count > 0, 0.0)
    upper = limits[1].where(count < number, 1.0)
    return lower.where(number > 0, torch.nan), upper.where(number > 0, torch.nan)


def most_allowed(number: Tensor, rate: float, error: float) -> Tensor:
    """The largest k with P(at most k of `number` events of probability `rate`) <= `error`; -1 if none."""
    low, high = torch.full_like(number, -1), number.clone()  # the answer is in [low, high)
    asked = torch.tensor(rate, dtype=torch.float64, device=number.device)
    while bool((high - low > 1).any()):
        middle = (low + high) // 2
        fits = binomial_cdf(middle, number, asked) <= error
        low, high = middle.where(fits, low), high.where(fits, middle)
    return low


def fewest_rows(rate: float, error: float) -> int:
    """How many rows it takes for `most_allowed` to be at least zero."""
    low, high = 0, 1
    while (1 - rate) ** high > error:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (1 - rate) ** middle > error else (low, middle)
    return high


def _incomplete_beta(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction (Lentz's method)."""
    mirrored = x > (a + 1) / (a + b + 2)  # there, 1 - I_{1-x}(b, a) converges fast
    a, b = torch.where(mirrored, b, a), torch.where(mirrored, a, b)
    x = torch.where(mirrored, 1 - x, x)
    front = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + a * x.log() + b * torch.log1p(-x)
    fraction = d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    c = torch.ones_like(x)
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / _not_zero(1 + even * d)
        c = _not_zero(1 + even / c)
        fraction = fraction * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _not_zero(1 + odd * d)
        c = _not_zero(1 + odd / c)
        step = d * c
        fraction = fraction * step
        if not bool(((step - 1).abs() > _CONVERGED).any()):
            break
    found = (front.exp() * fraction / a).where(x > 0, 0.0)
    return torch.where(mirrored, 1 - found, found)


def _not_zero(values: Tensor) -> Tensor:
    return values.where(values.abs() > _TINY, _TINY)
