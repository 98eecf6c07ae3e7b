"""One data set per file; each has `load`, and `get` and `prepare` where it needs them."""
