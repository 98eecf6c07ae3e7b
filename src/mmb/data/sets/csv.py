"""Your own table: a CSV file with feature columns and label columns, gaps allowed in both.

Features: numbers are standardized and gaps filled with the median; other columns are one-hot; both learned
from the training rows and remembered in the encoder, so that new files are encoded identically. Labels: 1 / 0
(also true / false, yes / no), blank if not known. Split by a column of the file that says train, valid or
test, or at random by the seed.
"""

from collections.abc import Sequence
from pathlib import Path

from mmb.data.dataset import Dataset
from mmb.data.files.tables import read_training_table
from mmb.data.inputs.fit_columns import fit_columns
from mmb.data.inputs.label_columns import choose_columns, name_list, read_labels, read_split


def load(
    root: Path | None = None,
    *,
    path: str | Path,
    labels: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    split_column: str | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Dataset:
    """Load a table.

    Args:
        root: Not used: the file is read where it is.
        path: The file: CSV with a header line, UTF-8 (tab-separated if its name ends in `.tsv`).
        labels: Names of the label columns, one task each; a list, or one string with commas.
        features: Names of the feature columns; all other columns by default.
        drop: Columns to leave out, such as identifiers.
        split_column: Column that says `train`, `valid` or `test` for each row.
        fractions: Of train, valid and test, if there is no `split_column`.
        seed: Seed of the random split.
    """
    table = read_training_table(Path(path))
    for name in name_list(drop):
        table.check_column(name)
    tasks = choose_columns(table, "labels", labels)
    others = [*tasks, *name_list(drop), *([split_column] if split_column else [])]
    columns = choose_columns(table, "features", features, others)
    label_matrix = read_labels(table, tasks)
    split = read_split(table, split_column, fractions, seed)
    encoder = fit_columns(table, columns, split["train"])
    inputs, _ = encoder.encode(table)
    return Dataset(
        name="csv",
        inputs=inputs,
        labels=label_matrix,
        split=split,
        task_names=tuple(tasks),
        encoder=encoder,
        details={"path": str(path), "seed": seed, "features": list(encoder.feature_names)},
    )
