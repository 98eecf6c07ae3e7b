"""Turns formulas into MathML while a page is built, so that they show without scripts or a network.

Markdown turns formulas into `<span class="arithmatex">` and `<div class="arithmatex">`. A formula that cannot
be converted stops the build, and so does a stray dollar sign.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_FORMULA = re.compile(r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL)
_NOT_PROSE = re.compile(r"<(pre|code|math|script)\b.*?</\1>|<[^>]*>", re.DOTALL)
_LIMITS = {"min", "max", "arg", "∑", "∏"}  # these have their index below in a displayed formula

ElementTree.register_namespace("", _NAMESPACE)


def mathml(formula: str, *, display: bool) -> str:
    """MathML of a formula in LaTeX.

    Args:
        formula: The formula, without dollar signs.
        display: In its own paragraph, where `&` aligns and a double backslash ends a line.

    Returns:
        A `<math>` element.

    Raises:
        ValueError: If the converter does not know a part of it.
    """
    known = formula.strip().replace(r"\arg", r"\operatorname{arg}").replace(r"\_", "_")
    known = re.sub(r"\\[bB]igg?[lr]?\s*(?=\\\|)", "", known)  # double bars have one size
    if display and "&" in known and r"\begin" not in known:
        known = rf"\begin{{align*}}{known}\end{{align*}}"
    try:
        converted = convert(known, display="block" if display else "inline")
        tree = ElementTree.fromstring(converted)
    except Exception as error:
        raise ValueError(f"formula cannot be converted ({error!r}): {formula}") from error
    if "\\" in converted or formula.count("{") != formula.count("}"):
        raise ValueError(f"formula has an unknown command or an unmatched brace: {formula}")
    for script in tree.iter(f"{{{_NAMESPACE}}}msub"):
        if display and script[0].text in _LIMITS:
            script.tag = f"{{{_NAMESPACE}}}munder"
    for cell in tree.iter(f"{{{_NAMESPACE}}}mtd"):  # browsers align by style, not by columnalign
        cell.set("style", f"text-align: {cell.attrib.pop('columnalign', 'center')}; padding: 0.2em 0")
    return ElementTree.tostring(tree, encoding="unicode")


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Convert the formulas of a page."""

    def converted(match: re.Match[str]) -> str:
        try:
            return mathml(html.unescape(match[2]), display=match[1] == "[")
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from error

    content = _FORMULA.sub(converted, content)
    prose = _NOT_PROSE.sub("", content)
    if "$" in prose or "arithmatex" in content:
        place = prose.find("$")
        raise PluginError(
            f"{page.file.src_uri}: not read as a formula: {prose[max(0, place - 60) : place + 60]!r}"
        )
    return content
