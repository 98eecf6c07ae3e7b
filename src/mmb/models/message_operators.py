r"""Message passing of many tasks at once that can be differentiated any number of times.

With the features $x$ of nodes and $e$ of bonds, let $M_{uv} = [x_u + e_{uv} > 0]$. The operators are

$$
P(h, f)_v = (1 + \epsilon) h_v + \sum_{u \to v} M_{uv} (h_u + f_{uv}), \qquad
P^T(g) = \Bigl( (1 + \epsilon) g_u + \sum_{u \to v} M_{uv} g_v, \;
\sum_{u \to v \text{ of bond } c} M_{uv} g_v \Bigr)
$$

and $P(x, e)$ is the sum of relus. As $M$ is constant wherever it can be differentiated, the derivative of
either operator is the other one, and $\sum h g$ for $\epsilon$. They can be used under
`torch.func.vmap` and `grad`, and are single steps of what `make_fx` records; a compiler sees the kernels in
them.

All tensors have a leading axis `[k]` of tasks, and indices count within the task. On a GPU they are computed
by the kernels of `_message_kernels`, in float32 and without writing messages down; elsewhere, and in float64,
by plain operations.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import wrap_triton

try:
    import triton

    from mmb.models._message_kernels import backward_kernel, bonds_kernel, forward_kernel
except ImportError:  # without Triton there are no GPU kernels: plain operations serve
    triton = None

ALIGNMENT = 8  # columns; 16 bytes of bfloat16
MOST_CODES = 64  # distinct bonds the kernel can tell apart
ROWS, COLUMNS = 8, 128  # nodes and features a program handles
EDGES, TURNS, BOND_COLUMNS = 64, 8, 64  # edges per product, products per program, features


def aligned(width: int) -> int:
    """The width, rounded up to a multiple of the alignment."""
    return -(-width // ALIGNMENT) * ALIGNMENT


def in_kernels(tensor: Tensor) -> bool:
    """Whether the kernels compute, rather than plain operations."""
    return triton is not None and tensor.is_cuda and tensor.dtype != torch.float64


def messages(*inputs: Tensor | None) -> Tensor:
    """$P(h, f)$ of the inputs of `_compute_messages`, `[k, N, aligned(width)]`, zero beyond `width`."""
    found: Tensor = _Messages.apply(*inputs)  # type: ignore[no-untyped-call]
    return found


def messages_adjoint(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    """$P^T(g)$ of the inputs of `_compute_adjoint`, `[k, N, width]` and `[k, B, width]`."""
    found: tuple[Tensor, Tensor] = _MessagesAdjoint.apply(*inputs)  # type: ignore[no-untyped-call]
    return found


def _compute_messages(
    epsilon: Tensor,  # [k]
    nodes: Tensor,  # x, [k, N, width]
    bonds: Tensor,  # e of each code, [k, B, width]; at most 64 codes
    node_values: Tensor | None,  # h, as x; None is x itself
    bond_values: Tensor | None,  # f, as e; None, together with h, is e itself
    edges: Tensor,  # int64 [k, 2, E], source and target, sorted by target
    codes: Tensor,  # int64 [k, E]
    ptr: Tensor,  # int64 [k, N + 1]; edges into node v are ptr[v] to ptr[v + 1]; others do not count
) -> Tensor:
    """$P(h, f)$ of features of one dtype; every edge must be there in both directions, with the same code."""
    tasks, count, width = nodes.shape
    kernels = in_kernels(nodes)
    if kernels:
        nodes, bonds = nodes.contiguous(), bonds.contiguous()
    values = nodes if node_values is None else node_values
    bonds_of_values = bonds if bond_values is None else bond_values
    if not kernels:
        passed = _passed(nodes, bonds, edges, codes, ptr)
        sent = _rows(values, edges[:, 0]) + _rows(bonds_of_values, codes)
        total = (1 + epsilon).reshape(-1, 1, 1) * _wide(values)
        total = total.scatter_add(1, _columns(edges[:, 1], width), torch.where(passed, _wide(sent), 0))
        return torch.nn.functional.pad(total.to(nodes.dtype), (0, aligned(width) - width))
    others = (t.contiguous() for t in (values, bonds_of_values, epsilon, edges, codes, ptr))
    out = nodes.new_empty(tasks, count, aligned(width))
    sizes = (count, codes.shape[1], bonds.shape[1], width, out.shape[2])
    grid = (triton.cdiv(count, ROWS), triton.cdiv(out.shape[2], COLUMNS), tasks)
    wrap_triton(forward_kernel)[grid](nodes, bonds, *others, out, *sizes, ROWS, COLUMNS, node_values is None)
    return out


def _compute_adjoint(
    epsilon: Tensor, nodes: Tensor, bonds: Tensor, grad: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor
) -> tuple[Tensor, Tensor]:
    """$P^T(g)$ of `grad [k, N, aligned(width)]`, of the dtype of nodes and bonds; see `_compute_messages`."""
    tasks, count, width = nodes.shape
    if not in_kernels(nodes):
        grad = grad[..., :width]
        sent = torch.where(_passed(nodes, bonds, edges, codes, ptr), _wide(_rows(grad, edges[:, 1])), 0)
        total = (1 + epsilon).reshape(-1, 1, 1) * _wide(grad)
        by_nodes = total.scatter_add(1, _columns(edges[:, 0], width), sent)
        by_bonds = torch.zeros_like(bonds, dtype=sent.dtype).scatter_add(1, _columns(codes, width), sent)
        return by_nodes.to(nodes.dtype), by_bonds.to(bonds.dtype)
    nodes, bonds, grad, epsilon = (t.contiguous() for t in (nodes, bonds, grad, epsilon))
    edges, codes, ptr = (t.contiguous() for t in (edges, codes, ptr))
    by_nodes = torch.empty_like(nodes)
    by_bonds = torch.zeros_like(bonds, dtype=torch.float32)
    sizes = (count, codes.shape[1], bonds.shape[1], width, grad.shape[2])
    grid = (triton.cdiv(count, ROWS), triton.cdiv(width, COLUMNS), tasks)
    wrap_triton(backward_kernel)[grid](
        grad, nodes, bonds, epsilon, edges, codes, ptr, by_nodes, epsilon, *sizes, ROWS, COLUMNS, False
    )
    grid = (triton.cdiv(codes.shape[1], EDGES * TURNS), triton.cdiv(width, BOND_COLUMNS), tasks)
    wrap_triton(bonds_kernel)[grid](
        grad, nodes, bonds, edges, codes, ptr, by_bonds, *sizes,
        MOST_CODES, EDGES, BOND_COLUMNS, TURNS, dot_precision(nodes),
    )  # fmt: skip
    return by_nodes, by_bonds.to(bonds.dtype)


def dot_precision(nodes: Tensor) -> str:
    """How `bonds_kernel` multiplies features of a dtype."""
    return "ieee" if nodes.dtype == torch.float32 else "tf32"


def _define(name: str, function: Callable[..., Any]) -> Any:
    """Register an operator; without Triton one of another type, since Triton's warns that it is missing."""
    make = torch.library.custom_op if triton is None else torch.library.triton_op
    operator: Any = make(name, function, mutates_args=())
    operator.register_fake(function)
    return operator


