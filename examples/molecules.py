"""Molecules: from a CSV file with SMILES to a model, a report page, and decisions for new molecules.

The file has a column of SMILES and a column per task: 1, 0, or blank if it was not measured. Molecules become
Morgan fingerprints and descriptors. They are split by scaffold, so that test molecules look different from
training ones. Two methods are trained on the same rows with the same network.

    python examples/molecules.py assays.csv new.csv
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mmb.report import write_report
from mmb.training import Run, predict_file, resolve, train


def main(table: Path, new: Path, output: Path = Path("runs/molecules"), **changes: Any) -> dict[str, Any]:
    """Train with cross-entropy and for partial AUC, compare, and score new molecules with the better one.

    Args:
        table: A CSV file with a column `smiles`. All other columns are tasks.
        new: A CSV file with a column `smiles`: the molecules to score.
        output: The folder of the runs.
        **changes: Sections of the recipe that differ from those below.

    Returns:
        The mean test partial AUC of each method, the method used, and the number of new molecules called
        positive for each task.
    """
    runs = {}
    for method in ("ce", "pauc"):
        recipe = resolve(
            {
                "method": method,
                "data": {"name": "molecules", "path": str(table)},
                "sampler": {"batch_size": 128, "rich_fraction": 0.5},  # half of the rows are rare positives
                "training": {"select": "pauc", "max_fpr": 0.1},
                **changes,
            }
        )
        runs[method] = Run.create(output / method, recipe)
        train(runs[method])
    page = write_report(list(runs.values()), output / "report.html")
    for entry in page["runs"]:
        print(f"{entry['name']}: {entry['verdict']}")

    # Validation rows decide which one to use. Test rows give the number to report.
    results = {method: run.result() for method, run in runs.items()}
    better = max(runs, key=lambda method: results[method]["valid"]["pauc"])
    called = predict_file(runs[better], new, output / "scores.csv")
    return {
        "test pauc": {method: result["test"]["pauc"] for method, result in results.items()},
        "used": better,
        "called positive": called["positive"],
    }


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2])))
