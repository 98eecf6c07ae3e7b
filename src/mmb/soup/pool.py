"""Models that belong together, and a module that holds averages of them."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmb.soup.states import Name, State, all_equal, average, check_same_entries

Model = nn.Module | State
Models = Sequence[Model] | Mapping[str, Model]

# least cosine of weights: branches of a start had 0.84 or more, other networks 0.25 or less
_RELATED = 0.5
_FEW_WEIGHTS = 100  # too few for their cosine to tell


class Pool:
    """Models that belong together, by name, and a module that holds one average of them at a time."""

    def __init__(
        self,
        models: Models,
        batches: Iterable[Any] | None,
        start: Model | None,
        like: nn.Module | None,
        same_start: bool,
    ) -> None:
        named = _by_name(models)
        _check_one_class([*named.values(), *([] if start is None else [start])])
        first = next(iter(named.values()))
        template = first if isinstance(first, nn.Module) else like
        if template is None:
            raise ValueError("like: got None, expected a module to put the state dicts into")
        self.names, self.batches = tuple(named), batches
        self.states = {name: _state_of(model) for name, model in named.items()}
        compared = dict(self.states) if start is None else {**self.states, "start": _state_of(start)}
        if template is like:
            compared = {"like": _state_of(like), **compared}
        check_same_entries(compared)
        _check_same_hidden_buffers(named)
        if not same_start:
            weights = [name for name, weight in template.named_parameters(remove_duplicate=False)]
            _check_one_start(self.states, None if start is None else _state_of(start), weights)
        self._check_statistics(template)
        self.module = copy.deepcopy(template)
        self.module.zero_grad(set_to_none=True)
        self.modes = [(module, module.training) for module in self.module.modules()]

    def hold(self, shares: Mapping[Name, float], final: bool = False) -> nn.Module:
        """Put an average into the module, in evaluation mode or, if it is final, in the first model's."""
        members = [name for name, share in shares.items() if share > 0]
        state = average([self.states[name] for name in members], [shares[name] for name in members])
        _check_shared(self.module, state)
        self.module.load_state_dict(state)
        if self.batches is not None and _statistics(self.module):
            from mmb.models.batch_norm import recalibrate_batch_norm  # not needed to import mmb

            recalibrate_batch_norm(self.module, self.batches)
            _check_running_statistics(self.module)
        self.module.eval()
        if final:
            for module, training in self.modes:
                module.training = training
        return self.module

    def check_finite(self, names: Iterable[Name]) -> None:
        """Refuse models with numbers that are not finite where others have other numbers."""
        for name in names:
            if (entry := self.broken_entry(name)) is not None:
                raise ValueError(
                    f"models: {name!r} has numbers that are not finite in {entry!r}; leave it out"
                )

    def broken_entry(self, name: Name) -> str | None:
        """An entry of a model's state that has numbers that are not finite, unless all models have them."""
        for entry, value in self.states[name].items():
            broken = isinstance(value, Tensor) and not bool(value.isfinite().all())
            if broken and not all_equal([state[entry] for state in self.states.values()]):
                return entry
        return None

    def _check_statistics(self, template: nn.Module) -> None:
        """Without batches, the statistics of batch normalization must be the same in all models."""
        for entry in _statistics(template) if self.batches is None else ():
            if not all_equal([state[entry] for state in self.states.values()]):
                raise ValueError(
                    f"batches: got None, but {entry!r} differs between models; give some inputs, to "
                    "compute the statistics of batch normalization again for the average"
                )


def _statistics(module: nn.Module) -> list[str]:
    """Entries of the state dict that are running statistics of batch normalization."""
    kind = nn.modules.batchnorm._BatchNorm
    layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, kind))
    prefixes = [name for name, layer in layers if layer.track_running_stats]
    return [f"{prefix}.{own}".lstrip(".") for prefix in prefixes for own in ("running_mean", "running_var")]


