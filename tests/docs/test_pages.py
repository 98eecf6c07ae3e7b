"""Pages: the code on them runs, and the built site needs nothing from elsewhere."""

import importlib
import inspect
import pkgutil
import re
import tomllib
import types

import pytest

import mmb.diagnostics
from docs.conftest import ROOT
from report.browser import Browser, find_browser

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(page):
    """Python blocks of a page itself; the files that it includes have their own tests."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def fast_estimator(monkeypatch):
    """The estimator with a short training by default, which its own tests make sure works untouched."""
    from mmb.estimators import MultiTaskAUCClassifier

    shorter = {"steps": 20, "networks": 1, "hidden": (16,)}
    monkeypatch.setattr(
        MultiTaskAUCClassifier.__init__,
        "__kwdefaults__",
        MultiTaskAUCClassifier.__init__.__kwdefaults__ | shorter,
    )


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if code_blocks(page)],
)
def test_code_on_a_page_runs(page, tmp_path, monkeypatch, capsys, fast_estimator):
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
            r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"',
            page.read_text(encoding="utf-8"),
        )
        assert not fetched, page.name


PUBLIC = """mmb mmb.auc mmb.auc.sampling mmb.data mmb.estimators mmb.hypergradients mmb.metrics
mmb.models mmb.problems mmb.report mmb.theory mmb.training"""


def test_every_public_name_is_in_the_reference(site):
    described = [
        pkgutil.resolve_name(anchor)
        for page in (site / "reference").glob("*.html")
        for anchor in re.findall(r'id="(mmb[\w.]*)"', page.read_text(encoding="utf-8"))
        if "." in anchor
    ]
    missing = []
    for module in map(importlib.import_module, PUBLIC.split()):
        for name in module.__all__:
            thing = getattr(module, name)
            is_code = isinstance(thing, type | types.FunctionType)
            if is_code and not any(thing is one for one in described):
                missing.append(f"{module.__name__}.{name}")
    assert missing == []


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


def test_verdicts_are_listed_as_the_solver_gives_them():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([^`]+)` \|", page[page.index("| verdict |") :], re.MULTILINE)
    assert len(listed) > 5
    source = inspect.getsource(mmb.diagnostics)
    assert [verdict for verdict in listed if f'"{verdict}' not in source] == []


def test_pages_name_things_as_one_imports_them():
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    names = {name for text in texts for name in re.findall(r"(?:\]\[|^::: )(mmb[\w.]*)", text, re.MULTILINE)}
    assert len(names) > 50
    deep = [name for name in names if not importable(name)]
    assert sorted(deep) == []


def importable(name):
    """Whether a name is a module, or exported by the package before it, like `mmb.auc.Labels`."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        found = pkgutil.resolve_name(".".join(parts[:depth]))
        if isinstance(found, types.ModuleType):
            is_public = hasattr(found, "__path__") or depth <= 2  # a package, or a module such as mmb.metrics
            return depth == len(parts) or (is_public and parts[depth] in getattr(found, "__all__", parts))
    return False


@pytest.mark.skipif(find_browser() is None, reason="no chromium or google-chrome on PATH")
def test_search_works_from_a_folder(site):
    with Browser() as browser:
        browser.call("Page.navigate", url=(site / "choose.html").as_uri())
        browser.wait(
            "document.readyState === 'complete' && document.querySelector('.md-search__input') !== null"
        )
        browser.run("document.querySelector('#__search').click()")
        type_word = """(() => {
            const input = document.querySelector('.md-search__input');
            input.focus();
            input.value = 'operating';
            input.dispatchEvent(new Event('input', {bubbles: true}));
            input.dispatchEvent(new KeyboardEvent('keyup', {key: 'g', bubbles: true}));
            return document.querySelectorAll('.md-search-result__item').length > 0;
        })()"""
        browser.wait(type_word)  # again until the index is ready
        links = browser.run("[...document.querySelectorAll('a.md-search-result__link')].map(a => a.href)")
        assert any("metrics.html" in link for link in links)


def test_extras_that_pages_install_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for page in PAGES
        for found in re.findall(r'(?:mmb|"\.)\[([a-z,]+)\]', page.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert {"training", "estimators"} <= named <= extras.keys()
