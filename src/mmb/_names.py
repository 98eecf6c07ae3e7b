"""What to say of a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """What to append to a message on an unknown name: the nearest known one, or else all of them.

    Args:
        name: What was given.
        known: What there is.

    Returns:
        A text such as `"; did you mean 'tox21'?"` or `"; there are: digits, synthetic"`.
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known) or 'none'}"
