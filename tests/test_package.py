"""What installing and importing costs, and that the README's code runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mmb._extras import require

ROOT = Path(__file__).parents[1]


def python(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return finished.stdout.strip()


CORE = ["mmb", "mmb.auc", "mmb.metrics", "mmb.problems", "mmb.theory", "mmb.models"]


@pytest.mark.parametrize("module", CORE)
def test_the_core_imports_torch_alone(module):
    """Modules that torch does not load itself, nor the standard library has, stay out."""
    code = f"""
import sys, torch
before = {{name.split(".")[0] for name in sys.modules}}
import {module}
new = {{name.split(".")[0] for name in sys.modules}} - before - set(sys.stdlib_module_names)
print(sorted(new - {{"mmb"}}))
"""
    assert python(code) == "[]"


def test_import_is_light():
    """Importing adds little to importing torch; the best of three, since the machine may be busy."""
    code = "import time, torch; start = time.perf_counter(); import mmb; print(time.perf_counter() - start)"
    assert min(float(python(code)) for _ in range(3)) < 0.3


def test_a_missing_package_names_the_extra():
    with pytest.raises(ImportError, match=r"'no_such_thing'.*mmb\[report\]"):
        require("no_such_thing.part", extra="report")


def test_a_present_package_is_imported():
    assert require("json.decoder", extra="training").JSONDecoder


def test_readme_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
