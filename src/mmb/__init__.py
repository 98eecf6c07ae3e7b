"""Multi-block min-max bilevel optimization."""

from mmb._version import __version__

__all__ = ["__version__"]