_messages_operator = _define("mmb::messages", _compute_messages)
_adjoint_operator = _define("mmb::messages_adjoint", _compute_adjoint)


class _Operator(torch.autograd.Function):
    """An operator with its rules for derivatives (in reverse mode) and for `vmap`.

    They are rules of a function, since rules of an operator do not work inside `torch.func.grad`.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor | None, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *args: Tensor | None) -> Any:
        """Merge one more axis of tasks with the existing one."""

        def merge(arg: Tensor | None, dim: int | None) -> Tensor | None:
            if arg is None:
                return None
            moved = arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            return moved.flatten(0, 1)

        def apart(found: Tensor) -> Tensor:
            return found.reshape(info.batch_size, -1, *found.shape[1:])

        found = cls.apply(*map(merge, args, in_dims))  # type: ignore[no-untyped-call]
        if isinstance(found, Tensor):
            return apart(found), 0
        return tuple(map(apart, found)), (0,) * len(found)


class _Messages(_Operator):
    @staticmethod
    def forward(*inputs: Tensor | None) -> Any:
        return _messages_operator(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        epsilon, nodes, bonds, node_values, _, *index = ctx.saved_tensors
        found = messages_adjoint(epsilon, nodes, bonds, grad, *index)
        if node_values is None:
            return _product(grad, nodes, epsilon), *found, None, None, None, None, None
        return _product(grad, node_values, epsilon), None, None, *found, None, None, None


class _MessagesAdjoint(_Operator):
    @staticmethod
    def forward(*inputs: Tensor) -> Any:
        return _adjoint_operator(*inputs)

    @staticmethod
    def backward(ctx: Any, by_nodes: Tensor, by_bonds: Tensor) -> tuple[Tensor | None, ...]:
        epsilon, nodes, bonds, grad, *index = ctx.saved_tensors
        found = messages(epsilon, nodes, bonds, by_nodes, by_bonds, *index)
        return _product(grad, by_nodes, epsilon), None, None, found, None, None, None


def _product(grad: Tensor, values: Tensor, epsilon: Tensor) -> Tensor:
    """`sum(g h)` of each task."""
    return (_wide(grad[..., : values.shape[2]]) * values).sum((1, 2)).to(epsilon.dtype)


def _passed(nodes: Tensor, bonds: Tensor, edges: Tensor, codes: Tensor, ptr: Tensor) -> Tensor:
    """`M` of all edges that count, `bool [k, E, width]`."""
    real = torch.arange(codes.shape[1], device=codes.device) < ptr[:, -1:]
    return (_rows(nodes, edges[:, 0]) + _rows(bonds, codes) > 0) & real.unsqueeze(2)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    return table.gather(1, _columns(index, table.shape[2]))


def _columns(index: Tensor, width: int) -> Tensor:
    return index.unsqueeze(2).expand(-1, -1, width)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
