"""Which texts of a row of tokens go through attention together."""

# torch's annotations are partial, and may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """``texts`` neighbours of a row of tokens, at ``start:stop``, the longest of ``length`` tokens.

    Where their lengths differ, ``places`` (texts, length) are the tokens to lay side by side, ``real`` (texts,
    length) says which are there (the others repeat a text's last token), and ``back`` (stop - start,) finds the
    tokens again among the laid ones. All three are None for equal lengths, where a view does it.
    """

    start: int
    stop: int
    texts: int
    length: int
    places: Tensor | None = None
    real: Tensor | None = None
    back: Tensor | None = None

    def lay(self, rows: Tensor) -> Tensor:
        """(tokens, ...) of the whole row to (texts, length, ...)."""
        if self.places is not None:
            return rows[self.places]
        return rows[self.start : self.stop].unflatten(0, (self.texts, self.length))

    def row(self, laid: Tensor) -> Tensor:
        """(texts, length, d) to (stop - start, d)."""
        flat = laid.flatten(0, 1)
        return flat if self.back is None else flat[self.back]


def attention_groups(lengths: Sequence[int], slack: float, device: torch.device) -> list[Group]:
    """Runs of neighbours in which no length differs from the first by more than ``slack`` of it.

    With slack 0 only equal lengths go together, and nothing is padded. A GPU waits for each launch, so there some
    padding inside attention (a tenth of the work of a layer, the rest stays without) pays.
    """
    starts = [0, *accumulate(lengths)]
    groups = []
    first = 0
    for i in range(1, len(lengths) + 1):
        if i < len(lengths) and abs(lengths[i] - lengths[first]) <= slack * lengths[first]:
            continue
        groups.append(_group(lengths[first:i], starts[first:i], device))
        first = i
    return groups


def _group(lengths: Sequence[int], starts: Sequence[int], device: torch.device) -> Group:
    longest, stop = max(lengths), starts[-1] + lengths[-1]
    if min(lengths) == longest:
        return Group(starts[0], stop, len(lengths), longest)
    of = torch.tensor(lengths)[:, None]  # (texts, 1)
    column = torch.arange(longest)
    real = column < of
    places = torch.tensor(starts)[:, None] + torch.minimum(column, of - 1)
    back = real.flatten().nonzero()[:, 0]
    return Group(starts[0], stop, len(lengths), longest, places.to(device), real.to(device), back.to(device))
