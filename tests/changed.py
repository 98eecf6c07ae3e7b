"""Names the tests of what has changed since the last commit, or in it if nothing has: `make check` runs them.

Tests mirror the source tree: `src/mmb/a/b.py` is tested by `tests/a/test_b*.py`, or else by all of `tests/a`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ALWAYS = ["tests/test_architecture.py", "tests/test_package.py"]


def changed() -> list[Path]:
    """Files that differ from the last commit, or, in a clean tree, from the one before it."""
    for against in (["HEAD"], ["HEAD~1", "HEAD"]):
        names = git("diff", "--name-only", "--diff-filter=d", *against)
        names += git("ls-files", "--others", "--exclude-standard")
        if names:
            return [Path(name) for name in names]
    return []


def tests_of(path: Path) -> list[str]:
    """The tests of one file."""
    if path.parts[0] == "tests":
        return [str(path)] if path.name.startswith("test_") else []
    if path.parts[:2] != ("src", "mmb") or path.suffix != ".py":
        return []
    folder = Path("tests", *path.parts[2:-1])
    found = [] if path.name == "__init__.py" else sorted(folder.glob(f"test_{path.stem.lstrip('_')}*.py"))
    while not found:
        found = sorted(folder.glob("test_*.py"))
        folder = folder.parent
    return [str(one) for one in found]


def git(*words: str) -> list[str]:
    """Lines that git prints; none where there is no repository."""
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


if __name__ == "__main__":
    print(*dict.fromkeys([*ALWAYS, *(test for path in changed() for test in tests_of(path))]))
