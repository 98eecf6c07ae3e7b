"""Which objective ranks rare positives best, as it comes: those of mmb, those of LibAUC, or cross-entropy?

    python benchmarks/peer_objectives.py run [--sets ...]
    python benchmarks/peer_objectives.py run --ranges 8 --lrs 1 --log results/peers/with_ranges.jsonl
    python benchmarks/peer_objectives.py table [LOG]

One task at a time, which is what LibAUC is made for: the rarest class of a table against the rest, with at
most 40 positives to train on. All have the same perceptron, initial weights, rows, steps and batch size;
weights are selected by partial AUC on validation rows. Each library has its own batches (LibAUC half of
positives, mmb rich rows with importance weights, cross-entropy shuffled rows), optimizers and defaults. Step
sizes are the documented one and another. The first table has the documented one, the second the one that
validation rows choose.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor, nn

import mmb.auc
import mmb.metrics
import mmb.models
from _keel import one_task_per_class, read_keel
from mmb.data.splits import stratified_split

TABLES = (
    *(
        "abalone19",
        "banana",
        "bands",
        "car-vgood",
        "chess",
        "contraceptive",
        "crx",
        "flare-F",
        "german",
        "kr-vs-k-zero_vs_fifteen",
    ),
    *(
        "letter",
        "magic",
        "mammographic",
        "marketing",
        "optdigits",
        "page-blocks0",
        "penbased",
        "phoneme",
        "ring",
        "saheart",
    ),
    *(
        "satimage",
        "segment",
        "spambase",
        "splice",
        "texture",
        "tic-tac-toe",
        "twonorm",
        "vehicle1",
        "vowel",
        "yeast3",
    ),
)
POSITIVES = 40  # to train on, at most
STEPS, BATCH, EVERY = 1000, 128, 50
MAX_FPR = 0.1
METRICS = ("pauc", "ap", "auc")
LOG = Path(__file__).parents[1] / "results/peers/objectives.jsonl"


class Rows(NamedTuple):
    """Inputs and labels `[n, 1]` of the rows of one part."""

    inputs: Tensor
    labels: Tensor


class Trainer(NamedTuple):
    """A step of training, and what is to be done after an epoch."""

    step: Callable[[], Any]
    end_epoch: Callable[[], Any] = lambda: None


Method = Callable[[nn.Module, Rows, int, float], Trainer]
"""Makes a trainer from a network, its training rows, a seed and a step size."""


# -- Data ----------------------------------------------------------------------------------------------------


def load(name: str, seed: int) -> dict[str, Rows]:
    """Training, validation and test rows of a table: numbers scaled, names as indicators."""
    cells, classes = read_keel(name)
    labels = torch.as_tensor(one_task_per_class(classes))
    label = labels[:, [int(labels.sum(0).argmin())]]
    generator = torch.Generator().manual_seed(seed)
    split = stratified_split(label[:, 0].long(), (0.5, 0.25, 0.25), generator)
    positives = split["train"][label[split["train"], 0] == 1]
    spare = positives[torch.randperm(len(positives), generator=generator)][POSITIVES:]
    split["train"] = split["train"][~torch.isin(split["train"], spare)]
    numeric, named = [], []
    for column in range(cells.shape[1]):
        (numeric if _is_numeric(cells[:, column]) else named).append(column)
    transform = make_column_transformer(
        (StandardScaler(), numeric), (OneHotEncoder(handle_unknown="ignore", sparse_output=False), named)
    )
    transform.fit(cells[split["train"].numpy()])
    inputs = torch.as_tensor(np.asarray(transform.transform(cells), dtype=np.float32)).clamp(-10, 10)
    return {part: Rows(inputs[rows], label[rows]) for part, rows in split.items()}


def _is_numeric(cells: np.ndarray) -> bool:
    try:
        cells.astype(float)
    except ValueError:
        return False
    return True


# -- Methods -------------------------------------------------------------------------------------------------


def ours(make: Callable[[Tensor], mmb.auc.Objective], rich: bool = True) -> Method:
    """An objective of mmb with Adam, as on its first page."""

    def trainer(model: nn.Module, rows: Rows, seed: int, lr: float) -> Trainer:
        objective = make(rows.labels)
        optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=lr)
        size = min(BATCH, len(rows.labels))
        sampler = mmb.auc.RichRowSampler(rows.labels, size, 0.5 if rich else 0.0, generator=seed)
        draws = (draw for _ in iter(int, 1) for draw in sampler)

        def step() -> None:
            optimizer.zero_grad()
            objective.backward(model, next(draws).batch(rows.inputs, rows.labels))
            optimizer.step()

        return Trainer(step)

    return trainer


def theirs(loss_name: str, optimizer_name: str, **options: Any) -> Method:
    """A loss of LibAUC with its optimizer: probabilities of batches that are half positives."""

    def trainer(model: nn.Module, rows: Rows, seed: int, lr: float) -> Trainer:
        import libauc.losses
        import libauc.optimizers

        label = rows.labels[:, 0].long()
        positives, negatives = (label == 1).nonzero()[:, 0], (label == 0).nonzero()[:, 0]
        sizes = {"data_len": len(label), "pos_len": len(positives)}
        kind = getattr(libauc.losses, loss_name)
        taken = kind.__init__.__code__.co_varnames
        loss_fn = kind(
            **{key: value for key, value in sizes.items() if key in taken}, device="cpu", **options
        )
        linked = {"loss_fn": loss_fn} if optimizer_name in ("PESG", "PDSCA") else {}
        kind = getattr(libauc.optimizers, optimizer_name)
        optimizer = kind(model.parameters(), lr=lr, device="cpu", verbose=False, **linked)
        halves = [_shuffled(part, BATCH // 2, seed + k) for k, part in enumerate((positives, negatives))]

        def step() -> None:
            index = torch.cat([next(half) for half in halves])
            loss = loss_fn(
                model(rows.inputs[index]).sigmoid(), label[index].float().unsqueeze(1), index=index
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return Trainer(step)

    return trainer


def _shuffled(rows: Tensor, size: int, seed: int) -> Iterator[Tensor]:
    """Rows in groups of a size, shuffled again whenever all have been used."""
    generator, kept = torch.Generator().manual_seed(seed), rows[:0]
    while True:
        while len(kept) < size:
            kept = torch.cat([kept, rows[torch.randperm(len(rows), generator=generator)]])
        yield kept[:size]
        kept = kept[size:]


# Each with its step sizes: the documented one (of mmb that of its trainer for tables), and another.
METHODS: dict[str, tuple[Method, tuple[float, float]]] = {
    "CE": (ours(mmb.auc.CrossEntropy, rich=False), (1e-3, 3e-3)),
    "CE, rich rows": (ours(mmb.auc.CrossEntropy), (1e-3, 3e-3)),
    "MinMaxAUC": (ours(mmb.auc.MinMaxAUC), (1e-3, 3e-3)),
    "PartialAUC": (ours(mmb.auc.PartialAUC), (1e-3, 3e-3)),
    "PartialAUC, 0.3": (ours(lambda labels: mmb.auc.PartialAUC(labels, max_fpr=0.3)), (1e-3, 3e-3)),
    "PairwisePartialAUC": (ours(mmb.auc.PairwisePartialAUC), (1e-3, 3e-3)),
    "SOPA": (ours(mmb.auc.SOPA), (1e-3, 3e-3)),
    "AveragePrecision": (ours(mmb.auc.AveragePrecision), (1e-3, 3e-3)),
    "NDCG": (ours(mmb.auc.NDCG), (1e-3, 3e-3)),
    "LibAUC AUCM, PESG": (theirs("AUCMLoss", "PESG"), (0.1, 0.03)),
    "LibAUC compositional, PDSCA": (theirs("CompositionalAUCLoss", "PDSCA"), (0.1, 0.03)),
    "LibAUC AP, SOAP": (theirs("APLoss", "SOAP"), (1e-3, 3e-3)),
    "LibAUC pAUC, SOPAs": (theirs("pAUC_DRO_Loss", "SOPAs"), (1e-3, 3e-3)),
    "LibAUC pAUC, SOPA": (theirs("pAUC_CVaR_Loss", "SOPA", beta=MAX_FPR), (1e-3, 3e-3)),
    "LibAUC two-way, SOTAs": (theirs("tpAUC_KL_Loss", "SOTAs"), (1e-3, 3e-3)),
}


# -- Training ------------------------------------------------------------------------------------------------


def measure(name: str, seed: int, title: str, lr: float, ranges: int) -> dict[str, Any]:
    """Validation and test metrics of the weights that validation rows select; ranges mean a wide network."""
    parts = load(name, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [256, 256] if ranges else [64, 64]
        model = mmb.models.mlp(parts["train"].inputs.shape[1], hidden, 1, ranges=ranges)
        trainer = METHODS[title][0](model, parts["train"], seed, lr)
        best, weights, best_step = -math.inf, copy.deepcopy(model.state_dict()), 0
        for step in range(1, STEPS + 1):
            trainer.step()
            if step % EVERY == 0:
                found = metrics(model, parts["valid"])["pauc"]
                if found > best:
                    best, weights, best_step = found, copy.deepcopy(model.state_dict()), step
    model.load_state_dict(weights)
    found = {part: metrics(model, parts[part]) for part in ("valid", "test")}
    return {"set": name, "seed": seed, "method": title, "lr": lr, "best_step": best_step, **found}


def metrics(model: nn.Module, rows: Rows) -> dict[str, float]:
    """Partial AUC, average precision and AUC."""
    model.eval()
    with torch.no_grad():
        found = mmb.metrics.evaluate(model(rows.inputs).double(), rows.labels, MAX_FPR)
    model.train()
    names = {"pauc": "partial_auc", "ap": "average_precision", "auc": "roc_auc"}
    return {name: round(float(found[full].mean()), 6) for name, full in names.items()}


def run(options: argparse.Namespace) -> None:
    """Measure what the log does not have yet, and append a line for each run."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options.log.parent.mkdir(parents=True, exist_ok=True)
    known = read(options.log) if options.log.exists() else []
    done = {(record["set"], record["seed"], record["method"], record["lr"]) for record in known}
    for seed in range(options.seeds):
        for name in options.sets:
            for title in options.methods:
                for lr in METHODS[title][1][: options.lrs]:
                    if (name, seed, title, lr) not in done:
                        record = measure(name, seed, title, lr, options.ranges)
                        with options.log.open("a") as log:
                            log.write(json.dumps(record) + "\n")
            print(f"seed {seed}: {name}", flush=True)


