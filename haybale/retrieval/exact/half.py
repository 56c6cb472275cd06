"""Products with float16 passages on tensor cores, and how far they may be off.

**The queries.** They are float32, tensor cores take two float16. So each query row is scaled by a power of two until
its largest value lies in [2^14, 2^15), which loses only values 2^-140 of it, and split: q = hi + lo + r, hi the float16
next to q, lo the one next to q − hi (that difference is exact in float32: both are multiples of q's last bit). hi keeps
11 bits, lo another 11, or is a multiple of float16's least step 2^-24; so |r_i| ≤ 2^-22 |q_i| + 2^-25, and since the
largest value is at least 2^14, |r| ≤ (2^-22 + √d 2^-39) |q|. No hi is beyond 2^15, where float16 ends at 65504; no
score is beyond d · 2^31, which is far from the end of float32. With hi alone, |q − hi| ≤ (2^-11 + √d 2^-39) |q|.

**The sums.** A product of two float16 is exact in float32 (22 bits, and exponents far inside), subnormals included,
which tensor cores take as they are. They add with truncation, the addends of a block aligned to the greatest of them
(Fasi, Higham, Mikaitis & Pranesh 2021, "Numerical behavior of NVIDIA tensor cores"): with blocks of four or more, a
block of b products loses at most (b + 2) 2^-23 times the sum of the magnitudes, and so d of them (d + 4) 2^-22, which
is more than four times a float32 sum in any order, so a library that adds in another way is inside as well. The parts
add up to less than (1.001 d + 8) 2^-22 · |q| · |p|, by Cauchy and Schwarz, for hi and lo together; with hi alone
2^-11 and √d 2^-39 come on top. Scaling back is exact unless the score is below 2^-126, where no float32 tells more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from haybale.vectors import array_namespace


def scaled(queries: Any) -> tuple[Any, Any]:
    """Each row (m, d) times a power of two, its largest magnitude then in [2^14, 2^15); and (m, 1) the exponents.

    A zero row stays zero.

    >>> scaled(np.array([[1.0, -3.0], [0.0, 0.0]], dtype=np.float32))
    (array([[  8192., -24576.],
           [     0.,      0.]], dtype=float32), array([[13],
           [15]], dtype=int32))
    """
    xp = array_namespace(queries)
    _, exponents = xp.frexp(xp.abs(queries).max(axis=1, keepdims=True))
    exponents = (15 - exponents).astype(np.int32)
    # In two steps: a subnormal row asks for a factor that float32 does not hold.
    first = exponents // 2
    return xp.ldexp(xp.ldexp(queries, first), exponents - first), exponents


def split(queries: Any) -> tuple[Any, Any]:
    """``(hi, lo)`` float16 parts of scaled queries (m, d).

    >>> [part.tolist() for part in split(np.array([[16385.0]], dtype=np.float32))]
    [[[16384.0]], [[1.0]]]
    """
    hi = queries.astype(np.float16)
    return hi, (queries - hi.astype(np.float32)).astype(np.float16)


def split_error(width: int) -> float:
    """Relative error of hi·p + lo·p, see above.

    >>> split_error(768) < 2e-4
    True
    """
    return (1.001 * width + 8) * 2.0**-22


def rounded_error(width: int) -> float:
    """The same of hi·p alone."""
    return 2.0**-11 + math.sqrt(width) * 2.0**-39 + split_error(width)


def unscaled(scores: Any, exponents: Any) -> Any:
    """Scores of scaled queries (m, k) as those of the queries."""
    xp = array_namespace(scores)
    first = exponents // 2
    return xp.ldexp(xp.ldexp(scores, -first), first - exponents)
