"""What macOS and Windows lack is not needed: the commands of `make demo` run without it."""

import os
import subprocess
import sys
from pathlib import Path

SITE = '''
"""Python starts with this file: it takes away what other systems do not have."""
import builtins, errno, io, os, subprocess, sys, types

sys.modules["fcntl"] = sys.modules["resource"] = None
for name in ("sched_getaffinity", "sched_setaffinity", "process_cpu_count", "posix_fallocate", "memfd_create",
             "fork", "forkpty", "sysconf", "geteuid"):
    if hasattr(os, name):
        delattr(os, name)

real_open, real_os_open = io.open, os.open


def refuse(path):
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if isinstance(text, str) and text.startswith(("/dev/shm", "/proc/", "/sys/")):
        raise FileNotFoundError(errno.ENOENT, "there is no such thing on this system", path)


def open_file(path, *args, **kwargs):
    refuse(path)
    return real_open(path, *args, **kwargs)


def os_open(path, *args, **kwargs):
    refuse(path)
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "a folder cannot be opened on this system", path)
    return real_os_open(path, *args, **kwargs)


builtins.open = io.open = open_file
os.open = os_open
'''
DEMO = """
import sys
from mmb.cli import main

compare = "compare --data digits --methods ce,auc,auc-ct,pauc --seeds 1 --jobs 1 training.steps=4 --output"
for words in ([*compare.split(), sys.argv[1]], ["report", sys.argv[1], "--output", sys.argv[2]]):
    assert not main(words), words
"""


def test_the_demo_runs_without_what_only_linux_has(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    paths = [str(tmp_path), str(Path(__file__).parents[1] / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    page = tmp_path / "demo" / "report.html"
    done = subprocess.run(
        [sys.executable, "-c", DEMO, str(tmp_path / "demo"), str(page)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 10_000
