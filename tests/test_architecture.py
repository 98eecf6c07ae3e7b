"""The rooms of the house: which way imports go, and that names mean one thing."""

import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import mmb
from mmb import auc
from mmb.training import METHODS

SOURCE = Path(mmb.__file__).parent
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


def imports(name):
    """Modules of mmb that a module imports, also inside of functions; not those for types alone."""
    found = set()
    waiting = [ast.parse(MODULES[name].read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            paths = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {path if path in MODULES else node.module for path in paths}
        waiting.extend(ast.iter_child_nodes(node))
    return found & MODULES.keys()


IMPORTS = {name: imports(name) for name in MODULES}


def room(module, house):
    """The part of a package that a module is in: a sub-package, or a module directly in it."""
    if not module.startswith(house + "."):
        return None
    return module.removeprefix(house + ".").split(".")[0]


def cycle(edges):
    """A circle of nodes, or None."""
    done = set()

    def walk(node, path):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for other in sorted(edges.get(node, ())):
            if found := walk(other, [*path, node]):
                return found
        done.add(node)
        return None

    return next((found for node in sorted(edges) if (found := walk(node, []))), None)


def test_a_circle_is_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


@pytest.mark.parametrize("house", PACKAGES)
def test_no_rooms_import_each_other_in_a_circle(house):
    """The `__init__` of a package gathers what its rooms have and does not count."""
    edges = {}
    for module, others in IMPORTS.items():
        own = room(module, house)
        if own is not None:
            edges.setdefault(own, set()).update({room(other, house) for other in others} - {None, own})
    assert cycle(edges) is None


LAYERS = [
    "mmb.training.recipes",
    "mmb.training.processes",
    "mmb.training.runs",
    "mmb.training.loop",
    "mmb.training.studies",
]


def below(package, *forbidden):
    return [
        (module, other)
        for module in MODULES
        if (module + ".").startswith(package + ".")
        for other in IMPORTS[module]
        if any((other + ".").startswith(one + ".") for one in forbidden)
    ]


def test_data_flows_one_way():
    assert below("mmb.data", "mmb.models", "mmb.auc", "mmb.training") == []
    assert below("mmb.models", "mmb.auc", "mmb.training") == []
    assert below("mmb.auc", "mmb.training") == []
    for front in ("mmb.estimators", "mmb.report", "mmb.cli", "mmb.lightning"):
        assert [pair for pair in below("mmb.training", front) if "studies" not in pair[0]] == []
    for index, layer in enumerate(LAYERS):
        assert below(layer, *LAYERS[index + 1 :]) == [], layer


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_has_the_name_of_a_module_beside_it(package):
    namespace = vars(importlib.import_module(package))
    for module in pkgutil.iter_modules([str(MODULES[package].parent)]):
        found = namespace.get(module.name)
        assert found is None or found is sys.modules.get(f"{package}.{module.name}"), module.name


def test_no_two_public_things_share_a_name():
    seen = {}
    for package in [*PACKAGES, "mmb.lightning", "mmb.projections", "mmb.distributed"]:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            assert seen.setdefault(name, thing) is thing, f"{package}.{name}"


OBJECTIVES = {
    name
    for name in auc.__all__
    if isinstance(getattr(auc, name), type) and issubclass(getattr(auc, name), auc.Objective)
}
MAY_NAME_METHODS = {
    "mmb.training.recipes.presets",
    "mmb.training.recipes.renamed",
}


@pytest.mark.parametrize("module", sorted(name for name in MODULES if not name.startswith("mmb.auc")))
def test_no_module_outside_tests_the_type_of_an_objective_or_the_name_of_a_method(module):
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            assert not OBJECTIVES & {getattr(part, "id", "") for part in ast.walk(node.args[1])}, node.lineno
        if isinstance(node, ast.Compare) and module not in MAY_NAME_METHODS:
            constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            about_method = "method" in ast.unparse(node)
            assert not (about_method and constants & METHODS.keys()), node.lineno
