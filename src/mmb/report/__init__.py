"""A page about runs: what was run, whether it works, how good it is, how it differs from others."""

from mmb.report.page import write_report
from mmb.report.watch_server import WatchServer

__all__ = ["WatchServer", "write_report"]
