"""Pages: the code on them runs, and the built site needs nothing from elsewhere."""

import importlib
import pkgutil
import re
import types

import pytest

from docs.conftest import ROOT
from report.browser import Browser, find_browser

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def code_blocks(page):
    """Python blocks of a page; what it includes from files is tested with these."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT / "docs"))) for page in PAGES if code_blocks(page)],
)
def test_code_on_a_page_runs(page, tmp_path, monkeypatch, capsys):
    """All blocks of a page, one after the other, in one namespace and in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for block in code_blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_pages_fetch_nothing(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        fetched = re.findall(
            r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"', page.read_text()
        )
        assert not fetched, page.name


PUBLIC = """mmb mmb.auc mmb.auc.sampling mmb.data mmb.estimators mmb.hypergradients mmb.metrics
mmb.models mmb.problems mmb.report mmb.theory mmb.training"""


@pytest.mark.parametrize("module", PUBLIC.split())
def test_every_public_name_is_in_the_reference(site, module):
    described = [
        pkgutil.resolve_name(anchor)
        for page in (site / "reference").glob("*.html")
        for anchor in re.findall(r'id="(mmb[\w.]*)"', page.read_text())
        if "." in anchor
    ]
    public = importlib.import_module(module)
    for name in public.__all__:
        thing = getattr(public, name)
        if isinstance(thing, type | types.FunctionType):
            assert any(thing is one for one in described), f"{module}.{name} is on no page"


@pytest.mark.skipif(find_browser() is None, reason="no chromium or google-chrome on PATH")
def test_formulas_show_in_a_browser(site):
    with Browser() as browser:
        browser.call("Page.navigate", url=(site / "reference" / "solver.html").as_uri())
        browser.wait("document.readyState === 'complete' && document.querySelector('math') !== null")
        sizes = browser.run(
            "[...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().height)"
        )
        assert len(sizes) > 5
        assert min(sizes) > 5
        assert browser.errors == []
