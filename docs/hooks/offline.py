"""Search works from a folder: our script takes the place of one that the theme would fetch from elsewhere."""

from typing import Any

_THEIRS = "https://unpkg.com/iframe-worker/shim"
_OURS = "js/frame_worker.js"


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Replace the script in a page."""
    return output.replace(_THEIRS, "../" * page.url.count("/") + _OURS)


def on_post_template(output_content: str, *, template_name: str, **_: Any) -> str:
    """Replace the script in a page that is not written in Markdown, such as that for a missing one."""
    return output_content.replace(_THEIRS, f"/{_OURS}") if template_name.endswith(".html") else output_content
