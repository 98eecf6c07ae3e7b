"""What importing costs, and what is said if an extra is missing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mmb
from mmb._extras import require

CORE = ["mmb", "mmb.auc", "mmb.metrics", "mmb.problems", "mmb.theory", "mmb.models"]

IMPORTS = f"""
import gc, importlib, json, sys, time
sys.modules["numpy"] = None
import torch
gc.disable()  # a collection would look at all that torch has imported
found = {{}}
start = time.process_time()
import mmb
[getattr(mmb, name) for name in mmb.__all__]
found["seconds"] = time.process_time() - start
for module in {CORE}:
    before = {{name.split(".")[0] for name in sys.modules}}
    importlib.import_module(module)
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
    assert found["seconds"] < 0.1 or any(imports()["seconds"] < 0.1 for _ in range(2))


def seconds(*arguments):
    """Processor time of a fresh Python, the least of three."""
    script = "import resource, subprocess, sys; "
    script += "subprocess.run([sys.executable, *sys.argv[1:]], capture_output=True); "
    script += "use = resource.getrusage(resource.RUSAGE_CHILDREN); print(use.ru_utime + use.ru_stime)"
    environment = {**os.environ, "PYTHONPATH": str(Path(mmb.__file__).parents[1])}
    command = [sys.executable, "-c", script, *arguments]
    found = [subprocess.run(command, capture_output=True, text=True, env=environment) for _ in range(3)]
    return min(float(one.stdout) for one in found)


@pytest.mark.skipif(sys.platform == "win32", reason="no times of child processes")
def test_help_and_typos_are_answered_at_once():
    alone = seconds("-c", "pass")
    for words in (["--help"], ["--version"], ["trian"], ["train", "digits", "optimizer.learning_rate=1"]):
        assert seconds("-m", "mmb", *words) - alone < 0.3, words


def test_a_missing_package_names_the_extra():
    with pytest.raises(ImportError, match=r"'no_such_thing'.*mmb\[report\]"):
        require("no_such_thing.part", extra="report")


def test_a_present_package_is_imported():
    assert require("json.decoder", extra="training").JSONDecoder


def test_changelog_and_citation_are_of_this_version():
    root = Path(__file__).parents[1]
    heading = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (root / "CHANGELOG.md").read_text("utf-8"), re.M)
    citation = (root / "CITATION.cff").read_text("utf-8")
    assert heading is not None
    assert heading[1] == mmb.__version__
    assert f"\nversion: {heading[1]}\ndate-released: {heading[2]}\n" in citation
