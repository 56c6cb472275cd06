"""Sliding-window attention, exact: dense blocks of queries, each with the keys its window can reach.

Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020, section 3.1.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# Queries of one block. Small blocks waste fewer masked keys, large ones have less overhead.
# The CPU's is measured, CUDA's is not yet.
BLOCK = {"cpu": 128, "cuda": 512}


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, reach: int, *, real: Tensor | None = None, first_seen_by_all: bool = False
) -> Tensor:
    """(n, heads, L, head_dim) each; token i attends to the tokens j with |i - j| <= ``reach``.

    ``real`` (n, L) bool marks the tokens that exist, None if all do; what comes out for the others means nothing.
    ``first_seen_by_all``: all tokens attend to token 0 too, once.
    """
    length = q.shape[2]
    if length <= reach + 1:
        return scaled_dot_product_attention(q, k, v, attn_mask=None if real is None else real[:, None, None, :])
    # Blocks of about equal size rather than a small last one.
    count = -(-length // BLOCK.get(q.device.type, BLOCK["cuda"]))
    edges = [length * i // count for i in range(count + 1)]
    blocks = []
    for start, stop in pairwise(edges):
        low, high = max(0, start - reach), min(length, stop + reach)
        far_first = first_seen_by_all and low > 0
        keys, values = k[:, :, low:high], v[:, :, low:high]
        if far_first:
            keys, values = torch.cat((k[:, :, :1], keys), 2), torch.cat((v[:, :, :1], values), 2)
        mask = _band(stop - start, high - low, start - low, reach, first_seen_by_all, far_first, q.dtype, q.device)
        if real is not None:
            seen = torch.cat((real[:, :1], real[:, low:high]), 1) if far_first else real[:, low:high]
            mask = mask.masked_fill(~seen[:, None, None, :], -torch.inf)  # (n, 1, queries, keys)
        blocks.append(scaled_dot_product_attention(q[:, :, start:stop], keys, values, attn_mask=mask))
    return torch.cat(blocks, 2)


@lru_cache(maxsize=64)  # the layers of a model and the blocks of a text share theirs
def _band(
    queries: int,
    keys: int,
    offset: int,
    reach: int,
    first_seen_by_all: bool,
    far_first: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """(queries, keys) of 0 where query i, which stands at key i + offset, sees the key, else -inf.

    ``far_first``: one more column before the others, for token 0.
    """
    with torch.inference_mode(False):  # so that a mask made while encoding serves a training step too
        position = torch.arange(queries, device=device)[:, None] + offset
        seen = (position - torch.arange(keys, device=device)).abs() <= reach
        if far_first:
            seen = torch.cat((seen.new_ones(queries, 1), seen), 1)
        elif first_seen_by_all:
            seen[:, 0] = True  # the keys begin with token 0
        return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
