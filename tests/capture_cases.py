"""Methods and kinds of batches whose steps can be captured."""

from mmb.training import METHODS

SOME_CASES = [
    ("ce", "rows"),
    *((name, "rows") for name in ("pauc", "pauc-pairwise", "ap", "ndcg", "recall", "staco")),
    ("pauc", "tasks"),
    ("auc-ct", "tasks"),
    ("auc-ct-heads", "tasks"),
]

CAPTURED_METHODS = [name for name in METHODS if name not in ("soup", "ce-average", "ce-longer", "sum")]
CASES = [*((name, "rows") for name in CAPTURED_METHODS), *((name, "tasks") for name in CAPTURED_METHODS)]
