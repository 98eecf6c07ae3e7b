"""How often operating points keep their promise: 1,000 splits of few rows with gaps.

A network is trained on 2,000 rows of a synthetic data set with 8 tasks and 30 % gaps. Each split draws
validation rows from 60,000 others, all of which are the new rows. A promise is kept if the rate on the new
rows of a task is within what was asked for. "fixed": the weights of the last epoch. "selected": of 30 epochs,
those with the best partial AUC on the same validation rows, as a run selects its weights. "plain": the
threshold that has the rate on the validation rows, without a promise.

    PYTHONPATH=src python benchmarks/promises.py > results/metrics/promises.txt
"""

import json

import torch
from torch.nn import functional

from mmb.data import load
from mmb.metrics import operating_points, roc_auc
from mmb.models import mlp
from mmb.training.runs.scoring import decision_thresholds

SPLITS, EPOCHS, TASKS = 1000, 30, 8
CASES = [  # validation rows, what is asked, confidence
    (60, {"max_fpr": 0.1}, 0.95),
    (150, {"max_fpr": 0.1}, 0.95),
    (150, {"max_fpr": 0.1}, 0.8),
    (600, {"max_fpr": 0.01}, 0.95),
    (600, {"max_fpr": 0.05}, 0.9),
    (600, {"min_tpr": 0.8}, 0.9),
    (600, {"min_tpr": 0.5}, 0.95),
]


def pool():
    """Logits of other rows after each epoch, `[EPOCHS, n, TASKS]`, and their labels."""
    data = load(
        "synthetic", rows=62_000, tasks=TASKS, features=20, positive_rate=0.1, missing_rate=0.3, seed=1
    )
    inputs, labels = data.inputs[torch.arange(62_000)], data.labels
    torch.manual_seed(0)
    model = mlp(20, [64], TASKS)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    found = []
    for _ in range(EPOCHS):
        for rows in torch.randperm(2000).split(64):
            logits, there = model(inputs[rows]), labels[rows] >= 0
            targets = labels[rows].clamp(min=0).float()
            loss = functional.binary_cross_entropy_with_logits(logits, targets, there.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            found.append(model(inputs[2000:]))
    return torch.stack(found), labels[2000:]


class Rates:
    """Share of all rows of a class that are above thresholds, for each epoch and task."""

    def __init__(self, scores, labels, value):
        self.ordered = [
            [epoch[labels[:, task] == value, task].sort().values for task in range(TASKS)] for epoch in scores
        ]

    def __call__(self, epochs, thresholds):
        """Of `thresholds [splits, TASKS]`, those of each split for the weights of an epoch."""
        found = torch.full(thresholds.shape, torch.nan, dtype=torch.float64)
        for epoch in epochs.unique().tolist():
            for task, ordered in enumerate(self.ordered[epoch]):
                rows = (epochs == epoch) & ~thresholds[:, task].isnan()
                below = torch.searchsorted(ordered, thresholds[rows, task].float(), right=True)
                found[rows, task] = 1 - below.double() / len(ordered)
        return found


def main():
    """Print a table, and its numbers as JSON in the last line."""
    torch.set_num_threads(1)
    scores, labels = pool()
    rates = {"max_fpr": Rates(scores, labels, 0), "min_tpr": Rates(scores, labels, 1)}
    generator = torch.Generator().manual_seed(0)
    print(__doc__)
    print(f"{SPLITS} splits, {TASKS} tasks; shares of the thresholds that keep the rate on new rows\n")
    print("rows  asked           confidence  placed   fixed  selected   plain   rate: fixed  plain")
    results = []
    for rows, asked, confidence in CASES:
        ((name, rate),) = asked.items()
        chosen = torch.randint(len(labels), (rows, SPLITS), generator=generator)
        own = labels[chosen].flatten(1)  # [rows, SPLITS * TASKS]
        pauc = [roc_auc(one[chosen].flatten(1), own, 0.1).view(SPLITS, TASKS).nanmean(1) for one in scores]
        epochs = {"fixed": torch.full((SPLITS,), EPOCHS - 1), "selected": torch.stack(pauc).argmax(0)}
        epochs["plain"] = epochs["fixed"]
        kept, mean, placed = {}, {}, 0.0
        for kind, epoch in epochs.items():
            logits = scores[epoch.unsqueeze(0), chosen].flatten(1)
            if kind != "plain":
                threshold = operating_points(logits, own, **asked, confidence=confidence).threshold
            elif name == "max_fpr":
                threshold = decision_thresholds(logits, own, [rate]).squeeze(0)
            else:
                continue
            found = rates[name](epoch, threshold.view(SPLITS, TASKS))
            there = found[~found.isnan()]
            kept[kind] = float((there <= rate if name == "max_fpr" else there >= rate).double().mean())
            mean[kind] = float(there.mean())
            placed = len(there) / found.numel() if kind == "fixed" else placed
        cells = [f"{kept[kind]:.3f}" if kind in kept else "-" for kind in ("fixed", "selected", "plain")]
        cells += [f"{mean[kind]:.4f}" if kind in mean else "-" for kind in ("fixed", "plain")]
        print(
            f"{rows:4}  {name} {rate:<6}  {confidence:10}  {placed:6.2f}  {cells[0]:>6}  {cells[1]:>8}  "
            f"{cells[2]:>6}  {cells[3]:>12}  {cells[4]:>6}"
        )
        results.append({"rows": rows, name: rate, "confidence": confidence, "placed": placed, "kept": kept})
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
