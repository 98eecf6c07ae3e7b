"""What cells of a table mean, in lower case. Nothing here imports torch, which the command line avoids."""

BLANK = frozenset({"", ".", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?"})
"""Cells that are gaps, as spreadsheets, pandas, R and SAS write them."""
POSITIVE = frozenset({"true", "yes", "t", "y", "positive", "pos", "active"})
"""Labels besides 1."""
NEGATIVE = frozenset({"false", "no", "f", "n", "negative", "neg", "inactive"})
"""Labels besides 0."""
