"""Benchmarks that no test runs still find what they import."""

import ast
import importlib
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_there(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or str(node.module).partition(".")[0] != "mmb":
            continue
        try:
            found = importlib.import_module(node.module)
        except ModuleNotFoundError as error:
            if error.name != "triton":
                raise
            continue
        for name in node.names:
            assert hasattr(found, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}")
