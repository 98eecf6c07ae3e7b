"""Scores as integers in falling order, and the sort of each task's entries by them."""

import torch
from torch import Tensor

from mmb._threads import one_thread

_LONG = 2**15  # torch sorts shorter lists by comparison


def encode(scores: Tensor) -> Tensor:
    """A new contiguous integer tensor in FALLING order of the scores: integers sort faster than floats.

    The bits of a nonnegative float, read as an integer, are in the order of the floats; those of a negative
    one are in reverse order, so all but the sign are flipped. The greatest integer is free for missing
    entries: in floats it is the code of a NaN, in integers the checks refuse it.
    """
    if not scores.is_floating_point():
        return scores.to(torch.int64, copy=True, memory_format=torch.contiguous_format).bitwise_not_()
    # Adding 0.0 turns -0.0, which equals 0.0 but has other bits, into 0.0.
    bits = scores.clone(memory_format=torch.contiguous_format).add_(0.0)
    return _flip_negative(bits.view(_INTEGER[bits.dtype])).bitwise_not_()


def decode(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The scores of dtype `dtype` behind the keys, in that dtype (float64 for integers)."""
    keys = keys.bitwise_not()
    return _flip_negative(keys).view(dtype) if dtype.is_floating_point else keys.double()


def sort_rows(keys: Tensor, positive: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each row of `[m, n]` by rising key, and keep the first `counts` `[m]` entries, row after row."""
    if _radix_is_best(keys):
        return _sort_by_radix(keys, positive, counts)
    keys, order = keys.sort(dim=1)
    positive = positive.gather(1, order)
    if bool((counts == keys.shape[1]).all()):
        return keys.flatten(), positive.flatten()
    kept = torch.arange(keys.shape[1], device=keys.device) < counts[:, None]
    return keys[kept], positive[kept]


def _radix_is_best(keys: Tensor) -> bool:
    """Whether to sort rows one by one: on a CPU with few threads, if they are long.

    There torch (built with FBGEMM) sorts one long list of integers by radix, which is faster than to sort
    the rows of a matrix by comparison. But that sort uses all threads, while those of a radix sort wait for
    one another, so that it is fastest with one.
    """
    return (
        keys.device.type == "cpu"
        and keys.shape[1] >= _LONG
        and torch.get_num_threads() <= 4
        and "fbgemm" in torch.backends.quantized.supported_engines
    )


def _sort_by_radix(keys: Tensor, positive: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    found = []
    with one_thread():
        for key, mark, count in zip(keys, positive, counts.tolist(), strict=True):
            ordered, order = key.sort()
            found.append((ordered[:count], mark[order[:count]]))
        sorted_keys, marks = zip(*found, strict=True)
        return torch.cat(sorted_keys), torch.cat(marks)


def _flip_negative(bits: Tensor) -> Tensor:
    info = torch.iinfo(bits.dtype)
    return bits.bitwise_xor_((bits >> (info.bits - 1)).bitwise_and_(info.max))


_INTEGER = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
