from docs.conftest import hook


def test_only_what_no_page_describes_is_added():
    described = {"mmb.auc.Labels", "mmb.metrics", "mmb.theory.Theorem"}
    targets = {
        "mmb.auc.labels.Labels",  # described under its shorter name
        "mmb.metrics.roc_auc",  # a part of a module that is described whole
        "mmb.theory.Theorem.parameters",
        "mmb.auc.compositional.host_rows.HostRows",
        "mmb.metricsandmore.Other",  # not a part of mmb.metrics
    }
    added = hook("internals").not_described(described, targets)
    assert added == ["mmb.auc.compositional.host_rows.HostRows", "mmb.metricsandmore.Other"]
