"""GPU kernels of `fused_layers`, which says what they compute; they need Triton.

Matrices are stored by rows with a constant stride, a multiple of eight columns, and are zero in columns of
padding. Rows from `real` on are padding, too. Sums over rows are written down for every block of rows and
added by the kernel that needs them, so results do not depend on the order in which programs run.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def product_kernel(
    a, b, out, sums, other, found, count, inner: tl.constexpr, outer: tl.constexpr,
    by_outer: tl.constexpr, by_inner: tl.constexpr, kind: tl.constexpr, precision: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """The product of a [count, inner] and b, whose strides are given; what is summed depends on the kind."""
    tiles = tl.cdiv(outer, columns)
    block = tl.program_id(0) // tiles
    row = block * rows + tl.arange(0, rows)
    column = (tl.program_id(0) % tiles) * columns + tl.arange(0, columns)
    here, inside = row < count, column < outer
    step = tl.arange(0, depth)
    from_a = a + row[:, None] * inner + step[None, :]
    from_b = b + step[:, None] * by_inner + column[None, :] * by_outer
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(0, inner, depth):
        left = inner - start
        left_a = tl.load(from_a, mask=here[:, None] & (step < left)[None, :], other=0)
        left_b = tl.load(from_b, mask=(step < left)[:, None] & inside[None, :], other=0)
        total = tl.dot(left_a, left_b, total, input_precision=precision)
        from_a += depth
        from_b += depth * by_inner
    place = row[:, None] * outer + column[None, :]
    both = here[:, None] & inside[None, :]
    if kind == "passed":  # the derivative of the relu of a normalized matrix
        value = tl.load(other + place, mask=both, other=0).to(tl.float32)
        scale = tl.load(found + column, mask=inside, other=0)
        shift = tl.load(found + outer + column, mask=inside, other=0)
        mean = tl.load(found + 2 * outer + column, mask=inside, other=0)
        inverse = tl.load(found + 3 * outer + column, mask=inside, other=0)
        total = tl.where(value * scale[None, :] + shift[None, :] > 0, total, 0.0)
        second = tl.sum(total * (value - mean[None, :]), 0) * inverse
    else:
        second = tl.sum(total * total, 0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=both)
    if kind != "plain":
        blocks = tl.cdiv(count, rows)
        tl.store(sums + block * outer + column, tl.sum(total, 0), mask=inside)
        tl.store(sums + (blocks + block) * outer + column, second, mask=inside)


@triton.jit(do_not_specialize=["count"])
def transposed_kernel(
    a, b, parts, count, left: tl.constexpr, right: tl.constexpr, pieces: tl.constexpr,
    precision: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """The product of the transpose of a [count, left] and b [count, right], of every piece of the rows."""
    tiles = tl.cdiv(right, columns)
    row = (tl.program_id(0) // tiles) * rows + tl.arange(0, rows)
    column = (tl.program_id(0) % tiles) * columns + tl.arange(0, columns)
    piece = tl.program_id(1)
    each = tl.cdiv(tl.cdiv(count, pieces), depth) * depth
    first = piece * each
    last = tl.minimum(first + each, count)
    step = tl.arange(0, depth)
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(first, last, depth):
        at = start + step
        on = at < last
        from_a = tl.load(
            a + at[:, None] * left + row[None, :], mask=on[:, None] & (row < left)[None, :], other=0
        )
        from_b = tl.load(
            b + at[:, None] * right + column[None, :], mask=on[:, None] & (column < right)[None, :], other=0
        )
        total = tl.dot(tl.trans(from_a), from_b, total, input_precision=precision)
    place = (piece * left + row)[:, None] * right + column[None, :]
    tl.store(parts + place, total, mask=(row < left)[:, None] & (column < right)[None, :])


@triton.jit
def add_parts_kernel(
    parts, out, high, wide, left: tl.constexpr, right: tl.constexpr, pieces: tl.constexpr, size: tl.constexpr
):
    """The sum over the parts [pieces, left, right], without padding: [high, wide]."""
    index = tl.program_id(0) * size + tl.arange(0, size)
    row, column = index // wide, index % wide
    inside = row < high
    total = tl.zeros((size,), tl.float32)
    for piece in range(pieces):
        total += tl.load(parts + (piece * left + row) * right + column, mask=inside, other=0)
    tl.store(out + index, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def pad_kernel(weight, out, high, wide, right: tl.constexpr, size: tl.constexpr, total):
    """A weight [high, wide] in the precision of the output, with columns and rows of padding."""
    index = tl.program_id(0) * size + tl.arange(0, size)
    row, column = index // right, index % right
    value = tl.load(weight + row * wide + column, mask=(row < high) & (column < wide), other=0)
    tl.store(out + index, value.to(out.dtype.element_ty), mask=index < total)


@triton.jit(do_not_specialize=["blocks"])
def statistics_kernel(
    sums, weight, bias, before, real, found, blocks, width, eps, stride: tl.constexpr, chunk: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    """Rows of what is found: scale, shift, mean, 1 / deviation; mean and variance that are averaged."""
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    inside = column < width
    first = tl.zeros((columns,), tl.float32)
    second = tl.zeros((columns,), tl.float32)
    for start in range(0, blocks, chunk):
        block = start + tl.arange(0, chunk)
        mask = (block < blocks)[:, None] & (column < stride)[None, :]
        place = block[:, None] * stride + column[None, :]
        first += tl.sum(tl.load(sums + place, mask=mask, other=0), 0)
        second += tl.sum(tl.load(sums + blocks * stride + place, mask=mask, other=0), 0)
    number = tl.maximum(tl.load(real), 1).to(tl.float32)
    mean = first / number
    variance = tl.maximum(second / number - mean * mean, 0.0)
    inverse = 1.0 / tl.sqrt(variance + eps)
    scale = inverse * tl.load(weight + column, mask=inside, other=0)
    shift = tl.load(bias + column, mask=inside, other=0) - mean * scale
    added = tl.load(before + column, mask=inside, other=0)
    least = tl.maximum(number, 2.0)
    tl.store(found + column, scale, mask=column < stride)
    tl.store(found + stride + column, shift, mask=column < stride)
    tl.store(found + 2 * stride + column, mean, mask=column < stride)
    tl.store(found + 3 * stride + column, inverse, mask=column < stride)
    tl.store(found + 4 * stride + column, mean + added, mask=column < stride)
    tl.store(found + 5 * stride + column, variance * (least / (least - 1.0)), mask=column < stride)


@triton.jit(do_not_specialize=["blocks"])
def gradients_kernel(
    sums, found, real, factors, by_weight, by_bias, blocks, width, stride: tl.constexpr,
    chunk: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """From sums of dy and dy xhat: gradients of weight and bias, and factors of `norm_backward_kernel`."""
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    inside = column < width
    first = tl.zeros((columns,), tl.float32)
    second = tl.zeros((columns,), tl.float32)
    for start in range(0, blocks, chunk):
        block = start + tl.arange(0, chunk)
        mask = (block < blocks)[:, None] & (column < stride)[None, :]
        place = block[:, None] * stride + column[None, :]
        first += tl.sum(tl.load(sums + place, mask=mask, other=0), 0)
        second += tl.sum(tl.load(sums + blocks * stride + place, mask=mask, other=0), 0)
    number = tl.maximum(tl.load(real), 1).to(tl.float32)
    scale = tl.load(found + column, mask=column < stride, other=0) / number
    inverse = tl.load(found + 3 * stride + column, mask=column < stride, other=0)
    tl.store(factors + column, -scale * inverse * second, mask=column < stride)
    tl.store(factors + stride + column, -scale * first, mask=column < stride)
    tl.store(by_weight + column, second, mask=inside)
    tl.store(by_bias + column, first, mask=inside)


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
    grad, value, row, start, column, found, real, seed, stride: tl.constexpr, relu: tl.constexpr,
    dropped: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """dy, from the gradient of dropout(relu(y)) with y = scale x + shift."""
    if relu:
        scale = tl.load(found + column, mask=column < stride, other=0)
        shift = tl.load(found + stride + column, mask=column < stride, other=0)
        grad = tl.where(value * scale[None, :] + shift[None, :] > 0, grad, 0.0)
    if dropped > 0:
        keep = kept(tl.load(seed), row, start, stride, columns, dropped)
        grad = tl.where(keep, grad * (65536.0 / (65536.0 - dropped)), 0.0)
    return tl.where((row < tl.load(real))[:, None], grad, 0.0)


@triton.jit(do_not_specialize=["count"])
def norm_sums_kernel(
    grad, x, found, sums, real, seed, count, stride: tl.constexpr, relu: tl.constexpr,
    dropped: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, turns: tl.constexpr,
):  # fmt: skip
    """The sums of dy and dy xhat of every block of rows."""
    start = tl.program_id(1) * columns
    column = start + tl.arange(0, columns)
    inside = column < stride
    mean = tl.load(found + 2 * stride + column, mask=inside, other=0)
    inverse = tl.load(found + 3 * stride + column, mask=inside, other=0)
    first = tl.zeros((columns,), tl.float32)
    second = tl.zeros((columns,), tl.float32)
    for turn in range(turns):
        row = (tl.program_id(0) * turns + turn) * rows + tl.arange(0, rows)
        mask = (row < count)[:, None] & inside[None, :]
        place = row[:, None] * stride + column[None, :]
        value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
        slope = tl.load(grad + place, mask=mask, other=0).to(tl.float32)
        slope = before_norm(
            slope, value, row, start, column, found, real, seed, stride, relu, dropped, columns
        )
        first += tl.sum(slope, 0)
        second += tl.sum(slope * (value - mean[None, :]), 0)
    block = tl.program_id(0)
    tl.store(sums + block * stride + column, first, mask=inside)
    tl.store(sums + (tl.num_programs(0) + block) * stride + column, second * inverse, mask=inside)


@triton.jit(do_not_specialize=["count"])
def norm_backward_kernel(
    grad, x, found, factors, out, real, seed, count, stride: tl.constexpr, relu: tl.constexpr,
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
    slope = before_norm(slope, value, row, start, column, found, real, seed, stride, relu, dropped, columns)
    scale = tl.load(found + column, mask=inside, other=0)
    mean = tl.load(found + 2 * stride + column, mask=inside, other=0)
    by_value = tl.load(factors + column, mask=inside, other=0)
    by_one = tl.load(factors + stride + column, mask=inside, other=0)
    result = slope * scale[None, :] + (value - mean[None, :]) * by_value[None, :] + by_one[None, :]
    result = tl.where((row < tl.load(real))[:, None], result, 0.0)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "edge_count"])
def gather_kernel(
    x, bonds, epsilon, edges, codes, ptr, real, out, count, edge_count, stride: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, ahead: tl.constexpr,
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


@triton.jit(do_not_specialize=["count", "edge_count"])
def scatter_kernel(
    grad, x, bonds, epsilon, edges, codes, ptr, real, out, parts, count, edge_count, known,
    stride: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, turns: tl.constexpr,
    ahead: tl.constexpr, kinds: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The gradient of x; and, by blocks of nodes, those of the bonds and, as one more bond, of epsilon."""
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = (column < stride)[None, :]
    last = tl.load(real)
    factor = 1.0 + tl.load(epsilon)
    kind = tl.arange(0, kinds)
    by_bonds = tl.zeros((kinds, columns), tl.float32)
    by_epsilon = tl.zeros((columns,), tl.float32)
    for turn in range(turns):
        node = (tl.program_id(0) * turns + turn) * rows + tl.arange(0, rows)
        here = node < last
        first = tl.load(ptr + node, mask=here, other=0).to(tl.int32)
        degree = tl.load(ptr + node + 1, mask=here, other=0).to(tl.int32) - first
        place = node[:, None] * stride + column[None, :]
        own = tl.load(x + place, mask=here[:, None] & inside, other=0).to(tl.float32)
        own_grad = tl.load(grad + place, mask=here[:, None] & inside, other=0).to(tl.float32)
        by_epsilon += tl.sum(own * own_grad, 0)
        total = factor * own_grad
        for start in range(0, tl.max(degree, 0), ahead):
            for number in tl.static_range(ahead):
                on = start + number < degree
                edge = tl.where(on, first + start + number, 0)
                neighbor = tl.load(edges + edge).to(tl.int32)
                code = tl.load(codes + edge).to(tl.int32)
                mask = on[:, None] & inside
                theirs = tl.load(grad + neighbor[:, None] * stride + column[None, :], mask=mask, other=0)
                bond = tl.load(bonds + code[:, None] * stride + column[None, :], mask=mask, other=0)
                passed = tl.where(own + bond.to(tl.float32) > 0, theirs, 0.0).to(theirs.dtype)
                total += passed.to(tl.float32)
                hot = (kind[:, None] == tl.where(on, code, -1)[None, :]).to(theirs.dtype)
                by_bonds = tl.dot(hot, passed, by_bonds, input_precision=precision)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=(node < count)[:, None] & inside)
    part = parts + tl.program_id(0) * (known + 1) * stride
    tl.store(part + kind[:, None] * stride + column[None, :], by_bonds, mask=(kind < known)[:, None] & inside)
    tl.store(part + known * stride + column, by_epsilon, mask=column < stride)


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
