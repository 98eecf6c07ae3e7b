"""Ranking metrics of many tasks, all at once here and task by task with scikit-learn.

Prints milliseconds (best of several rounds that alternate between the two), their ratio and the largest
difference between the values, for several kinds of data; the last line is the same as JSON. On a CPU they are
of processor time, with one thread: what an idle machine takes at most.

    python benchmarks/metrics.py [--rounds 5] [--threads 1] [--device cpu] [--skip-sklearn]
"""

import argparse
import json
import math
import time
import warnings

import torch

from mmb import metrics as own
from mmb.metrics import average_precision, evaluate, roc_auc, roc_curve, two_way_pauc

MAX_FPR = 0.1


def make_data(kind, rows, tasks, device):
    """Float32 scores, better than chance, and labels: 2% positive unless said otherwise."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(rows, tasks, generator=generator) < (0.5 if kind == "balanced" else 0.02)).float()
    scores = torch.randn(rows, tasks, generator=generator) + labels
    if kind == "60% missing":
        labels[torch.rand(rows, tasks, generator=generator) < 0.6] = math.nan
    if kind == "bfloat16":
        scores = scores.bfloat16()
    return scores.to(device), labels.to(device)


def sklearn_by_task(scores, labels):
    """The same metrics by scikit-learn: arrays made outside the clock, missing entries left out inside it."""
    from sklearn import metrics

    tasks = list(zip(scores.T.cpu().double().numpy(), labels.T.cpu().numpy(), strict=True))

    def each(metric, **options):
        def values():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pairs = ((s[y == y], y[y == y]) for s, y in tasks)
                return torch.tensor([float(metric(y, s, **options)) for s, y in pairs], dtype=torch.float64)

        return values

    auc = each(metrics.roc_auc_score)
    partial = each(metrics.roc_auc_score, max_fpr=MAX_FPR)
    precision = each(metrics.average_precision_score)
    return {
        "roc_auc": auc,
        "roc_auc max_fpr=0.1": partial,
        "average_precision": precision,
        "evaluate (all three)": lambda: torch.stack([auc(), partial(), precision()]),
        "ndcg": each(lambda y, s: metrics.ndcg_score(y[None], s[None])),
        "brier": each(lambda y, s: metrics.brier_score_loss(y, sigmoid(s))),
        "log_loss": each(lambda y, s: metrics.log_loss(y, sigmoid(s))),
    }


def sigmoid(array):
    return torch.from_numpy(array).sigmoid().numpy()


def ours(scores, labels):
    return {
        "roc_auc": lambda: roc_auc(scores, labels),
        "roc_auc max_fpr=0.1": lambda: roc_auc(scores, labels, MAX_FPR),
        "average_precision": lambda: average_precision(scores, labels),
        "evaluate (all three)": lambda: torch.stack(list(evaluate(scores, labels, MAX_FPR).values())),
        "two_way_pauc": lambda: two_way_pauc(scores, labels, max_fpr=0.3, min_tpr=0.5),
        "tpr_at_fpr": lambda: own.tpr_at_fpr(scores, labels, MAX_FPR),
        "enrichment_factor": lambda: own.enrichment_factor(scores, labels),
        "bedroc": lambda: own.bedroc(scores, labels),
        "ndcg": lambda: own.ndcg(scores, labels),
        "brier": lambda: own.brier(scores, labels, from_logits=True),
        "log_loss": lambda: own.log_loss(scores, labels, from_logits=True),
        "calibration_error": lambda: own.calibration_error(scores, labels, from_logits=True),
        "evaluate (all)": lambda: torch.stack(
            list(evaluate(scores, labels, MAX_FPR, tuple(own.METRICS)[3:]).values())
        ),
        "roc_curve": lambda: roc_curve(scores, labels).fpr,
    }


def clock(function, device):
    now = time.perf_counter if device.type == "cuda" else time.process_time
    start = now()
    value = function().cpu()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return now() - start, value


def compare(kind, args):
    scores, labels = make_data(kind, args.rows, args.tasks, args.device)
    peers = {} if args.skip_sklearn else sklearn_by_task(scores, labels)
    results = []
    for name, function in ours(scores, labels).items():
        function()  # first call: allocation and, on a GPU, loading of kernels
        if args.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        peer = peers.get(name)
        mine, theirs, difference = math.inf, math.inf, math.nan
        for _ in range(args.rounds):
            seconds, value = clock(function, args.device)
            mine = min(mine, seconds)
            if peer is not None:
                seconds, expected = clock(peer, args.device)
                theirs = min(theirs, seconds)
                difference = (value - expected).abs().max().item()
        row = {"data": kind, "metric": name, "ms": round(1e3 * mine, 1)}
        if peer is not None:
            row |= {
                "sklearn_ms": round(1e3 * theirs, 1),
                "ratio": round(theirs / mine, 1),
                "difference": difference,
            }
        if args.device.type == "cuda":
            row["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
        results.append(row)
        print(
            f"{kind:<12} {name:<22} {row['ms']:>9.1f} {row.get('sklearn_ms', math.nan):>11.1f} "
            f"{row.get('ratio', math.nan):>7.1f} {row.get('difference', math.nan):>11.1e} "
            f"{row.get('peak_mib', math.nan):>9}",
            flush=True,
        )
    return results


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=44_000)
    parser.add_argument("--tasks", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--skip-sklearn", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    machine = (
        torch.cuda.get_device_name()
        if args.device.type == "cuda"
        else f"{args.threads} thread{'s' * (args.threads > 1)}"
    )
    print(f"{args.tasks} tasks x {args.rows} rows, torch {torch.__version__}, {machine}")
    columns = ("ms", 9), ("sklearn ms", 11), ("ratio", 7), ("difference", 11), ("peak MiB", 9)
    print(f"{'data':<12} {'metric':<22} " + " ".join(f"{name:>{width}}" for name, width in columns))
    kinds = ["2% positive", "60% missing", "balanced", "bfloat16"]
    results = [row for kind in kinds for row in compare(kind, args)]
    setting = {"benchmark": "metrics", "rows": args.rows, "tasks": args.tasks, "machine": machine}
    print(json.dumps(setting | {"results": results}))


if __name__ == "__main__":
    main()
