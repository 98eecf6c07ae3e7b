"""Multi-block min-max bilevel optimization (Hu, Zhong, Yang, NeurIPS 2022) in PyTorch.

State a problem with `Problem`, choose a hypergradient estimator, make steps with `Solver`.
"""

from mmb import problems, projections, soup, theory
from mmb._renamed import renamed_names
from mmb._version import __version__
from mmb.block_sampling import BlockSampler
from mmb.diagnostics import BrokenStepError, Info, Watch
from mmb.hypergradients import (
    ConjugateGradient,
    Exact,
    FirstOrder,
    Hypergradient,
    Identity,
    MomentumHessian,
    Neumann,
    QuadraticSGD,
)
from mmb.problem import Problem
from mmb.solver import Result, Solver, solve
from mmb.state import State

__all__ = [
    "BlockSampler",
    "BrokenStepError",
    "ConjugateGradient",
    "Exact",
    "FirstOrder",
    "Hypergradient",
    "Identity",
    "Info",
    "MomentumHessian",
    "Neumann",
    "Problem",
    "QuadraticSGD",
    "Result",
    "Solver",
    "State",
    "Watch",
    "__version__",
    "problems",
    "projections",
    "solve",
    "soup",
    "theory",
]

__getattr__ = renamed_names(__name__, {"sampling": "mmb.block_sampling"})
