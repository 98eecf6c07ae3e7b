"""Tables of R packages as a user would have them: numbers, names and gaps in one file.

apt-get install r-cran-modeldata r-cran-kernlab r-cran-mlbench
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

# the package, the item, the column that is to be predicted, columns to leave out
TABLES = {
    "attrition": ("modeldata", "attrition", "Attrition", ()),
    "cells": ("modeldata", "cells", "class", ("case",)),
    "churn": ("modeldata", "mlc_churn", "churn", ()),
    "churn, phones": ("modeldata", "wa_churn", "churn", ()),
    "credit": ("modeldata", "credit_data", "Status", ()),
    "jobs on a cluster": ("modeldata", "hpc_data", "class", ()),
    "loans": ("modeldata", "lending_club", "Class", ()),
    "remote work": ("modeldata", "stackoverflow", "Remote", ()),
    "speech": ("modeldata", "pd_speech", "class", ()),
    "Alzheimer": ("modeldata", "ad_data", "Class", ()),
    "caravans": ("kernlab", "ticdata", "CARAVAN", ()),
    "musk": ("kernlab", "musk", "Class", ()),
    "DNA": ("mlbench", "DNA", "Class", ()),
    "Pima, with gaps": ("mlbench", "PimaIndiansDiabetes2", "diabetes", ()),
    "shuttle": ("mlbench", "Shuttle", "Class", ()),
    "soybean": ("mlbench", "Soybean", "Class", ()),
}


def read_r_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The cells of a table as texts, blank for gaps, and the number of each row's class."""
    package, item, target, left_out = TABLES[name]
    if shutil.which("Rscript") is None:
        raise SystemExit(
            "the tables of R are missing: apt-get install r-cran-modeldata r-cran-kernlab r-cran-mlbench"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write = f'data("{item}", package="{package}"); write.csv({item}, "{path}", row.names=FALSE, na="")'
        subprocess.run(["Rscript", "-e", write], check=True, capture_output=True)
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    cells = np.array(rows, dtype=object)
    kept = [place for place, column in enumerate(header) if column not in (target, *left_out)]
    classes = cells[:, header.index(target)].astype(str)
    return cells[:, kept], np.unique(classes, return_inverse=True)[1]
