"""GPU kernels of `message_passing` and `message_operators`, which say what they compute; they need Triton.

Each program handles some nodes (or edges) and some columns of one task; the loop over neighbors runs as often
as its node with the most neighbors has them. Tasks lie one after another in memory, and indices count within
the task. Triton would compile a kernel again for sizes that are multiples of 16, in the middle of training.
"""

import triton
import triton.language as tl

_SIZES = ["count", "edge_count", "known"]


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
    x, bonds, values, bond_values, epsilon, edges, codes, ptr, out, count, edge_count, known,
    width: tl.constexpr, stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    same: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(2).to(tl.int64)
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    x += task * count * width
    values += task * count * width
    bonds += task * known * width
    bond_values += task * known * width
    source = edges + task * 2 * edge_count
    codes += task * edge_count
    ptr += task * (count + 1)
    here = node < count
    inside = column < width
    start = tl.load(ptr + node, mask=here, other=0)
    degree = tl.load(ptr + node + 1, mask=here, other=0) - start
    place = node.to(tl.int64)[:, None] * width + column[None, :]
    both = here[:, None] & inside[None, :]
    own = tl.load(values + place, mask=both, other=0).to(tl.float32)
    total = (1.0 + tl.load(epsilon + task).to(tl.float32)) * own
    for number in range(tl.max(degree, 0)):
        on = number < degree
        neighbor = tl.load(source + start + number, mask=on, other=0)
        code = tl.load(codes + start + number, mask=on, other=0)
        mask = on[:, None] & inside[None, :]
        from_node = neighbor[:, None] * width + column[None, :]
        from_bond = code[:, None] * width + column[None, :]
        feature = tl.load(x + from_node, mask=mask, other=0).to(tl.float32)
        reached = feature + tl.load(bonds + from_bond, mask=mask, other=0).to(tl.float32)
        if same:
            total += tl.maximum(reached, 0.0)
        else:
            value = tl.load(values + from_node, mask=mask, other=0).to(tl.float32)
            value += tl.load(bond_values + from_bond, mask=mask, other=0).to(tl.float32)
            total += tl.where(reached > 0, value, 0.0)
    wide = here[:, None] & (column < stride)[None, :]
    out_place = (task * count + node)[:, None] * stride + column[None, :]
    tl.store(out + out_place, total.to(out.dtype.element_ty), mask=wide)


@triton.jit(do_not_specialize=_SIZES)
def backward_kernel(
    grad, x, bonds, epsilon, edges, codes, ptr, grad_x, grad_epsilon, count, edge_count, known,
    width: tl.constexpr, stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    with_epsilon: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(2).to(tl.int64)
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    grad += task * count * stride
    bonds += task * known * width
    source = edges + task * 2 * edge_count
    codes += task * edge_count
    ptr += task * (count + 1)
    here = node < count
    inside = column < width
    start = tl.load(ptr + node, mask=here, other=0)
    degree = tl.load(ptr + node + 1, mask=here, other=0) - start
    place = (task * count + node)[:, None] * width + column[None, :]
    both = here[:, None] & inside[None, :]
    own = tl.load(x + place, mask=both, other=0).to(tl.float32)
    grad_place = node.to(tl.int64)[:, None] * stride + column[None, :]
    own_grad = tl.load(grad + grad_place, mask=both, other=0).to(tl.float32)
    if with_epsilon:
        tl.atomic_add(grad_epsilon + task, tl.sum(own * own_grad))
    total = (1.0 + tl.load(epsilon + task).to(tl.float32)) * own_grad
    for number in range(tl.max(degree, 0)):
        on = number < degree
        neighbor = tl.load(source + start + number, mask=on, other=0)
        code = tl.load(codes + start + number, mask=on, other=0)
        mask = on[:, None] & inside[None, :]
        theirs = tl.load(grad + neighbor[:, None] * stride + column[None, :], mask=mask, other=0)
        bond = tl.load(bonds + code[:, None] * width + column[None, :], mask=mask, other=0)
        total += tl.where(own + bond.to(tl.float32) > 0, theirs.to(tl.float32), 0.0)
    tl.store(grad_x + place, total.to(grad_x.dtype.element_ty), mask=both)


@triton.jit(do_not_specialize=_SIZES)
def bonds_kernel(
    grad, x, bonds, edges, codes, ptr, grad_bonds, count, edge_count, known,
    width: tl.constexpr, stride: tl.constexpr, kinds: tl.constexpr, chunk: tl.constexpr,
    columns: tl.constexpr, turns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    grad += task * count * stride
    x += task * count * width
    bonds += task * known * width
    source = edges + task * 2 * edge_count
    target = source + edge_count
    codes += task * edge_count
    real = tl.load(ptr + task * (count + 1) + count)  # edges of padding come after these
    inside = column < width
    kind = tl.arange(0, kinds)
    total = tl.zeros((kinds, columns), tl.float32)
    for turn in range(turns):
        edge = (tl.program_id(0) * turns + turn) * chunk + tl.arange(0, chunk)
        on = edge < real
        # The reversed edge, from its target to its source.
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
    place = (task * known + kind)[:, None] * width + column[None, :]
    tl.atomic_add(grad_bonds + place, total, mask=(kind < known)[:, None] & inside[None, :])
