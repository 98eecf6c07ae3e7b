"""Theory as code.

What the paper's theorems say to use and its lemmas bound (`Theorem`), how far a run is from what it tracks
(`ErrorSequences`), and defaults to start from if no constants are known (`practical`).
"""

from mmb.theory.constants import Constants, Sampling, Start
from mmb.theory.errors import ErrorSequences
from mmb.theory.starting_points import Decay, practical
from mmb.theory.theorems import Parameters, Theorem

__all__ = [
    "Constants",
    "Decay",
    "ErrorSequences",
    "Parameters",
    "Sampling",
    "Start",
    "Theorem",
    "practical",
]
