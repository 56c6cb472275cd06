"""Numbers that rise with scores, so that searches compare and select integers.

A *value* is a uint32 number that rises with a float32 score; 0 stands for a passage without a common term. An empty sum
is -0.0: no sum of products can be -0.0, because 0.0 is added to each product.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haybale.vectors import Floats

Values = NDArray[np.uint32]

ZERO = np.uint32(2**31)  # the value of the score 0.0


def encoded(scores: Floats) -> Values:
    """Return the values (n,) of scores (n,): the bits of positive floats rise with them, those of negative ones fall.

    >>> encoded(np.array([-0.0, 0, 1, -1], dtype=np.float32)).tolist()
    [0, 2147483648, 3212836864, 1082130431]
    """
    bits = scores.view(np.uint32)
    return np.where(bits == ZERO, np.uint32(0), np.where(bits >> 31, ~bits, bits | ZERO))


def decoded(values: Values) -> Floats:
    """Return the scores (n,) of values (n,).

    >>> decoded(encoded(np.array([0, 1, -1], dtype=np.float32))).tolist()
    [0.0, 1.0, -1.0]
    """
    return np.where(values >> 31, values ^ ZERO, ~values).view(np.float32)
