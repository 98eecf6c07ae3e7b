"""Everything that only a GPU can tell, in ten minutes: tests, first steps, speeds, and the solver's loop.

    python benchmarks/on_gpu.py --output results/gpu

Each part is a command of its own, with a limit of its own, whose output goes to a file in the folder as it
comes; a part that fails or takes too long does not keep the next from starting. The last file to be written,
`summary.txt`, says how each ended. The exit status is one if any failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _timing import machine, print_table

ROOT = Path(__file__).parents[1]
TESTS = (
    *("tests/test_cuda_graphs.py", "tests/test_gpu.py", "tests/test_captured.py", "tests/test_soup.py"),
    *("tests/models/test_fused_layers.py", "tests/data/inputs/test_graph_kernels.py"),
    *("tests/auc/test_gpu.py", "tests/auc/compositional", "tests/models/test_message_operators.py"),
    *("tests/training/loop/test_step_on_gpu.py", "tests/training/loop/test_kept_kernels.py"),
    "tests/training/loop/test_background_compiler.py",
    *("tests/training/loop/test_loop.py", "tests/training/loop/test_branch_average.py"),
)


class Part(NamedTuple):
    """A command and the seconds it may take."""

    name: str
    seconds: float
    words: tuple[str, ...]


def parts(data: str, small: bool) -> list[Part]:
    """All parts, the most important first."""
    tiny = ("--small",) if small else ()
    workers = () if importlib.util.find_spec("xdist") is None else ("-n", "6", "--dist", "worksteal")
    shown = ("-q", "-rfE", "--durations=15", "-p", "no:cacheprovider")
    speed, first = "benchmarks/training_speed.py", "benchmarks/first_step.py"
    default, graphs = ("--kinds", "cold", "warm"), ("--parts", "graphs")
    best = Path(tempfile.gettempdir(), "tiles.json")  # from the kernels that are timed to the steps
    fused = ("benchmarks/fused_layers.py", "--seconds", "45", "--tiles", str(best), "--json")
    blocks = ("--blocks", "100", "--steps", "20") if small else ()
    slow = "mAUC-CT, exact"
    return [
        Part("tests", 180, ("-m", "pytest", *shown, *workers, *TESTS)),
        Part("fused", 130, fused),
        Part("first_step", 110, (first, "--data", data, "--cases", "CE", slow, *default, *tiny)),
        Part("graphs", 100, (speed, *graphs, "--data", data, "--cases", "CE", "MMB-pAUC", slow, *tiny)),
        Part("resnet18", 40, (speed, "--parts", "resnet18", *tiny)),
        Part("solver", 40, ("benchmarks/solve_on_gpu.py", *blocks)),
    ]


def run(part: Part, output: Path, seconds: float) -> str:
    """Run a part, with its output in a file; how it ended."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "2"}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])
    )
    with open(output / f"{part.name}.txt", "w") as file:
        process = subprocess.Popen(
            [sys.executable, *part.words],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "took too long"
    return "done" if status == 0 else f"failed ({status})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder of the logs")
    parser.add_argument("--data", default="random", help="a data set of molecules, or random ones")
    parser.add_argument("--minutes", type=float, default=9.8, help="for all parts together")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in parts("", False)])
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args(arguments)
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    end, lines = time.monotonic() + 60 * options.minutes, []
    for part in parts(options.data, options.small):
        if options.only and part.name not in options.only:
            continue
        start = time.monotonic()
        left = min(part.seconds, end - start)
        state = run(part, output, left) if left > 0 else "not started"
        lines.append([part.name, state, f"{time.monotonic() - start:.0f}"])
        print("  ".join(lines[-1]), flush=True)
    facts = "\n".join(f"{key}: {value}" for key, value in machine().items())
    table = "\n".join("  ".join(line) for line in lines)
    (output / "summary.txt").write_text(f"{facts}\n\n{table}\n")
    print_table("Parts", ["", "", "seconds"], lines)
    return int(any(state != "done" for _, state, _ in lines))


if __name__ == "__main__":
    sys.exit(main())
