"""Float32 arithmetic step by step: what a kernel computes can be replayed in numpy, bit for bit.

numpy's float32 +, -, *, / and sqrt round once, as the hardware does; only the fused multiply-add is
missing. Knows no kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
UNIT_ROUNDOFF = 2.0**-24  # of float32: the relative error of one rounding is at most this


def fma(a: Any, b: Any, c: Any) -> Floats:
    """Compute a * b + c of float32 with one rounding.

    In float64 the product is exact and the sum is not. It is rounded to odd, so that the rounding
    to float32 that follows meets no false tie: Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums", IEEE Transactions on Computers, 2008; 53 bits are more than 2 * 24 + 2.
    """
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)  # Knuth's two-sum: exact
    bits = total.view(np.int64)
    to_be_odd = (error != 0) & (bits & 1 == 0)
    away_from_zero = np.where((error > 0) == (total > 0), 1, -1)
    return (bits + to_be_odd * away_from_zero).view(np.float64).astype(np.float32)


def reduce_lanes(x: Floats, op: np.ufunc) -> Floats:
    """Join 16 lanes (..., 16) by the tree all kernels use: lane i with lane i + 8, then 4, 2, 1."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = op(x[..., :half], x[..., half:])
    return x[..., 0]


def assert_same_bits(actual: Floats, expected: Floats) -> None:
    """Compare as bits: 0 is not -0, and a NaN equals itself."""
    assert actual.dtype == expected.dtype == np.float32
    assert actual.shape == expected.shape
    differs = actual.view(np.uint32) != expected.view(np.uint32)
    if differs.any():
        where = tuple(int(i) for i in np.argwhere(differs)[0])
        raise AssertionError(
            f"{int(differs.sum())} of {differs.size} values differ, the first at {where}: "
            f"{float(actual[where]).hex()} for {float(expected[where]).hex()}"
        )
