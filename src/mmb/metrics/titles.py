"""What the metrics of runs are called in tables and messages, and how their values are written."""

from mmb.metrics.registry import METRICS, SHORT_NAMES, MetricName


def shown_metrics(select: MetricName) -> tuple[MetricName, ...]:
    """The metrics that tables show, in order: AUC, partial AUC, AP, and the one that selects weights."""
    return tuple(dict.fromkeys((*SHORT_NAMES, select)))


def column_titles(max_fpr: float, select: MetricName) -> list[str]:
    """Titles of the columns of `shown_metrics`, with the limit of the false positive rate."""
    return [METRICS[name].title_at(max_fpr) for name in shown_metrics(select)]


def definition(max_fpr: float, select: MetricName) -> str:
    """What the partial AUC of a table is, and the metric that selects weights if that is an unusual one."""
    names: tuple[MetricName, ...] = ("pauc", *shown_metrics(select)[len(SHORT_NAMES) :])
    return ". ".join(METRICS[name].definition(max_fpr) for name in names)


def value_text(value: float) -> str:
    """A value with four digits after the point."""
    return f"{value:.4f}"
