"""Duals of blocks, brought back to the set they live in."""

import torch

from mmb import validation
from mmb.problem import Problem
from mmb.trees import Tree


def project_dual(problem: Problem, dual: Tree) -> Tree:
    """The duals of some blocks, each projected on the problem's set."""
    project = problem.project_dual
    if project is None:
        return dual
    return torch.vmap(lambda one: validation.check_kept("project_dual", one, project(one)))(dual)
