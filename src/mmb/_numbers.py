"""Numbers that users pass in."""

import math
from numbers import Integral
from typing import Any, get_args


def as_number(value: Any) -> float:
    """The value as a float, or NaN, which is outside every range, if it is not a number."""
    if isinstance(value, str | bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")


def check_sizes(**sizes: int | None) -> None:
    """Raise ValueError, by its name, for a size that is neither None nor a whole number of at least 1."""
    for name, size in sizes.items():
        if size is not None:
            check_whole(name, size, 1)


def check_positive(**numbers: Any) -> None:
    """Raise ValueError, by its name, for a number that is not positive and finite."""
    for name, number in numbers.items():
        if not 0 < as_number(number) < math.inf:
            raise ValueError(f"{name}: expected a positive finite number, got {number!r}")


def check_nonnegative(**numbers: Any) -> None:
    """Raise ValueError, by its name, for a number that is negative or not finite."""
    for name, number in numbers.items():
        if not 0 <= as_number(number) < math.inf:
            raise ValueError(f"{name}: expected a nonnegative finite number, got {number!r}")


def check_range(interval: str, why: str = "", /, **numbers: Any) -> None:
    """Raise ValueError, by its name, for a number outside an interval such as `(0, 1]`, and say why."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    for name, number in numbers.items():
        value = as_number(number)
        above = value >= low if interval.startswith("[") else value > low
        below = value <= high if interval.endswith("]") else value < high
        if not (above and below):
            reason = f" ({why})" if why else ""
            raise ValueError(f"{name}: expected a number in {interval}{reason}, got {number!r}")


def check_choice(choices: Any, **values: Any) -> None:
    """Raise ValueError, by its name, for a value that is not one of the choices (a `Literal`)."""
    known = get_args(choices)
    for name, value in values.items():
        if value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
