"""What worker processes do in tests; a module that they can import."""

import os
import threading
from functools import partial
from pathlib import Path

from mmb.data.inputs.featurize import Featurizer
from mmb.training.processes.workers import Workers


class OddError(Exception):
    """Cannot be made again from its arguments, so not be sent to another process."""

    def __init__(self, first, second):
        super().__init__(f"{first}, {second}")


def do(folder, task):
    """Do what the task is called; else leave the number of the process in a file of that name."""
    if task == "fail":
        raise ValueError("not this")
    if task == "odd":
        raise OddError(1, 2)
    if task == "die":
        os._exit(9)
    if task == "hold":  # be a parent
        with Workers(partial(do, folder), 1) as workers:
            workers.start("forever")
            threading.Event().wait()
    (folder / f"{task}.part").write_text(str(os.getpid()))
    (folder / f"{task}.part").rename(folder / task)
    if task == "forever":
        threading.Event().wait()


class SlowFeaturizer(Featurizer):
    """Leaves the number of each of its processes in a folder, and never ends."""

    def _piece(self, smiles):
        do(Path(smiles[0]), f"worker-{os.getpid()}")
        threading.Event().wait()


def featurize_forever(folder):
    """Be the parent of two processes."""
    SlowFeaturizer()([str(folder)] * 2001, workers=2)


def has_ended(process):
    """Whether there is no process of a number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class HereWorkers(Workers):
    """Stands in for worker processes: a task is done when it is waited for."""

    def __init__(self, work, count):
        self.work, self.tasks, self._count = work, [], count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    busy = property(lambda self: len(self.tasks))

    def start(self, task):
        self.tasks.append(task)

    def wait(self, seconds):
        done, self.tasks = self.tasks, []
        return [(task, self.work(task)) for task in done]  # what the work returns stands for its error
