"""GPU kernels of `fused_layers`, which says what they compute; they need Triton.

Matrices are stored by rows with a constant stride, a multiple of sixteen columns, and are zero in columns of
padding. Rows from `real` on are padding, too. Sums over rows are written down for every block of rows; the
program that is the last to do so adds them, so results do not depend on the order in which programs run.
"""

import triton
import triton.language as tl


@triton.jit
def is_last(sums, done, first, second, column, inside, stride: tl.constexpr):
    """Write the sums of a block of rows down; whether those of all other blocks have been."""
    place = sums + tl.program_id(0) * stride + column
    tl.store(place, tl.sum(first, 0), mask=inside)
    tl.store(place + tl.num_programs(0) * stride, tl.sum(second, 0), mask=inside)
    tl.debug_barrier()
    return tl.atomic_add(done + tl.program_id(1), 1) == tl.num_programs(0) - 1


@triton.jit
def added(sums, done, column, inside, stride: tl.constexpr, chunk: tl.constexpr, columns: tl.constexpr):
    """The sums over all blocks of rows; the counter is set back for the next kernel."""
    blocks = tl.num_programs(0)
    first = tl.zeros((chunk, columns), tl.float32)
    second = tl.zeros((chunk, columns), tl.float32)
    for start in range(0, blocks, chunk):
        block = start + tl.arange(0, chunk)
        mask = (block < blocks)[:, None] & inside[None, :]
        place = sums + block[:, None] * stride + column[None, :]
        first += tl.load(place, mask=mask, other=0, cache_modifier=".cg")
        second += tl.load(place + blocks * stride, mask=mask, other=0, cache_modifier=".cg")
    tl.store(done + tl.program_id(1), 0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def statistics_kernel(
    x, sums, done, weight, bias, before, real, found, each, width, eps, stride: tl.constexpr,
    rows: tl.constexpr, ahead: tl.constexpr, columns: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Rows of what is found: scale, shift, mean, 1 / deviation; mean and variance that are averaged."""
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < stride
    number = tl.load(real).to(tl.int32)
    last = tl.minimum((tl.program_id(0) + 1) * each, number)
    first = tl.zeros((rows, columns), tl.float32)
    second = tl.zeros((rows, columns), tl.float32)
    for start in range(tl.program_id(0) * each, last, rows * ahead):
        for turn in tl.static_range(ahead):
            row = start + turn * rows + tl.arange(0, rows)
            mask = (row < last)[:, None] & inside[None, :]
            value = tl.load(x + row[:, None] * stride + column[None, :], mask=mask, other=0).to(tl.float32)
            first += value
            second += value * value
    if is_last(sums, done, first, second, column, inside, stride):
        total, squares = added(sums, done, column, inside, stride, chunk, columns)
        count = tl.maximum(number, 1).to(tl.float32)
        mean = total / count
        variance = tl.maximum(squares / count - mean * mean, 0.0)
        inverse = 1.0 / tl.sqrt(variance + eps)
        known = column < width
        scale = inverse * tl.load(weight + column, mask=known, other=0)
        shift = tl.load(bias + column, mask=known, other=0) - mean * scale
        moved = mean + tl.load(before + column, mask=known, other=0)
        least = tl.maximum(count, 2.0)
        tl.store(found + column, scale, mask=inside)
        tl.store(found + stride + column, shift, mask=inside)
        tl.store(found + 2 * stride + column, mean, mask=inside)
        tl.store(found + 3 * stride + column, inverse, mask=inside)
        tl.store(found + 4 * stride + column, moved, mask=inside)
        tl.store(found + 5 * stride + column, variance * (least / (least - 1.0)), mask=inside)


@triton.jit
def copied(source, out, high, wide, rows, by_row: tl.constexpr, columns: tl.constexpr, size: tl.constexpr):
    """A matrix [high, wide] as one of another size and precision, with zeros where there is none."""
    index = tl.program_id(0) * size + tl.arange(0, size)
    row, column = index // columns, index % columns
    value = tl.load(source + row * by_row + column, mask=(row < high) & (column < wide), other=0)
    tl.store(out + index, value.to(out.dtype.element_ty), mask=row < rows)


@triton.jit
def copy_kernel(
    one, other, out_one, out_other, done, high, wide, rows_one, rows_other, by_row_one: tl.constexpr,
    by_row_other: tl.constexpr, columns_one: tl.constexpr, columns_other: tl.constexpr,
    counters: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Copies of two weights, [high, wide] and [wide, high]; counters of later kernels are set to zero."""
    if tl.program_id(1) == 0:
        copied(one, out_one, high, wide, rows_one, by_row_one, columns_one, size)
    else:
        copied(other, out_other, wide, high, rows_other, by_row_other, columns_other, size)
    if counters > 0 and tl.program_id(0) + tl.program_id(1) == 0:
        tl.store(done + tl.arange(0, counters), tl.zeros((counters,), tl.int32))


@triton.jit
def kept(seed, row, start, stride: tl.constexpr, columns: tl.constexpr, dropped: tl.constexpr):
    """Which features of some rows, from a column on, are not dropped: `dropped` out of 65,536 are."""
    eighth = start // 8 + tl.arange(0, columns // 8)
    counter = row[:, None] * (stride // 8) + eighth[None, :]
    one, two, three, four = tl.randint4x(seed, counter)
    low = tl.join(tl.join(one & 0xFFFF, two & 0xFFFF), tl.join(three & 0xFFFF, four & 0xFFFF))
    high = tl.join(tl.join(one >> 16, two >> 16), tl.join(three >> 16, four >> 16))
    return tl.reshape(tl.join(low, high), (row.shape[0], columns)) >= dropped


@triton.jit(do_not_specialize=["count"])
def norm_kernel(
    x, found, out, real, seed, count, stride: tl.constexpr, relu: tl.constexpr, dropped: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """dropout(relu(scale x + shift)), zero in rows of padding."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    start = tl.program_id(1) * columns
    column = start + tl.arange(0, columns)
    inside = column < stride
    mask = (row < count)[:, None] & inside[None, :]
    place = row[:, None] * stride + column[None, :]
    value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
    scale = tl.load(found + column, mask=inside, other=0)
    shift = tl.load(found + stride + column, mask=inside, other=0)
    value = value * scale[None, :] + shift[None, :]
    if relu:
        value = tl.maximum(value, 0.0)
    if dropped > 0:
        keep = kept(tl.load(seed), row, start, stride, columns, dropped)
        value = tl.where(keep, value * (65536.0 / (65536.0 - dropped)), 0.0)
    value = tl.where((row < tl.load(real))[:, None], value, 0.0)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def before_norm(
    grad, value, row, start, column, found, seed, times, stride: tl.constexpr, relu: tl.constexpr,
    dropped: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """dy, from the gradient of dropout(relu(y)) with y = scale x + shift, if given, and a factor."""
    if relu:
        scale = tl.load(found + column, mask=column < stride, other=0)
        shift = tl.load(found + stride + column, mask=column < stride, other=0)
        grad = tl.where(value * scale[None, :] + shift[None, :] > 0, grad, 0.0)
    if dropped > 0:
        grad = tl.where(kept(tl.load(seed), row, start, stride, columns, dropped), grad, 0.0)
    return grad * times


@triton.jit
def gradients_kernel(
    grad, x, found, sums, done, real, seed, factors, by_weight, by_bias, by_before, each, width, times,
    stride: tl.constexpr, relu: tl.constexpr, dropped: tl.constexpr, rows: tl.constexpr,
    ahead: tl.constexpr, columns: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """From sums of dy and dy xhat: gradients of weight and bias, and factors of `norm_backward_kernel`."""
    begin = tl.program_id(1) * columns
    column = begin + tl.arange(0, columns)
    inside = column < stride
    number = tl.load(real).to(tl.int32)
    last = tl.minimum((tl.program_id(0) + 1) * each, number)
    mean = tl.load(found + 2 * stride + column, mask=inside, other=0)
    first = tl.zeros((rows, columns), tl.float32)
    second = tl.zeros((rows, columns), tl.float32)
    for start in range(tl.program_id(0) * each, last, rows * ahead):
        for turn in tl.static_range(ahead):
            row = start + turn * rows + tl.arange(0, rows)
            mask = (row < last)[:, None] & inside[None, :]
            place = row[:, None] * stride + column[None, :]
            value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
            slope = tl.load(grad + place, mask=mask, other=0).to(tl.float32)
            slope = before_norm(
                slope, value, row, begin, column, found, seed, times, stride, relu, dropped, columns
            )
            first += slope
            second += slope * (value - mean[None, :])
    if is_last(sums, done, first, second, column, inside, stride):
        total, product = added(sums, done, column, inside, stride, chunk, columns)
        count = tl.maximum(number, 1).to(tl.float32)
        inverse = tl.load(found + 3 * stride + column, mask=inside, other=0)
        scale = tl.load(found + column, mask=inside, other=0) / count
        product = product * inverse
        known = column < width
        tl.store(factors + column, -scale * inverse * product, mask=inside)
        tl.store(factors + stride + column, -scale * total, mask=inside)
        tl.store(by_weight + column, product, mask=known)
        tl.store(by_bias + column, total, mask=known)
        tl.store(by_before + column, 0.0, mask=known)


@triton.jit(do_not_specialize=["count"])
def norm_backward_kernel(
    grad, x, found, factors, out, real, seed, count, times, stride: tl.constexpr, relu: tl.constexpr,
    dropped: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """The gradient of x, zero in rows of padding: a sum of dy, x - mean and one, each with a factor."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    start = tl.program_id(1) * columns
    column = start + tl.arange(0, columns)
    inside = column < stride
    mask = (row < count)[:, None] & inside[None, :]
    place = row[:, None] * stride + column[None, :]
    value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
    slope = tl.load(grad + place, mask=mask, other=0).to(tl.float32)
    slope = before_norm(slope, value, row, start, column, found, seed, times, stride, relu, dropped, columns)
    scale = tl.load(found + column, mask=inside, other=0)
    mean = tl.load(found + 2 * stride + column, mask=inside, other=0)
    by_value = tl.load(factors + column, mask=inside, other=0)
    by_one = tl.load(factors + stride + column, mask=inside, other=0)
    result = slope * scale[None, :] + (value - mean[None, :]) * by_value[None, :] + by_one[None, :]
    result = tl.where((row < tl.load(real))[:, None], result, 0.0)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count"])
def gather_kernel(
    x, bonds, epsilon, edges, codes, ptr, real, out, count, stride: tl.constexpr, rows: tl.constexpr,
    columns: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """(1 + epsilon) x and the sum of the messages, zero in rows of padding; `ahead` neighbors at once."""
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = (column < stride)[None, :]
    here = node < tl.load(real)
    first = tl.load(ptr + node, mask=here, other=0).to(tl.int32)
    degree = tl.load(ptr + node + 1, mask=here, other=0).to(tl.int32) - first
    place = node[:, None] * stride + column[None, :]
    own = tl.load(x + place, mask=here[:, None] & inside, other=0).to(tl.float32)
    total = (1.0 + tl.load(epsilon)) * own
    for start in range(0, tl.max(degree, 0), ahead):
        for number in tl.static_range(ahead):
            on = start + number < degree
            edge = tl.where(on, first + start + number, 0)
            neighbor = tl.load(edges + edge).to(tl.int32)
            code = tl.load(codes + edge).to(tl.int32)
            mask = on[:, None] & inside
            feature = tl.load(x + neighbor[:, None] * stride + column[None, :], mask=mask, other=0)
            bond = tl.load(bonds + code[:, None] * stride + column[None, :], mask=mask, other=0)
            total += tl.maximum(feature.to(tl.float32) + bond.to(tl.float32), 0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=(node < count)[:, None] & inside)


@triton.jit(do_not_specialize=["count"])
def scatter_kernel(
    grad, x, bonds, epsilon, edges, codes, ptr, real, out, by_epsilon, count, stride: tl.constexpr,
    passed: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """The gradients of x, where it is positive if only what passed a relu counts, and of epsilon."""
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = (column < stride)[None, :]
    here = node < tl.load(real)
    first = tl.load(ptr + node, mask=here, other=0).to(tl.int32)
    degree = tl.load(ptr + node + 1, mask=here, other=0).to(tl.int32) - first
    place = node[:, None] * stride + column[None, :]
    own = tl.load(x + place, mask=here[:, None] & inside, other=0).to(tl.float32)
    own_grad = tl.load(grad + place, mask=here[:, None] & inside, other=0).to(tl.float32)
    tl.atomic_add(by_epsilon, tl.sum(own * own_grad), sem="relaxed")
    total = (1.0 + tl.load(epsilon)) * own_grad
    for start in range(0, tl.max(degree, 0), ahead):
        for number in tl.static_range(ahead):
            on = start + number < degree
            edge = tl.where(on, first + start + number, 0)
            neighbor = tl.load(edges + edge).to(tl.int32)
            code = tl.load(codes + edge).to(tl.int32)
            mask = on[:, None] & inside
            theirs = tl.load(grad + neighbor[:, None] * stride + column[None, :], mask=mask, other=0)
            bond = tl.load(bonds + code[:, None] * stride + column[None, :], mask=mask, other=0)
            total += tl.where(own + bond.to(tl.float32) > 0, theirs.to(tl.float32), 0.0)
    if passed:
        total = tl.where(own > 0, total, 0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=(node < count)[:, None] & inside)


@triton.jit(do_not_specialize=["edge_count"])
def bonds_kernel(
    grad, x, bonds, edges, codes, ptr, real, by_bonds, edge_count, known, stride: tl.constexpr,
    kinds: tl.constexpr, chunk: tl.constexpr, columns: tl.constexpr, turns: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """The gradient of the bonds: sums over edges by code, as products with ones and zeros."""
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = (column < stride)[None, :]
    kind = tl.arange(0, kinds)
    last = tl.load(ptr + tl.load(real)).to(tl.int32)  # edges of padding come after these
    total = tl.zeros((kinds, columns), tl.float32)
    begin = tl.program_id(0) * turns * chunk
    for start in range(begin, tl.minimum(begin + turns * chunk, last), chunk):
        edge = start + tl.arange(0, chunk)
        on = edge < last
        # The reversed edge, from its target to its source.
        sender = tl.load(edges + edge_count + edge, mask=on, other=0).to(tl.int32)
        receiver = tl.load(edges + edge, mask=on, other=0).to(tl.int32)
        code = tl.load(codes + edge, mask=on, other=0).to(tl.int32)
        mask = on[:, None] & inside
        feature = tl.load(x + sender[:, None] * stride + column[None, :], mask=mask, other=0)
        bond = tl.load(bonds + code[:, None] * stride + column[None, :], mask=mask, other=0)
        theirs = tl.load(grad + receiver[:, None] * stride + column[None, :], mask=mask, other=0)
        sent = tl.where(feature.to(tl.float32) + bond.to(tl.float32) > 0, theirs, 0.0).to(theirs.dtype)
        hot = (kind[:, None] == code[None, :]).to(theirs.dtype)
        total = tl.dot(hot, sent, total, input_precision=precision)
    mask = (kind < known)[:, None] & inside & (total != 0)
    tl.atomic_add(by_bonds + kind[:, None] * stride + column[None, :], total, mask=mask, sem="relaxed")


@triton.jit(do_not_specialize=["count", "edge_count"])
def both_kernel(
    grad, x, bonds, epsilon, edges, codes, ptr, real, out, by_bonds, count, edge_count, known,
    stride: tl.constexpr, passed: tl.constexpr, kinds: tl.constexpr, rows: tl.constexpr,
    chunk: tl.constexpr, columns: tl.constexpr, turns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """`scatter_kernel` and `bonds_kernel` in one, which reads what each edge brings once."""
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = (column < stride)[None, :]
    kind = tl.arange(0, kinds)
    number = tl.load(real).to(tl.int32)
    factor = 1.0 + tl.load(epsilon)
    by_kind = tl.zeros((kinds, columns), tl.float32)
    by_epsilon = tl.zeros((rows, columns), tl.float32)
    for turn in range(turns):
        begin = (tl.program_id(0) * turns + turn) * rows
        node = begin + tl.arange(0, rows)
        first = tl.load(ptr + tl.minimum(begin, number)).to(tl.int32)
        last = tl.load(ptr + tl.minimum(begin + rows, number)).to(tl.int32)
        total = tl.zeros((rows, columns), tl.float32)
        for start in range(first, last, chunk):
            edge = start + tl.arange(0, chunk)
            on = edge < last
            sender = tl.load(edges + edge_count + edge, mask=on, other=0).to(tl.int32)
            receiver = tl.load(edges + edge, mask=on, other=0).to(tl.int32)
            code = tl.load(codes + edge, mask=on, other=0).to(tl.int32)
            mask = on[:, None] & inside
            feature = tl.load(x + sender[:, None] * stride + column[None, :], mask=mask, other=0)
            bond = tl.load(bonds + code[:, None] * stride + column[None, :], mask=mask, other=0)
            theirs = tl.load(grad + receiver[:, None] * stride + column[None, :], mask=mask, other=0)
            sent = tl.where(feature.to(tl.float32) + bond.to(tl.float32) > 0, theirs, 0.0).to(theirs.dtype)
            owner = (node[:, None] == sender[None, :]).to(theirs.dtype)
            total = tl.dot(owner, sent, total, input_precision=precision)
            hot = (kind[:, None] == code[None, :]).to(theirs.dtype)
            by_kind = tl.dot(hot, sent, by_kind, input_precision=precision)
        place = node[:, None] * stride + column[None, :]
        here = (node < number)[:, None] & inside
        own = tl.load(x + place, mask=here, other=0).to(tl.float32)
        own_grad = tl.load(grad + place, mask=here, other=0).to(tl.float32)
        by_epsilon += own * own_grad
        total += factor * own_grad
        if passed:
            total = tl.where(own > 0, total, 0.0)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=(node < count)[:, None] & inside)
    mask = (kind < known)[:, None] & inside & (by_kind != 0)
    tl.atomic_add(by_bonds + kind[:, None] * stride + column[None, :], by_kind, mask=mask, sem="relaxed")
    tl.atomic_add(by_bonds + known * stride, tl.sum(by_epsilon), sem="relaxed")


@triton.jit
def mean_kernel(x, ptr, out, stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """Means over the nodes of a graph."""
    graph = tl.program_id(0)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < stride
    first = tl.load(ptr + graph).to(tl.int32)
    last = tl.load(ptr + graph + 1).to(tl.int32)
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(first, last, rows):
        node = start + tl.arange(0, rows)
        mask = (node < last)[:, None] & inside[None, :]
        total += tl.load(x + node[:, None] * stride + column[None, :], mask=mask, other=0).to(tl.float32)
    mean = tl.sum(total, 0) / tl.maximum(last - first, 1).to(tl.float32)
    tl.store(out + graph * stride + column, mean.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["count", "graphs"])
def mean_backward_kernel(
    grad, graph, ptr, out, count, graphs, stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):
    """The gradient of a graph's mean for each of its nodes; zero for nodes of other graphs, the last ones."""
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = (column < stride)[None, :]
    owner = tl.load(graph + node, mask=node < count, other=0).to(tl.int32)
    here = (node < count) & (owner < graphs)
    first = tl.load(ptr + owner, mask=here, other=0)
    size = tl.load(ptr + owner + 1, mask=here, other=1) - first
    mask = here[:, None] & inside
    value = tl.load(grad + owner[:, None] * stride + column[None, :], mask=mask, other=0).to(tl.float32)
    value = value / size.to(tl.float32)[:, None]
    place = out + node[:, None] * stride + column[None, :]
    tl.store(place, value.to(out.dtype.element_ty), mask=(node < count)[:, None] & inside)