def read(log: Path) -> list[dict[str, Any]]:
    """The records of a log."""
    return [json.loads(line) for line in log.read_text().splitlines()]


# -- Tables --------------------------------------------------------------------------------------------------

Records = Mapping[tuple[str, int, str], Mapping[str, Any]]


def tables(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Both tables, with their titles."""
    parts = {"The documented step size": documented(records), "The better of two": records}
    return [f"## {title}\n\n" + "\n".join(table(chosen(part))) for title, part in parts.items()]


def documented(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The runs with the documented step size."""
    return [record for record in records if record["lr"] == METHODS[record["method"]][1][0]]


def table(records: Records) -> Iterator[str]:
    """Lines of Markdown: mean test metrics less those of cross-entropy, x 1,000, and on how many sets."""
    yield "| objective | pAUC | AP | AUC | better, worse than CE in pAUC |"
    yield "|---|---|---|---|---|"
    for title in METHODS:
        found = gains(records, title)
        if not found["pauc"]:
            continue
        if title == "CE":
            means = [
                statistics.fmean(run["test"][metric] for (_, _, t), run in records.items() if t == "CE")
                for metric in METRICS
            ]
            yield f"| CE | {' | '.join(f'{mean:.3f}' for mean in means)} | |"
            continue
        cells = []
        for metric in METRICS:
            values = list(found[metric].values())
            error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            cells.append(f"{statistics.fmean(values):+.1f} ({error:.1f})")
        signs = [value > 0 for value in found["pauc"].values() if value]
        yield f"| {title} | {' | '.join(cells)} | {sum(signs)}, {len(signs) - sum(signs)} |"


def gains(records: Records, title: str) -> dict[str, dict[str, float]]:
    """For each metric and set the mean over seeds of what a method gains over cross-entropy, x 1,000."""
    found: dict[str, dict[str, list[float]]] = {metric: defaultdict(list) for metric in METRICS}
    for (name, seed, one), run in records.items():
        base = records.get((name, seed, "CE"))
        if one == title and base is not None:
            for metric in METRICS:
                found[metric][name].append(1000 * (run["test"][metric] - base["test"][metric]))
    return {
        metric: {name: statistics.fmean(values) for name, values in sets.items()}
        for metric, sets in found.items()
    }


def chosen(records: Sequence[Mapping[str, Any]]) -> Records:
    """Of each method, the runs with the step size that has the best partial AUC on validation rows."""
    best: dict[tuple[str, int, str], Mapping[str, Any]] = {}
    for run in records:
        key = (run["set"], run["seed"], run["method"])
        if key not in best or run["valid"]["pauc"] > best[key]["valid"]["pauc"]:
            best[key] = run
    return best


def main() -> None:
    """Run, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("run")
    train.add_argument("--log", type=Path, default=LOG)
    train.add_argument("--sets", nargs="*", choices=TABLES, default=TABLES)
    train.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    train.add_argument("--seeds", type=int, default=1)
    train.add_argument("--lrs", type=int, default=2, help="1: the documented step size alone")
    train.add_argument("--ranges", type=int, default=0, help="8: the trainer's network for tables")
    commands.add_parser("table").add_argument("log", nargs="?", type=Path, default=LOG)
    options = parser.parse_args()
    if options.command == "run":
        run(options)
        return
    print("\n\n".join(tables(read(options.log))))


if __name__ == "__main__":
    main()
