"""What the metrics of runs are called in tables and messages, and how their values are written."""

TITLES = {"auc": "AUC", "pauc": "pAUC", "ap": "AP"}
"""Titles by the short names of recipes and logs, in the order of tables."""


def column_titles(max_fpr: float) -> list[str]:
    """Titles of columns, with the limit of the partial AUC."""
    return [f"{title} {max_fpr:g}" if name == "pauc" else title for name, title in TITLES.items()]


def definition(max_fpr: float) -> str:
    """What the partial AUC of a table is."""
    return f"{TITLES['pauc']}: FPR <= {max_fpr:g}, McClish-standardized"


def value_text(value: float) -> str:
    """A value with four digits after the point."""
    return f"{value:.4f}"
