"""Formulas: every one in the docstrings converts, and what cannot be converted stops the build."""

import ast
import re
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

from docs.conftest import ROOT

PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))


def docstrings():
    """Every docstring of the package, code taken out, with its place."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text and "$" in (plain := re.sub(r"`[^`]*`", "", text)):
                yield f"{path.stem}:{getattr(node, 'name', 'module')}", plain


@pytest.mark.parametrize("text", [pytest.param(text, id=place) for place, text in docstrings()])
def test_every_formula_in_a_docstring_converts(formulas, text):
    found = re.findall(r"\$\$(.+?)\$\$|\$([^$]+?)\$", text, re.DOTALL)
    assert found
    assert "$" not in re.sub(r"\$\$.+?\$\$|\$[^$]+?\$", "", text, flags=re.DOTALL), "a dollar sign alone"
    for displayed, inline in found:
        formulas.mathml(displayed or inline, display=bool(displayed))


def test_a_formula_becomes_mathml(formulas):
    html = formulas.mathml(r"y_i(x) = \arg\min_y g_i(x, y)", display=True)
    assert html.startswith("<math")
    assert 'display="block"' in html
    assert "<munder><mo>min</mo><mi>y</mi></munder>" in html  # the index stands below
    assert "<mo>arg</mo>" in html


def test_lines_are_aligned(formulas):
    html = formulas.mathml(r"a &= b \\ c &= d", display=True)
    assert html.count("<mtr") == 2
    assert "text-align: right" in html
    assert "text-align: left" in html


@pytest.mark.parametrize("formula", [r"\unheard{x}", r"\frac{1", r"a \begin{nothing} b"])
def test_what_cannot_be_converted_is_named(formulas, formula):
    with pytest.raises(ValueError, match="formula"):
        formulas.mathml(formula, display=False)


def test_a_bad_formula_stops_the_build(formulas):
    with pytest.raises(PluginError, match=r"page\.md.*unheard"):
        formulas.on_page_content(r'<span class="arithmatex">\(\unheard\)</span>', page=PAGE)


def test_a_dollar_sign_left_over_stops_the_build(formulas):
    with pytest.raises(PluginError, match="formula"):
        formulas.on_page_content("<p>costs $x of</p>", page=PAGE)
    assert formulas.on_page_content("<p><code>$MMB_DATA</code></p>", page=PAGE)
