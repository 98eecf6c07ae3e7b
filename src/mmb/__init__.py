"""Multi-block min-max bilevel optimization (Hu, Zhong, Yang, NeurIPS 2022) in PyTorch.

State a problem with `Problem`, choose a hypergradient estimator, make steps with `Solver`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mmb._renamed import renamed_names
from mmb._version import __version__

if TYPE_CHECKING:
    from mmb import problems, projections, soup, theory
    from mmb.automatic import auto
    from mmb.block_sampling import BatchOrder, BlockSampler
    from mmb.captured import solve_captured
    from mmb.constraints import constrained
    from mmb.cuda_graphs import capture
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
    from mmb.modules import parameters_of, with_module
    from mmb.padding import padded
    from mmb.problem import Problem
    from mmb.solver import Solver
    from mmb.solving import Result, solve
    from mmb.state import State
    from mmb.variance_reduction import Saga, Storm

__all__ = [
    "BatchOrder",
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
    "Saga",
    "Solver",
    "State",
    "Storm",
    "Watch",
    "__version__",
    "auto",
    "capture",
    "constrained",
    "padded",
    "parameters_of",
    "problems",
    "projections",
    "solve",
    "solve_captured",
    "soup",
    "theory",
    "with_module",
]

# Names are imported when first used, so that the command line answers without torch: add new ones here.
_MODULES = {"problems", "projections", "soup", "theory"}
_HOMES = {
    "BatchOrder": "block_sampling",
    "solve_captured": "captured",
    "BlockSampler": "block_sampling",
    **dict.fromkeys(["BrokenStepError", "Info", "Watch"], "diagnostics"),
    **dict.fromkeys(["ConjugateGradient", "Exact", "FirstOrder", "Hypergradient"], "hypergradients"),
    **dict.fromkeys(["Identity", "MomentumHessian", "Neumann", "QuadraticSGD"], "hypergradients"),
    "Problem": "problem",
    "Solver": "solver",
    **dict.fromkeys(["Result", "solve"], "solving"),
    "State": "state",
    **dict.fromkeys(["Saga", "Storm"], "variance_reduction"),
    "auto": "automatic",
    "capture": "cuda_graphs",
    "constrained": "constraints",
    "padded": "padding",
    **dict.fromkeys(["parameters_of", "with_module"], "modules"),
}
_old_names = renamed_names(__name__, {"sampling": "mmb.block_sampling"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"mmb.{name}")
    if name in _HOMES:
        found = getattr(importlib.import_module(f"mmb.{_HOMES[name]}"), name)
        globals()[name] = found  # the next time, it is simply there
        return found
    return _old_names(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
