"""A small block quadratic with everything known in closed form, for the solver's tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import mmb


@dataclass(frozen=True)
class Quadratic:
    """g_i = y'A_i y / 2 - y'(B_i x + c_i).

    f_i = |y - t_i|^2 / 2 + a'(D_i y + E_i x) - |a|^2 / 2 + |x|^2 / 4.
    """

    A: Tensor
    B: Tensor
    c: Tensor
    t: Tensor
    D: Tensor
    E: Tensor

    @staticmethod
    def make(
        blocks=6, dim_x=4, dim_y=3, dim_dual=2, seed=0, dtype=torch.float64, identity=False
    ) -> Quadratic:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        root = normal(blocks, dim_y, dim_y) / dim_y**0.5
        A = root @ root.mT / 2 + 0.7 * torch.eye(dim_y, dtype=torch.float64)
        if identity:
            A = torch.eye(dim_y, dtype=torch.float64).expand(blocks, -1, -1)
        parts = (
            A,
            normal(blocks, dim_y, dim_x) / 2,
            normal(blocks, dim_y),
            normal(blocks, dim_y),
            normal(blocks, dim_dual, dim_y) / 2,
            normal(blocks, dim_dual, dim_x) / 2,
        )
        return Quadratic(*(part.to(dtype) for part in parts))

    @property
    def num_blocks(self) -> int:
        return self.A.shape[0]

    def problem(self, **options) -> mmb.Problem:
        return mmb.Problem(upper=upper, lower=lower, num_blocks=self.num_blocks, **options)

    def batches(self, blocks: Tensor):
        return (
            {"t": self.t[blocks], "D": self.D[blocks], "E": self.E[blocks]},
            {"A": self.A[blocks], "B": self.B[blocks], "c": self.c[blocks]},
        )

    def start(self):
        generator = torch.Generator().manual_seed(99)
        sizes = (self.B.shape[2],), (self.num_blocks, self.D.shape[1]), (self.num_blocks, self.A.shape[1])
        return [
            torch.randn(*size, generator=generator, dtype=torch.float64).to(self.A.dtype) for size in sizes
        ]

    def lower_star(self, x: Tensor) -> Tensor:
        return torch.linalg.solve(self.A, self.B @ x + self.c)

    def dual_star(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        y = self.lower_star(x) if y is None else y
        return torch.einsum("kij,kj->ki", self.D, y) + self.E @ x

    def gradient(self, x: Tensor, dual: Tensor | None = None) -> Tensor:
        """Gradient of F at x, of the mean over blocks, with the best dual and lower variables."""
        y = self.lower_star(x)
        a = self.dual_star(x) if dual is None else dual
        grad_y = y - self.t + torch.einsum("kij,ki->kj", self.D, a)
        v = torch.linalg.solve(self.A, grad_y)
        through_y = torch.einsum("kij,ki->kj", self.B, v)
        return (torch.einsum("kij,ki->kj", self.E, a) + through_y).mean(0) + 0.5 * x


def upper(x, a, y, batch):
    value = 0.5 * (y - batch["t"]).square().sum() + 0.25 * x.square().sum()
    if a is not None:
        value = value + a @ (batch["D"] @ y + batch["E"] @ x) - 0.5 * a.square().sum()
    return value


def lower(x, y, batch):
    return 0.5 * y @ (batch["A"] @ y) - y @ (batch["B"] @ x + batch["c"])
