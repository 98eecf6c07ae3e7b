"""What adapting epochs and rich rows to the data gains: test partial AUC, plain and by the rule.

PYTHONPATH=src:benchmarks python benchmarks/adapted.py --seeds 3 > results/transfer/adapted.txt
"""

import argparse
import json
import statistics
import tempfile
import warnings
from pathlib import Path

from _transfer_sets import SETS
from mmb.training import Run, merge, resolve, train
from mmb.training.recipes.adapted import adapted_to
from mmb.training.recipes.components import load_data

NAMES = ("breast cancer, rare", "wine, rare", "synthetic, rare")
METHODS = ("ce", "pauc")


def score(fragment, folder):
    """Test partial AUC of a run."""
    recipe = resolve(merge(fragment, {"training": {"tensorboard": False}}))
    return train(Run.create(folder, recipe))["test"]["pauc"]


def main():
    """Print a table, and its numbers as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    print(__doc__)
    print(f"{seeds} seeds; the rule's batch, epochs and rich rows are for the first\n")
    print("data set               method  batch  epochs  rich   plain    rich  longer    rule")
    results = []
    for name in NAMES:
        for method in METHODS:
            found = {"plain": [], "rich": [], "longer": [], "rule": []}
            first = None
            for seed in range(seeds):
                with tempfile.TemporaryDirectory() as folder:
                    base = {**SETS[name](seed, Path(folder)), "method": method, "seed": seed}
                    rule = adapted_to(load_data(base["data"]))
                    first = first or rule
                    for kind, change in (
                        ("plain", {}),
                        ("rich", {"sampler": {"rich_fraction": 0.5}}),
                        ("longer", {"training": rule["training"]}),
                        ("rule", rule),
                    ):
                        found[kind].append(score(merge(base, change), Path(folder) / kind))
            means = {kind: statistics.fmean(values) for kind, values in found.items()}
            batch, rich = first["sampler"]["batch_size"], first["sampler"]["rich_fraction"]
            epochs = first["training"]["epochs"]
            numbers = "  ".join(f"{means[kind]:.4f}" for kind in found)
            print(f"{name:22} {method:6}  {batch:5}  {epochs:6g}  {rich:4}  {numbers}", flush=True)
            results.append({"set": name, "method": method, "rule": first, "pauc": found})
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
