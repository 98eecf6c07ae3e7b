"""The page a run leaves behind: what was run, whether it works, how good it is, what differs from others."""

from mmb.report.page import write_report

__all__ = ["write_report"]
