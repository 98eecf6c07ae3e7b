"""Tiny recipes that train in well under a second, waiting for processes that train, and a full disk."""

import resource
import time
from contextlib import contextmanager

from mmb.training import Run, RunError, merge, resolve
from mmb.training.runs import checkpoint

TINY = {
    "data": {"name": "synthetic", "rows": 300, "tasks": 4, "features": 8, "positive_rate": 0.1},
    "model": {"name": "mlp", "hidden": [8], "dropout": 0.2},
    "sampler": {"batch_size": 32, "rich_fraction": 0.25, "tasks_per_step": 2, "rows_per_task": 8},
    "training": {
        "steps": 40,
        "evaluate_every": 10,
        "checkpoint_every": 5,
        "log_every": 4,
        "tensorboard": False,
        "device": "cpu",
    },
}


def tiny_recipe(method="pauc", **changes):
    return resolve(merge({"method": method, **TINY}, changes))


def molecule_recipe(folder, method="pauc", **changes):
    """Graphs and a network with batch normalization."""
    smiles = ["CCO", "c1ccccc1O", "CC(=O)N", "CCN(C)C", "C1CCCCC1", "CC#N", "OCC(O)CO", "c1ccncc1", "CS"]
    lines = [f"{text},{k % 3 // 2},{(k // 2) % 2}" for k, text in enumerate(smiles * 8)]
    path = folder / "molecules.csv"
    path.write_text("smiles,a,b\n" + "\n".join(lines) + "\n")
    molecules = {
        "data": {"name": "molecules", "path": str(path), "labels": "a,b", "split": "random"},
        "model": {"name": "gin", "width": 8, "layers": 2},
        "training": {"steps": 10, "evaluate_every": 5, "checkpoint_every": 3},
    }
    return tiny_recipe(method, **merge(molecules, changes))


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def newest_step(run):
    """Step of the newest checkpoint of a run; -1 without any."""
    paths = checkpoint.steps(run.checkpoints)
    return int(paths[-1].name) if paths else -1


def is_free(path):
    """Whether no process trains the run in a folder."""
    try:
        with Run.open(path).locked():
            return True
    except RunError:
        return False


@contextmanager
def small_files(size):
    """In this context, files cannot be longer than `size` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
