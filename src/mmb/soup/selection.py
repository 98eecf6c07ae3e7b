"""The uniform average, and the greedy one by a validation metric."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mmb.soup.pool import Model, Models, Pool
from mmb.soup.states import Name, shares_of

_LEAST_ERROR = 1e-12  # of differences without any spread, to divide by


@dataclass(frozen=True)
class Trial:
    """An average that `greedy` compared with another.

    Attributes:
        members: The models in it.
        against: The models in the average that it was compared with.
        gain: How much higher its value is.
        error: Standard error of the gain; NaN if there is a single value to compare.
        accepted: Whether the gain was enough.
    """

    members: tuple[Name, ...]
    against: tuple[Name, ...]
    gain: float
    error: float
    accepted: bool


@dataclass(frozen=True)
class Soup:
    """An average of models.

    Attributes:
        model: A new module with the average; the models it is made of are unchanged.
        weights: The share of every model, zero for those left out.
        values: What `evaluate` found for each model alone, the mean if it was several numbers.
        value: The same for the average; NaN if it was not evaluated.
        trials: The averages that were compared, in order.
    """

    model: nn.Module
    weights: dict[Name, float]
    values: dict[Name, float] = field(default_factory=dict)
    value: float = math.nan
    trials: tuple[Trial, ...] = ()

    @property
    def picked(self) -> tuple[Name, ...]:
        """The models with a share, in the order given."""
        return tuple(name for name, share in self.weights.items() if share > 0)


def uniform(
    models: Models,
    *,
    weights: Sequence[float] | Mapping[str, float] | None = None,
    batches: Iterable[Any] | None = None,
    start: Model | None = None,
    like: nn.Module | None = None,
    same_start: bool = False,
) -> Soup:
    """Average the weights of models that share a start.

    Floating point entries of the state dict are averaged: on the device and in the dtype of the first model,
    computed in float32 or better. All else must be the same in all models, except for the counters of batch
    normalization, of which the largest is kept. Objectives are modules too: their block state (means, duals,
    thresholds, a number per positive) is averaged in the same way.

    Args:
        models: Modules of one class, or their state dicts; a list, or a mapping from names.
        weights: Share of each model, in proportion; equal by default.
        batches: Inputs, one item per call, to compute the statistics of batch normalization again: the
            statistics of an average are not the average of statistics. A few thousand rows are enough, drawn
            as those the model will be used on.
        start: The weights that all models started from, to check that they did. Without it they are compared
            with the first model.
        like: A module to put state dicts into; it stays unchanged.
        same_start: Whether the models are known to share a start. Their weights are then not compared, so
            that training may have taken them far from it.

    Returns:
        The average. A single model is copied; only its batch normalization changes, if there are `batches`.

    Raises:
        ValueError: If there is no model; if models differ in names, shapes or whole numbers; if weights of
            layers are as different as those of networks trained from different starts (a cosine below 0.5);
            if some number is not finite; if running statistics differ and there are no `batches`, or those of
            the `batches` are not finite; if a share is negative, or all are zero.
        TypeError: If models are not of one class, or not modules or state dicts.
    """
    pool = Pool(models, batches, start, like, same_start)
    shares = shares_of(weights, pool.names)
    pool.check_finite([name for name in pool.names if shares[name] > 0])
    return Soup(pool.hold(shares, final=True), shares)


def greedy(
    models: Models,
    evaluate: Callable[[nn.Module], Any],
    *,
    fallback: Name | None = None,
    guard: float = 1.0,
    batches: Iterable[Any] | None = None,
    start: Model | None = None,
    like: nn.Module | None = None,
    same_start: bool = False,
) -> Soup:
    r"""Average the models that raise a validation metric: the best, then every other that raises it further.

    Models are taken by falling value, and the average of those taken so far is evaluated with each. Among
    many averages one looks better than it is, more so the fewer rows there are to tell. So in the end the
    average must beat one model named beforehand, `fallback`, by more than noise, or that model is returned:

    $$
    \bar d > \texttt{guard} \cdot \frac{s}{\sqrt{n}}, \qquad
    d_i = \text{value}_i(\text{average}) - \text{value}_i(\text{fallback}), \quad i = 1, \dots, n,
    $$

    with the mean and the standard deviation of the differences. The numbers that `evaluate` returns are the
    values: one for each task, or, from [`jackknife`][mmb.soup.jackknife], one for each fold of the rows.

    Args:
        models: As for `uniform`.
        evaluate: From a module in evaluation mode to a number or several, larger is better; NaN where there
            is none, as for a task without positives. Several are compared one by one; their mean is what is
            raised. The module holds another average in every call.
        fallback: The model to return unless the average is better; the first by default. Choose the one
            that you would use if there were no others, such as training that just continues.
        guard: How many standard errors the gain must have; 0 for any gain. A single number has no standard
            error: any gain is then enough.
        batches: As for `uniform`; read again for every average, so not an iterator.
        start: As for `uniform`.
        like: As for `uniform`.
        same_start: As for `uniform`.

    Returns:
        The average, with the value of every model and what was compared. If no model has a value, it is the
        uniform average, with a warning. If the fallback alone has none, it is not compared with.

    Raises:
        ValueError: As `uniform`; if there is no model `fallback`; if `evaluate` does not always return the
            same number of values. A model with numbers that are not finite is left out with a warning,
            unless it is the fallback.
    """
    if batches is not None and iter(batches) is batches:
        raise ValueError("batches: got an iterator, which is read only once; give a list or a data loader")
    _check_guard(guard)
    pool = Pool(models, batches, start, like, same_start)
    fallback = pool.names[0] if fallback is None else fallback
    if fallback not in pool.names:
        raise ValueError(f"fallback: there is no model {fallback!r}; models are {list(pool.names)}")
    pool.check_finite([fallback])
    broken = [name for name in pool.names if pool.broken_entry(name) is not None]
    if broken:
        warnings.warn(f"models: {broken} have numbers that are not finite and are left out", stacklevel=2)
    whole = [name for name in pool.names if name not in broken]

    def evaluated(*members: Name) -> Tensor:
        shares = {name: 1 / len(members) for name in members}
        found = _values(evaluate, pool.hold(shares))
        if alone and len(found) != len(alone[fallback]):
            raise ValueError(f"evaluate: got {len(alone[fallback])} values first and {len(found)} now")
        return found

    alone: dict[Name, Tensor] = {}
    for name in (fallback, *(name for name in whole if name != fallback)):
        alone[name] = evaluated(name)
    values = {name: float(alone[name].nanmean()) if name in alone else math.nan for name in pool.names}
    ranked = sorted((name for name in whole if not math.isnan(values[name])), key=lambda name: -values[name])
    if not ranked:
        warnings.warn("evaluate: no model has a value, so the average is that of all", stacklevel=2)
        shares = {name: (name in whole) / len(whole) for name in pool.names}
        return Soup(pool.hold(shares, final=True), shares, values)
    trials = []
    members, best = tuple(ranked[:1]), alone[ranked[0]]
    for name in ranked[1:]:
        found = evaluated(*members, name)
        gain, error = _paired(found, best)
        trials.append(Trial((*members, name), members, gain, error, gain > 0))
        if gain > 0:
            members, best = (*members, name), found
    if members != (fallback,):
        gain, error = _paired(best, alone[fallback])
        enough = math.isnan(gain) or gain > (0.0 if math.isnan(error) else guard * error)
        trials.append(Trial(members, (fallback,), gain, error, enough))
        if not enough:
            members, best = (fallback,), alone[fallback]
    shares = {name: (name in members) / len(members) for name in pool.names}
    return Soup(pool.hold(shares, final=True), shares, values, float(best.nanmean()), tuple(trials))


def better(one: Soup, other: Soup, evaluate: Callable[[nn.Module], Any], *, guard: float = 0.0) -> Soup:
    """Of two averages, the one with the higher value. They need not share a start.

    Args:
        one: An average, also of a single model; it is returned if neither is better.
        other: Another average, of the same models or of others.
        evaluate: As for `greedy`.
        guard: How many standard errors the gain of the other must have; 0 for any gain.

    Returns:
        The better one. Its `weights` list the models of both; those it is not made of have a share of zero.

    Raises:
        ValueError: If some models of both have the same name, but not all; if `evaluate` returns different
            numbers of values; or if the guard is negative.
    """
    _check_guard(guard)
    shared = one.weights.keys() & other.weights.keys()
    if shared and one.weights.keys() != other.weights.keys():
        raise ValueError(f"other: got the models {sorted(map(str, shared))}, which are among those of `one`")
    found = [_values(evaluate, average.model) for average in (one, other)]
    if len(found[0]) != len(found[1]):
        raise ValueError(f"evaluate: got {len(found[0])} values first and {len(found[1])} now")
    gain, error = _paired(found[1], found[0])
    enough = gain > (0.0 if math.isnan(error) else guard * error)
    kept = other if enough else one
    value = float(found[kept is other].nanmean())
    weights = {name: kept.weights.get(name, 0.0) for name in (*one.weights, *other.weights)}
    alone = {next(iter(other.weights)): float(found[1].nanmean())} if len(other.weights) == 1 else {}
    trial = Trial(other.picked, one.picked, gain, error, enough)
    trials = (*one.trials, *other.trials, trial)
    return Soup(kept.model, weights, {**one.values, **other.values, **alone}, value, trials)


def evidence(values: Tensor, others: Tensor) -> float:
    """By how many standard errors values are higher than others, as the mean over several metrics.

    The fewer the rows, the less one metric tells; several, each in units of its own noise, tell more.

    Args:
        values: What each metric found for one model, `[metrics, n]`: `n` tasks, or folds of rows.
        others: The same for another model.

    Returns:
        The number; NaN if no metric has values for both. A single value of each has no standard error: any
        difference is then beyond all noise.
    """
    found = [_paired(one, other) for one, other in zip(values, others, strict=True)]
    units = [gain / (error if error > _LEAST_ERROR else _LEAST_ERROR) for gain, error in found]
    return float(torch.tensor(units).nanmean())


def _check_guard(guard: float) -> None:
    if not guard >= 0:
        raise ValueError(f"guard: expected a number of standard errors, at least 0, got {guard!r}")


def _values(evaluate: Callable[[nn.Module], Any], model: nn.Module) -> Tensor:
    """What `evaluate` returns, as numbers on the CPU."""
    return torch.as_tensor(evaluate(model), dtype=torch.float64).detach().cpu().reshape(-1)


def _paired(one: Tensor, other: Tensor) -> tuple[float, float]:
    """Mean of the differences of values that both have, and its standard error; NaN where there is none."""
    differences = one - other
    differences = differences[differences.isfinite()]
    count = len(differences)
    error = float(differences.std()) / math.sqrt(count) if count > 1 else math.nan
    return float(differences.mean()), error
