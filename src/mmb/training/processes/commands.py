"""Commands as they are shown to be given again."""

from __future__ import annotations

import shlex


def command(*words: object) -> str:
    """The command `mmb WORDS`, with quotes where the shell needs them."""
    return shlex.join(["mmb", *map(str, words)])
