"""What one training step costs with each objective, against plain cross-entropy and LibAUC.

The network is an MLP 256-256-m in float32 on one thread; a step is forward, backward and SGD. Four tables:

- dense: 128 rows with all their labels, m = 10, 40, 128, 1000, as a multiple of BCE + SGD;
- task-sampled: 10 tasks with 128 rows each, which should cost the same at every m;
- compositional: 10 tasks with 128 rows each, as a multiple of a cross-entropy step on the same rows;
- memory: bytes of block state.

Figures are medians of processor time, methods taking turns. Until a process has freed a block of some 30 MB,
glibc returns memory to the system after every step and faults it in again at the next, which costs steps with
large temporaries (compositional training) up to 40 % more. A process that has loaded data has freed such
blocks, so this one frees one at the start; `--cold-allocator` leaves that out. LibAUC is timed beside them
if it is installed:

    pip install --no-deps libauc==2.0.1    (the parts used need torch, scipy, scikit-learn and tqdm)
    python benchmarks/objectives.py
    python benchmarks/objectives.py --only MSVRAveragePrecision AveragePrecision    (without compositional)

Other work on the machine raises the ratios, at few tasks most: the result states its load.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from _libauc_steps import FOR_LISTS, PEERS, libauc, libauc_compositional
from _objective_data import LR, ROWS, TASKS, Data, Step
from _peers import version
from _timing import machine, median_ms, print_json, print_table, round_robin
from mmb import auc
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.auc.sampling import TaskSampler
from mmb.models import MultiTask


def ours(data: Data, batches: list[Any], make: Callable[[MultiTask], auc.Objective]) -> Step:
    """A step of one of our objectives."""
    model = data.model()
    objective = make(model)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=LR)
    turn = cycle(batches)

    def step() -> None:
        optimizer.zero_grad()
        objective.backward(model, next(turn))
        optimizer.step()

    return step


def floor(data: Data) -> Step:
    """Plain cross-entropy as anyone would write it: no gaps, no weights."""
    model = data.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    turn = cycle(data.dense)

    def step() -> None:
        batch = next(turn)
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(model(batch.inputs), data.full[batch.rows]).backward()
        optimizer.step()

    return step


OBJECTIVES: dict[str, Callable[[Data], Callable[[MultiTask], auc.Objective]]] = {
    "CrossEntropy": lambda data: lambda model: auc.CrossEntropy(data.labels),
    "Focal": lambda data: lambda model: auc.Focal(data.labels),
    "MinMaxAUC": lambda data: lambda model: auc.MinMaxAUC(data.labels),
    "PartialAUC": lambda data: lambda model: auc.PartialAUC(data.labels, max_fpr=0.1),
    "PairwisePartialAUC": lambda data: lambda model: auc.PairwisePartialAUC(data.labels, max_fpr=0.1),
    "TwoWayPartialAUC": lambda data: lambda model: auc.TwoWayPartialAUC(data.labels, max_fpr=0.1),
    "AveragePrecision": lambda data: lambda model: auc.AveragePrecision(data.labels),
    "MSVRAveragePrecision": lambda data: lambda model: auc.MSVRAveragePrecision(data.labels, model),
    "NDCG": lambda data: lambda model: auc.NDCG(data.labels),
    "NDCG, k=100": lambda data: lambda model: auc.NDCG(data.labels, k=100),
    "RecallAtFPR": lambda data: lambda model: auc.RecallAtFPR(data.labels),
    "FPRAtRecall": lambda data: lambda model: auc.FPRAtRecall(data.labels),
    "ConstrainedRecall": lambda data: lambda model: auc.ConstrainedRecall(data.labels),
    "PAUCI": lambda data: lambda model: auc.PAUCI(data.labels, max_fpr=0.1),
    "STACO": lambda data: lambda model: auc.STACO(data.labels, max_fpr=0.1),
    "MiniBatchPartialAUC": lambda data: lambda model: auc.MiniBatchPartialAUC(data.labels, max_fpr=0.1),
    "SOPA": lambda data: lambda model: auc.SOPA(data.labels, max_fpr=0.1),
    "SOPAs": lambda data: lambda model: auc.SOPAs(data.labels),
    "Sum of CrossEntropy and PartialAUC": lambda data: (
        lambda model: auc.Sum(
            [(1.0, auc.CrossEntropy(data.labels)), (0.3, auc.PartialAUC(data.labels, max_fpr=0.1))]
        )
    ),
}
NOTES = """\
Of what PairwisePartialAUC adds to cross-entropy, a quarter is the logarithm of its logistic loss, for every
pair. MSVRAveragePrecision evaluates the model twice, which alone costs a third of BCE + SGD.
LibAUC has STACO for one task alone, here called in a loop. Its NDCG is for lists with equally many positives
instead of tasks with gaps: it takes all lists at once, so no limit applies to it."""
COMPOSITIONAL = {
    "CompositionalAUC, exact": {"gradient": "exact"},
    "CompositionalAUC, first order": {"gradient": "first_order"},
    "CompositionalAUC, first order, copies in bfloat16": {
        "gradient": "first_order",
        "copies_dtype": torch.bfloat16,
    },
}


class Bench:
    """The steps of one part at every number of tasks, timed in turns."""

    def __init__(self, rounds: int, turn: float, peer: bool, only: list[str] | None) -> None:
        self.rounds, self.turn, self.peer = rounds, turn, peer
        self.objectives = {name: OBJECTIVES[name] for name in only or OBJECTIVES}
        self.peers = {name: theirs for name, theirs in PEERS.items() if name in self.objectives}
        self.bars: list[tuple[str, float, float, bool]] = []

    def time(self, steps: dict[str, Step]) -> dict[str, float]:
        """Milliseconds per step."""
        laps = round_robin(steps, rounds=self.rounds, turn=self.turn)
        return {name: median_ms(lap.cpu for lap in found) for name, found in laps.items()}

    def bar(self, text: str, value: float, limit: float, at_least: bool = False) -> None:
        """Note a requirement and whether it is met."""
        self.bars.append((text, round(value, 2), limit, value >= limit if at_least else value <= limit))

    def dense(self, data: Data) -> dict[str, float]:
        """128 rows, all labels."""
        steps = {"BCE + SGD": floor(data)}
        steps |= {name: ours(data, data.dense, make(data)) for name, make in self.objectives.items()}
        if self.peer and data.num_tasks <= 128:  # beyond, it takes seconds
            shown = {**self.peers, "NDCG": FOR_LISTS}
            steps |= {
                theirs: libauc(data, theirs) for name, theirs in shown.items() if name in self.objectives
            }
        found = self.time(steps)
        base = found["BCE + SGD"]
        limits = dict.fromkeys(OBJECTIVES, 3.0 if data.num_tasks > 128 else 2.5)
        limits = {} if data.num_tasks < 128 else limits
        limits |= {"MinMaxAUC": 2.0, "PartialAUC": 2.0}
        for name, limit in ((name, limits[name]) for name in self.objectives if name in limits):
            self.bar(f"{name}, dense, m={data.num_tasks}: times BCE + SGD", found[name] / base, limit)
        if data.num_tasks == 128 and self.peer:
            for name, peer in self.peers.items():
                text = f"{name}, dense, m=128: times cheaper than {peer}"
                self.bar(text, found[peer] / found[name], 20.0, at_least=True)
        return found

    def sampled(self, data: Data) -> dict[str, float]:
        """10 tasks, 128 rows each."""
        steps = {name: ours(data, data.sampled, make(data)) for name, make in self.objectives.items()}
        sampler = iter(TaskSampler(data.labels, TASKS, ROWS, steps_per_epoch=1_000_000))
        steps["drawing the rows"] = lambda: next(sampler) and None
        if self.peer:
            steps["LibAUC MultiLabelAUCM + PESG, 10 sampled (128 rows in all)"] = libauc(data, "sampled")
        return self.time(steps)

    def compositional(self, data: Data) -> dict[str, float]:
        """10 tasks, 128 rows each, against cross-entropy on the same rows."""
        steps = {"CrossEntropy": ours(data, data.sampled, OBJECTIVES["CrossEntropy"](data))}
        for name, options in COMPOSITIONAL.items():
            steps[name] = ours(
                data,
                data.sampled,
                lambda model, options=options: CompositionalAUC(data.labels, model, **options),
            )
        if self.peer:
            steps["LibAUC Compositional + PDSCA, one task"] = libauc_compositional(data)
        found = self.time(steps)
        base = found["CrossEntropy"]
        for name, limit in (("CompositionalAUC, exact", 4.5), ("CompositionalAUC, first order", 2.5)):
            text = f"{name}, m={data.num_tasks}: times CrossEntropy on the same rows"
            self.bar(text, found[name] / base, limit)
        return found

    def memory(self, data: Data, compositional: bool) -> dict[str, float]:
        """Mebibytes of block state."""
        found = {name: make(data)(data.model()) for name, make in self.objectives.items()}
        for name, options in COMPOSITIONAL.items():
            if compositional and "exact" not in name:  # as first order
                kept = CompositionalAUC(data.labels, data.model(), **options)
                found[name.replace(", first order", "")] = kept
        return {name: _bytes(objective.state_dict().values()) / 2**20 for name, objective in found.items()}


def _bytes(state: Any) -> int:
    return sum(value.numel() * value.element_size() for value in state if isinstance(value, Tensor))


def show(title: str, columns: dict[int, dict[str, float]], base: str | None = None, digits: int = 2) -> None:
    """Print one row per method: the value, and its ratio to `base`, at every number of tasks."""
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = []
    for name in names:
        cells = []
        for column in columns.values():
            value = column.get(name)
            ratio = f" ({value / column[base]:.2f}x)" if value is not None and base is not None else ""
            cells.append("-" if value is None else f"{value:.{digits}f}{ratio}")
        rows.append([name, *cells])
    print_table(title, ["", *(f"m={num_tasks}" for num_tasks in columns)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 40, 128, 1000])
    parser.add_argument(
        "--rows", type=int, default=20_000, help="rows of the data the batches are drawn from"
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turn", type=float, default=0.05, help="seconds a method gets in each round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=OBJECTIVES, metavar="OBJECTIVE", help="time these alone")
    parser.add_argument("--cold-allocator", action="store_true", help="do not free a large block first")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not options.cold_allocator:
        torch.ones(31 << 18)  # and freed
    peer = version("libauc")
    print(f"LibAUC {peer}" if peer else "LibAUC: not installed (pip install --no-deps libauc==2.0.1)")
    bench = Bench(options.rounds, options.turn, peer is not None, options.only)
    found: dict[str, dict[int, dict[str, float]]] = {
        part: {} for part in ("dense", "sampled", "compositional", "memory")
    }
    for num_tasks in options.tasks:
        data = Data(num_tasks, options.rows)
        found["dense"][num_tasks] = bench.dense(data)
        found["sampled"][num_tasks] = bench.sampled(data)
        if not options.only:
            found["compositional"][num_tasks] = bench.compositional(data)
        found["memory"][num_tasks] = bench.memory(data, compositional=not options.only)
    first, last = found["sampled"][options.tasks[0]], found["sampled"][options.tasks[-1]]
    for name in bench.objectives:
        text = f"{name}, task-sampled: m={options.tasks[-1]} times m={options.tasks[0]}"
        bench.bar(text, last[name] / first[name], 1.3)
    show("dense, 128 rows: ms per step (times BCE + SGD)", found["dense"], "BCE + SGD")
    show("task-sampled, 10 tasks x 128 rows: ms per step", found["sampled"])
    if not options.only:
        show(
            "compositional, 10 tasks x 128 rows: ms per step (times CrossEntropy on the same rows)",
            found["compositional"],
            "CrossEntropy",
        )
    show("block state: MiB", found["memory"], digits=3)
    print_table(
        "requirements",
        ["", "measured", "limit", "met"],
        [
            [text, f"{value:.2f}", f"{limit:g}", "yes" if met else "NO"]
            for text, value, limit, met in bench.bars
        ],
    )
    print(f"\n{NOTES}")
    keys = ("requirement", "measured", "limit", "met")
    print_json(
        {
            "benchmark": "objectives",
            "rows": options.rows,
            "cold_allocator": options.cold_allocator,
            "machine": machine(),
            "peers": {"libauc": peer},
            **{
                part: {
                    str(num_tasks): {name: round(value, 4) for name, value in column.items()}
                    for num_tasks, column in columns.items()
                }
                for part, columns in found.items()
            },
            "requirements": [dict(zip(keys, bar, strict=True)) for bar in bench.bars],
        }
    )


if __name__ == "__main__":
    main()
