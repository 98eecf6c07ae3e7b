"""What importing costs, and what is said if an extra is missing."""

import json
import subprocess
import sys

import pytest

from mmb._extras import require

CORE = ["mmb", "mmb.auc", "mmb.metrics", "mmb.problems", "mmb.theory", "mmb.models"]

IMPORTS = f"""
import importlib, json, sys, time
sys.modules["numpy"] = None
import torch
found = {{}}
start = time.perf_counter()
for module in {CORE}:
    before = {{name.split(".")[0] for name in sys.modules}}
    importlib.import_module(module)
    found.setdefault("seconds", time.perf_counter() - start)
    new = {{name.split(".")[0] for name in sys.modules}} - before - set(sys.stdlib_module_names)
    found[module] = sorted(new - {{"mmb"}})
from mmb.metrics import evaluate, roc_curve
evaluate(torch.rand(9, 2), torch.eye(9)[:, :2])
roc_curve(torch.rand(9), torch.eye(9)[0])
print(json.dumps(found))
"""


def imports():
    """What a fresh process without numpy imports with each part of the core, beside torch."""
    command = [sys.executable, "-W", "ignore", "-c", IMPORTS]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_core_imports_torch_alone_and_fast():
    """Only what torch itself and the standard library bring; the best of three, as machines may be busy."""
    found = imports()
    assert {module: found[module] for module in CORE} == {module: [] for module in CORE}
    assert found["seconds"] < 0.3 or any(imports()["seconds"] < 0.3 for _ in range(2))


def test_a_missing_package_names_the_extra():
    with pytest.raises(ImportError, match=r"'no_such_thing'.*mmb\[report\]"):
        require("no_such_thing.part", extra="report")


def test_a_present_package_is_imported():
    assert require("json.decoder", extra="training").JSONDecoder
