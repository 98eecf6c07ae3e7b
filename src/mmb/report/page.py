"""The page: one file that needs nothing else, and runs only its own script."""

import base64
import hashlib
import html
import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from mmb._atomic_files import write_whole
from mmb.report.content import page_content
from mmb.training import Run

_SCRIPTS = ("dom.js", "charts.js", "table.js", "overview.js", "tasks.js", "page.js")


def write_report(
    runs: Sequence[Run], path: Path, max_fpr: float | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Write a self-contained HTML page about one or more runs on the same data.

    Scores of runs that have no page yet are computed from their selected weights, and kept in their folders.

    Args:
        runs: The runs, finished or not.
        path: The file to write.
        max_fpr: Limit of the partial AUC; that of the first run by default.
        say: Called with a line of text at each step.

    Returns:
        The content of the page, plain JSON.

    Raises:
        RunError: If runs have different test rows or tasks, or no labeled test rows, or one has no
            checkpoint.
        ValueError: If `max_fpr` is outside (0, 1], or there is no run.
    """
    if not runs:
        raise ValueError("runs: got none, expected at least one")
    content = page_content(runs, max_fpr, say)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page_text(content))
    return content


def page_text(content: dict[str, Any]) -> str:
    """The HTML of a page, whose content is shown as text."""
    return filled("page.html", f"{content['data']}: mmb report", _SCRIPTS, "", content)


def filled(name: str, title: str, scripts: Sequence[str], policy: str, content: Any) -> str:
    """A page of the assets with its title, style, scripts and data; `policy` adds to what it may do."""
    files = resources.files("mmb.report") / "assets"
    script = "\n".join((files / one).read_text(encoding="utf-8") for one in scripts)
    # Named by its hash, so that the browser runs no other script, whatever a label contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "TITLE": html.escape(title),
        "POLICY": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'{policy}",
        "STYLE": (files / "page.css").read_text(encoding="utf-8"),
        "DATA": embedded_json(content),
        "SCRIPT": script,
    }
    frame = (files / name).read_text(encoding="utf-8")
    pieces = frame.split("@@")  # text, name, text, ..., name, text: inserted parts are not searched again
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def embedded_json(content: Any) -> str:
    """JSON that can stand inside a script element: without `<`, `>`, `&` and line separators."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