def _check_running_statistics(module: nn.Module) -> None:
    """Refuse statistics of batches that are not finite: the average would be useless, and not say so."""
    state = module.state_dict()
    for entry in _statistics(module):
        if not bool(state[entry].isfinite().all()):
            raise ValueError(
                f"batches: {entry!r} of the average is not finite on them: give inputs without NaN and "
                "infinities, as the models take them"
            )


def _by_name(models: Models) -> dict[Name, Model]:
    """Models by their names or places."""
    pairs: Iterable[tuple[Name, Any]] = models.items() if isinstance(models, Mapping) else enumerate(models)
    named = dict(pairs)
    if not named:
        raise ValueError("models: got none, expected at least one")
    for name, model in named.items():
        if not isinstance(model, nn.Module | Mapping):
            raise TypeError(
                f"models: {name!r} is a {type(model).__name__}, expected a module or a state dict, in a list "
                "or in a mapping from names"
            )
    return named


def _check_one_class(models: Sequence[Model]) -> None:
    kinds = {type(model) if isinstance(model, nn.Module) else dict for model in models}
    if len(kinds) > 1:
        names = ", ".join(sorted("state dict" if kind is dict else kind.__name__ for kind in kinds))
        raise TypeError(f"models: got {names}, expected modules of one class, or state dicts alone")


def _state_of(model: Model) -> State:
    return model.state_dict() if isinstance(model, nn.Module) else model


def _check_same_hidden_buffers(models: Mapping[Name, Model]) -> None:
    """Buffers that are not in the state dict are not averaged: they must be the same."""
    modules = {name: model for name, model in models.items() if isinstance(model, nn.Module)}
    if len(modules) < 2:
        return
    hidden = {name: dict(_hidden_buffers(module)) for name, module in modules.items()}
    (first, reference), *others = hidden.items()
    for name, buffers in others:
        for entry, value in buffers.items():
            if entry not in reference or not all_equal([reference[entry], value]):
                raise ValueError(
                    f"models: the buffer {entry!r}, which the state dict lacks, differs between {name!r} and "
                    f"{first!r}; expected the same (those of an objective follow from its labels)"
                )


def _hidden_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    known = module.state_dict().keys()
    return ((name, value) for name, value in module.named_buffers() if name not in known)


def _check_one_start(states: Mapping[Name, State], start: State | None, parameters: Sequence[str]) -> None:
    """Weights of layers are nearly parallel if networks share a start, and nearly orthogonal if not."""
    reference = next(iter(states.values())) if start is None else start
    matrices = [name for name in parameters if name in reference and reference[name].ndim >= 2]
    if sum(reference[name].numel() for name in matrices) < _FEW_WEIGHTS:
        return
    for name, state in states.items():
        cosine = _cosine(state, reference, matrices)
        if cosine < _RELATED:
            other = repr(next(iter(states))) if start is None else "the start"
            raise ValueError(
                f"models: the weights of {name!r} and {other} have a cosine of {cosine:.2f}, expected at "
                f"least {_RELATED}: they do not come from one start, and their average means nothing"
            )


def _cosine(one: State, other: State, entries: Sequence[str]) -> float:
    """Cosine between some entries of two states, NaN if a number is not finite."""

    def inner(a: State, b: State) -> float:
        pairs = ((a[entry].detach(), b[entry].detach().to(a[entry])) for entry in entries)
        return sum(float((x.float() * y.float()).sum().real) for x, y in pairs)

    return inner(one, other) / max(math.sqrt(inner(one, one) * inner(other, other)), 1e-30)


def _check_shared(module: nn.Module, state: State) -> None:
    """Tensors that the module has under several names must be the same in the average."""
    seen: dict[int, str] = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor):
            other = seen.setdefault(id(value), name)
            if other != name and not torch.equal(state[name], state[other]):
                raise ValueError(
                    f"models: {other!r} and {name!r} are one tensor in the first model, not in all of them"
                )
