"""The full Hessian of the current batch, factorized at every step: the reference for small lower problems."""

import torch
from torch import Tensor

from mmb.hypergradients.base import BatchSolution
from mmb.oracles import Oracles
from mmb.trees import Tree, ravel_blocks, unravel_blocks


class Exact(BatchSolution):
    """Solves `grad_yy g_i v_i = grad_y f_i` with the batch's own Hessian, by Cholesky factorization."""

    def solve(self, at: Oracles, draw: Tensor | None) -> tuple[Tree, Tensor]:
        """The exact solution."""
        flat, indefinite = solve_positive_definite(at.hessian(), ravel_blocks(at.upper.grad_lower))
        return unravel_blocks(flat, at.lower), indefinite


def solve_positive_definite(matrices: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Solve `matrices_i s_i = right_i` for symmetric positive definite matrices, [k, d, d] and [k, d].

    Beside the solutions [k, d]: whether each matrix is not positive definite, [k], so that its solution is
    meaningless.
    """
    dtype = torch.promote_types(matrices.dtype, torch.float32)  # there is no Cholesky in half precision
    factors, info = torch.linalg.cholesky_ex(matrices.to(dtype))
    columns = right.to(dtype).unsqueeze(-1)
    if columns.is_cuda:  # `cholesky_solve` takes memory there by itself, and so cannot be captured in a graph
        halfway = torch.linalg.solve_triangular(factors, columns, upper=False)
        solution = torch.linalg.solve_triangular(factors.mT, halfway, upper=True)
    else:
        solution = torch.cholesky_solve(columns, factors)
    return solution.squeeze(-1).to(right.dtype), info > 0
