"""The GPU kernels of `mmb.models.fused_messages`, which says what they compute; they need Triton.

Each program handles some nodes (or edges) and some columns; the loop over neighbours runs as often as the
busiest of its nodes has some.
"""

import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    x, bonds, epsilon, source, codes, ptr, out, count,
    width: tl.constexpr, stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    here = node < count
    inside = column < width
    start = tl.load(ptr + node, mask=here, other=0)
    degree = tl.load(ptr + node + 1, mask=here, other=0) - start
    place = node.to(tl.int64)[:, None] * width + column[None, :]
    both = here[:, None] & inside[None, :]
    total = (1.0 + tl.load(epsilon).to(tl.float32)) * tl.load(x + place, mask=both, other=0).to(tl.float32)
    for number in range(tl.max(degree, 0)):
        on = number < degree
        neighbour = tl.load(source + start + number, mask=on, other=0)
        code = tl.load(codes + start + number, mask=on, other=0)
        mask = on[:, None] & inside[None, :]
        feature = tl.load(x + neighbour[:, None] * width + column[None, :], mask=mask, other=0)
        bond = tl.load(bonds + code[:, None] * width + column[None, :], mask=mask, other=0)
        total += tl.maximum(feature.to(tl.float32) + bond.to(tl.float32), 0.0)
    wide = here[:, None] & (column < stride)[None, :]
    out_place = node.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(out + out_place, total.to(out.dtype.element_ty), mask=wide)


@triton.jit
def backward_kernel(
    grad, x, bonds, epsilon, source, codes, ptr, grad_x, grad_epsilon, count,
    width: tl.constexpr, stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    here = node < count
    inside = column < width
    start = tl.load(ptr + node, mask=here, other=0)
    degree = tl.load(ptr + node + 1, mask=here, other=0) - start
    place = node.to(tl.int64)[:, None] * width + column[None, :]
    both = here[:, None] & inside[None, :]
    own = tl.load(x + place, mask=both, other=0).to(tl.float32)
    grad_place = node.to(tl.int64)[:, None] * stride + column[None, :]
    own_grad = tl.load(grad + grad_place, mask=both, other=0).to(tl.float32)
    tl.atomic_add(grad_epsilon, tl.sum(own * own_grad))
    total = (1.0 + tl.load(epsilon).to(tl.float32)) * own_grad
    for number in range(tl.max(degree, 0)):
        on = number < degree
        neighbour = tl.load(source + start + number, mask=on, other=0)
        code = tl.load(codes + start + number, mask=on, other=0)
        mask = on[:, None] & inside[None, :]
        theirs = tl.load(grad + neighbour[:, None] * stride + column[None, :], mask=mask, other=0)
        bond = tl.load(bonds + code[:, None] * width + column[None, :], mask=mask, other=0)
        total += tl.where(own + bond.to(tl.float32) > 0, theirs.to(tl.float32), 0.0)
    tl.store(grad_x + place, total.to(grad_x.dtype.element_ty), mask=both)


@triton.jit
def bonds_kernel(
    grad, x, bonds, source, target, codes, grad_bonds, count, known,
    width: tl.constexpr, stride: tl.constexpr, kinds: tl.constexpr, edges: tl.constexpr,
    columns: tl.constexpr, turns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < width
    kind = tl.arange(0, kinds)
    total = tl.zeros((kinds, columns), tl.float32)
    for turn in range(turns):
        edge = (tl.program_id(0) * turns + turn) * edges + tl.arange(0, edges)
        on = edge < count
        # The edge turned round: from its target to its source.
        sender = tl.load(target + edge, mask=on, other=0)
        receiver = tl.load(source + edge, mask=on, other=0)
        code = tl.load(codes + edge, mask=on, other=0)
        mask = on[:, None] & inside[None, :]
        feature = tl.load(x + sender[:, None] * width + column[None, :], mask=mask, other=0)
        bond = tl.load(bonds + code[:, None] * width + column[None, :], mask=mask, other=0)
        theirs = tl.load(grad + receiver[:, None] * stride + column[None, :], mask=mask, other=0)
        passed = tl.where(feature.to(tl.float32) + bond.to(tl.float32) > 0, theirs, 0.0)
        hot = (kind[:, None] == code[None, :]).to(theirs.dtype)
        total = tl.dot(hot, passed.to(theirs.dtype), total, input_precision=precision)
    place = kind[:, None] * width + column[None, :]
    tl.atomic_add(grad_bonds + place, total, mask=(kind < known)[:, None] & inside[None, :])
