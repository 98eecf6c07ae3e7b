"""The page: one file that needs nothing else, and runs only its own three scripts."""

import base64
import hashlib
import html
import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from mmb._atomic_files import write_whole
from mmb._extras import require
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
        ImportError: If plotly is not installed.
    """
    if not runs:
        raise ValueError("runs: got none, expected at least one")
    plotly = require("plotly.offline", extra="report").get_plotlyjs()  # first, since it may be missing
    content = page_content(runs, max_fpr, say)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page_text(content, plotly))
    return content


def page_text(content: dict[str, Any], plotly: str) -> str:
    """The HTML of a page, whose content is shown as text, and the JavaScript of its charting library."""
    files = resources.files("mmb.report") / "assets"
    scripts = [plotly, "\n".join((files / name).read_text(encoding="utf-8") for name in _SCRIPTS)]
    # Scripts are named by their hash, so the browser runs no others, whatever a label contains.
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    parts = {
        "TITLE": html.escape(f"{content['data']}: mmb report"),
        "POLICY": f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:",
        "STYLE": (files / "page.css").read_text(encoding="utf-8"),
        "DATA": embedded_json(content),
        "PLOTLY": scripts[0],
        "SCRIPT": scripts[1],
    }
    frame = (files / "page.html").read_text(encoding="utf-8")
    pieces = frame.split("@@")  # text, name, text, ..., name, text: inserted parts are not searched again
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def embedded_json(content: Any) -> str:
    """JSON that can stand inside a script element: without `<`, `>`, `&` and line separators."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
