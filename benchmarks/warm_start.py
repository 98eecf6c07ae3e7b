"""What placing the block variables by the current model gains: means, dual and thresholds, warm or cold.

The same training twice, from the same weights and on the same batches: block variables at their defaults
(cold), or at the class means, the closed-form dual and the empirical quantile of the current model's scores
(warm). From random weights, and from weights trained with cross-entropy, as the paper starts partial AUC.
Prints the test metric each objective is for, early and at the end, as warm minus cold: mean over the seeds
and its standard error; the last line is the same as JSON. Two minutes on one core.

    python benchmarks/warm_start.py [--seeds 5] [--steps 400] [--early 50]
"""

import argparse
import copy
import json

import torch

from mmb import auc, data
from mmb.metrics import roc_auc
from mmb.models import mlp

MAX_FPR = 0.1
DATA = {
    "digits": {},
    "synthetic": {"rows": 4000, "tasks": 20, "positive_rate": 0.03, "missing_rate": 0.2},
}
OBJECTIVES = {  # what to train for, and the largest false positive rate of the metric it is for
    "mAUC": (lambda labels: auc.MinMaxAUC(labels, anchor=0.0), None),
    "MMB-pAUC, practical": (lambda labels: auc.PartialAUC(labels, anchor=0.0), MAX_FPR),
    "MMB-pAUC, full": (
        lambda labels: auc.PartialAUC(labels, anchor=0.0, gradient="full", temperature=0.2, tau1=0.2),
        MAX_FPR,
    ),
    "pairwise pAUC": (lambda labels: auc.PairwisePartialAUC(labels, anchor=0.0, unit=1.0), MAX_FPR),
}


def train(model, objective, dataset, seed, steps, looks=()):
    """Train on batches of 128 rows with Adam; the models after the steps in `looks`."""
    rows = dataset.split["train"]
    inputs, labels = dataset.inputs[rows], dataset.labels[rows]
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(1000 + seed)
    seen = []
    for step in range(1, steps + 1):
        chosen = torch.randint(len(rows), (128,), generator=generator)
        optimizer.zero_grad()
        objective.backward(model, auc.DenseBatch(inputs[chosen], labels[chosen], rows=chosen))
        optimizer.step()
        if step in looks:
            seen.append(copy.deepcopy(model))
    return seen


def fresh(dataset, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return mlp(dataset.inputs.shape[1], [64], dataset.labels.shape[1])


def test_metric(model, dataset, max_fpr):
    rows = dataset.split["test"]
    with torch.no_grad():
        return float(roc_auc(model(dataset.inputs[rows]), dataset.labels[rows], max_fpr).nanmean())


def gains(name, model, dataset, seed, args):
    """Cold and warm metric after the early and the last step."""
    make, max_fpr = OBJECTIVES[name]
    rows = dataset.split["train"]
    values = {}
    for kind in ("cold", "warm"):
        own, objective = copy.deepcopy(model), make(dataset.labels[rows])
        if kind == "warm":
            with torch.no_grad():
                objective.warm_start(own(dataset.inputs[rows]), dataset.labels[rows])
        seen = train(own, objective, dataset, seed, args.steps, (args.early, args.steps))
        values[kind] = [test_metric(one, dataset, max_fpr) for one in seen]
    return values


def summary(values):
    """Mean and standard error."""
    values = torch.tensor(values, dtype=torch.float64)
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--early", type=int, default=50)
    args = parser.parse_args()
    times = args.early, args.steps
    print(f"warm minus cold, test AUC (mAUC) or pAUC at FPR <= {MAX_FPR} (McClish), {args.seeds} seeds")
    columns = "".join(f"{f'cold, step {time}':>16}{'warm - cold':>20}" for time in times)
    print(f"{'data':<10} {'start':<13} {'objective':<20}{columns}")
    results = []
    for data_name, options in DATA.items():
        found = {}
        for seed in range(args.seeds):
            dataset = data.load(data_name, seed=seed, **options)
            random = fresh(dataset, seed)
            trained = copy.deepcopy(random)
            train(
                trained, auc.CrossEntropy(dataset.labels[dataset.split["train"]]), dataset, seed, args.steps
            )
            for start, model in {"random": random, "cross-entropy": trained}.items():
                for name in OBJECTIVES:
                    values = gains(name, model, dataset, seed, args)
                    found.setdefault((start, name), []).append(values)
        for (start, name), runs in found.items():
            row = {"data": data_name, "start": start, "objective": name}
            line = f"{data_name:<10} {start:<13} {name:<20}"
            for place, time in enumerate(times):
                cold, _ = summary([run["cold"][place] for run in runs])
                gain, error = summary([run["warm"][place] - run["cold"][place] for run in runs])
                row |= {f"cold_{time}": cold, f"gain_{time}": gain, f"error_{time}": error}
                line += f"{cold:>16.4f}{f'{gain:+.4f} +- {error:.4f}':>20}"
            results.append(row)
            print(line, flush=True)
    setting = {"benchmark": "warm_start", "seeds": args.seeds, "steps": args.steps, "early": args.early}
    print(json.dumps(setting | {"results": results}))


if __name__ == "__main__":
    main()
