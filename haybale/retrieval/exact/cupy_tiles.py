"""Search on a CUDA device by our own tiles: a product of cuBLAS, then the best of its rows; any k, needs CuPy only.

Tiles of queries × passages are sized from the memory there is; one that does not fit is halved and done again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.errors import MissingExtraError
from haybale.extras import require
from haybale.retrieval.exact.backend import Backend, Proposal
from haybale.retrieval.exact.half import scaled, split, split_error, unscaled
from haybale.retrieval.exact.kept import Kept
from haybale.retrieval.exact.products import products
from haybale.tiling import fitting, in_tiles
from haybale.vectors import array_namespace

_LARGEST = 2**28  # scores of a tile: more make it no faster, and leave less memory to others


def propose_cupy(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """The k best of each row by float32 products, or, for float16 passages, by two float16 products added.

    ``memory``: bytes to use (None: half of what is free on the device). Error: :class:`DeviceError` where not even
    the tile of one row and one column has room.
    """
    xp, m = array_namespace(passages), len(queries)
    memory = device_of(passages).half_of_memory() if memory is None else memory
    rows = fitting(memory / 2, Kept.bytes_per_row(k), most=min(m, 1024))

    def search(tile: slice) -> Proposal:
        return _search(queries[tile], passages, k, memory / 2)

    # Where all rows at once do not fit, half of them: their buffers are halved, too.
    parts = list(in_tiles(m, rows, search, what="queries"))
    if len(parts) == 1:
        return parts[0]
    return xp.concatenate([part[0] for part in parts]), xp.concatenate([part[1] for part in parts])


def _search(queries: Any, passages: Any, k: int, memory: float) -> Proposal:
    xp, n = array_namespace(passages), len(passages)
    is_half = passages.dtype == np.float16
    parts = [queries]
    if is_half:
        queries, exponents = scaled(queries)
        parts = [*reversed(split(queries))]  # the small one first
    kept = Kept(len(queries), k, xp)

    def score(tile: slice) -> tuple[int, Any]:
        scores = xp.empty((len(queries), tile.stop - tile.start), dtype=np.float32)
        for number, part in enumerate(parts):
            products(part, passages[tile], scores, add=number > 0)
        return tile.start, scores

    # Two tiles at a time: one is still held while the next is made.
    columns = min(fitting(memory, 8 * len(queries)), fitting(_LARGEST, len(queries)))
    for first, scores in in_tiles(n, columns, score, what="passages"):
        kept.add(scores, first)
    numbers, best = kept.best()
    return numbers, unscaled(best, exponents) if is_half else best


def _error(width: int, dtype: np.dtype[Any]) -> float:
    return split_error(width) if dtype == np.float16 else (1.001 * width + 8) * 2.0**-24


def _missing() -> Exception | None:
    try:
        require("cupy", "gpu")
    except MissingExtraError as error:
        return error
    return None


CUPY = Backend("cupy", "cuda", propose_cupy, _error, _missing)
