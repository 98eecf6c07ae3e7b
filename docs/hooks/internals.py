"""Adds a page with everything that docstrings link to but no page of the reference describes.

So a docstring may link to any class or function of the package, and the link works.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PAGE = "reference/internals.md"
_HEAD = "# Internals\n\nThe reference links to these parts of the library. Their names may change.\n"


def not_described(described: set[str], targets: set[str]) -> list[str]:
    """Targets of links that no page describes, neither under another name nor as a part of something.

    Args:
        described: What the pages describe, such as `mmb.auc.Labels`, or a whole module.
        targets: What docstrings link to, such as `mmb.auc.labels.Labels`.
    """
    last = {name.rpartition(".")[2] for name in described}

    def covered(target: str) -> bool:
        return any(f"{target}.".startswith(f"{name}.") for name in described) or bool(
            last & {*target.split(".")}
        )

    return sorted(target for target in targets if not covered(target))


def on_files(files: Files, *, config: MkDocsConfig, **_: Any) -> Files:
    """Add the page."""
    root = Path(config.config_file_path).parent
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py")))
    pages = "".join(file.content_string for file in files.documentation_pages())
    described = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    targets = set(re.findall(r"\]\[(mmb[\w.]+)\]", sources))
    entries = "".join(f"\n::: {target}\n" for target in not_described(described, targets))
    files.append(File.generated(config, _PAGE, content=_HEAD + entries))
    return files
