"""Two-way partial AUC by our objectives and by LibAUC's losses for it, on one task without gaps.

The same network, rows and steps for all: a perceptron with 64 hidden units, 400 steps of Adam on 128 rows
drawn uniformly, at the step size that is best on validation rows, for each method and data set on its own.
The table has the share of the rectangle FPR <= 0.3, TPR >= 0.5 under the ROC curve on test rows: mean over
ten seeds (standard error). LibAUC's losses take probabilities, as its documentation says, and move the
network by LibAUC's own optimizers.

    pip install --no-deps libauc==2.0.1
    python benchmarks/two_way.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
from collections.abc import Callable, Iterator

import torch
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from _peers import version
from _timing import machine, print_json, print_table
from mmb import auc
from mmb.metrics import two_way_pauc
from mmb.models import mlp

MAX_FPR, MIN_TPR = 0.3, 0.5
STEPS, ROWS = 400, 128
RATES = (0.001, 0.003, 0.01, 0.03)
Part = tuple[Tensor, Tensor]  # inputs and labels [n, 1]
Step = Callable[[Tensor, Tensor, Tensor], None]  # of inputs, labels and row numbers


def parts_of(name: str, seed: int) -> tuple[Part, Part, Part]:
    """Rows to train on, to validate and to test, standardized."""
    if name == "breast cancer, benign rare":
        x, y = load_breast_cancer(return_X_y=True)
        keep = (y == 0) | (torch.arange(len(y)) % 6 == 0).numpy()
        x, y = x[keep], y[keep]
    elif name == "digits, 8":
        x, y = load_digits(return_X_y=True)
        y = (y == 8).astype(int)
    else:
        x, y = make_classification(
            6000, 30, n_informative=8, n_clusters_per_class=2, weights=[0.93], flip_y=0.02, random_state=7
        )
    rest, test = train_test_split(range(len(y)), test_size=0.4, stratify=y, random_state=seed)
    train, valid = train_test_split(rest, test_size=0.35, stratify=y[rest], random_state=seed)
    mean, deviation = x[train].mean(0), x[train].std(0) + 1e-6
    found = []
    for rows in (train, valid, test):
        inputs = torch.as_tensor((x[rows] - mean) / deviation, dtype=torch.float32)
        found.append((inputs, torch.as_tensor(y[rows]).long().unsqueeze(1)))
    return found[0], found[1], found[2]


def ours(make: Callable[[Tensor], auc.Objective]) -> Callable[[nn.Module, Tensor, float], Step]:
    """Steps of an objective."""

    def prepare(model: nn.Module, labels: Tensor, lr: float) -> Step:
        objective = make(labels)
        optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=lr)

        def step(inputs: Tensor, labels: Tensor, rows: Tensor) -> None:
            optimizer.zero_grad()
            objective.backward(model, auc.DenseBatch(inputs, labels, None, rows))
            optimizer.step()

        return step

    return prepare


def libauc(kind: str) -> Callable[[nn.Module, Tensor, float], Step]:
    """Steps of a loss of LibAUC by the optimizer that belongs to it."""

    def prepare(model: nn.Module, labels: Tensor, lr: float) -> Step:
        from libauc import losses, optimizers

        with contextlib.redirect_stdout(io.StringIO()):  # it greets
            if kind == "SOTAs":
                loss = losses.auc.tpAUC_KL_Loss(len(labels), device="cpu")
                optimizer = optimizers.SOTAs(model.parameters(), lr=lr, mode="adam", device="cpu")
            else:
                shares = {"theta_0": 1 - MIN_TPR, "theta_1": MAX_FPR}
                loss = losses.auc.tpAUC_CVaR_loss(len(labels), device="cpu", **shares)
                optimizer = optimizers.STACO(model.parameters(), lr=lr, mode="adam", device="cpu")

        def step(inputs: Tensor, labels: Tensor, rows: Tensor) -> None:
            optimizer.zero_grad()
            loss(model(inputs).sigmoid(), labels, rows).backward()
            optimizer.step()

        return step

    return prepare


METHODS = {
    "CrossEntropy": ours(auc.CrossEntropy),
    "TwoWayPartialAUC": ours(lambda y: auc.TwoWayPartialAUC(y, max_fpr=MAX_FPR, min_tpr=MIN_TPR)),
    "STACO": ours(lambda y: auc.STACO(y, max_fpr=MAX_FPR, min_tpr=MIN_TPR)),
    "LibAUC tpAUC_KL (SOTAs)": libauc("SOTAs"),
    "LibAUC tpAUC_CVaR (STACO)": libauc("STACO"),
}
SETS = ("breast cancer, benign rare", "digits, 8", "made, 7% positive")


def draws(labels: Tensor, seed: int) -> Iterator[Tensor]:
    """Rows of each step, both classes among them."""
    generator = torch.Generator().manual_seed(seed)
    found = 0
    while found < STEPS:
        rows = torch.randperm(len(labels), generator=generator)[:ROWS]
        if 0 < int(labels[rows].sum()) < len(rows):
            found += 1
            yield rows


def measure(name: str, prepare: Callable[[nn.Module, Tensor, float], Step], seed: int) -> float:
    """The metric on test rows, at the step size that is best on validation rows."""
    (inputs, labels), valid, test = parts_of(name, seed)
    found = []
    for lr in RATES:
        torch.manual_seed(seed)
        model = mlp(inputs.shape[1], [64], 1)
        step = prepare(model, labels, lr)
        for rows in draws(labels, seed):
            step(inputs[rows], labels[rows], rows)
        with torch.no_grad():
            found.append([two_way(model(x), y) for x, y in (valid, test)])
    return max(found)[1]


def two_way(scores: Tensor, labels: Tensor) -> float:
    """The metric."""
    return float(two_way_pauc(scores, labels, max_fpr=MAX_FPR, min_tpr=MIN_TPR))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        name: {
            title: [measure(name, one, seed) for seed in range(options.seeds)]
            for title, one in METHODS.items()
        }
        for name in SETS
    }
    rows = []
    for title in METHODS:
        cells = []
        for name in SETS:
            values = found[name][title]
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.4f} ({error:.4f})")
        rows.append([title, *cells])
    print_table(f"two-way partial AUC (FPR <= {MAX_FPR}, TPR >= {MIN_TPR}), test rows", ["", *SETS], rows)
    peers = {"libauc": version("libauc")}
    print_json({"benchmark": "two_way", "machine": machine(), "peers": peers, "found": found})


if __name__ == "__main__":
    main()
