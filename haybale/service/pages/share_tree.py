"""An explanation as a tree of bars: what each ranker adds, down to terms, passages and training queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from haybale.retrieval import ParagraphExplanation
from haybale.search.explanation import Explanation, Share

_MAX_SHARES = 8  # of one ranker; the others are added up


@dataclass(frozen=True)
class ShareBar:
    """A share of a score with its bar.

    Parameters
    ----------
    what : str
        What adds to the score.
    amount : str
        How much, as a percentage of the score if all its parts are positive, else as a number.
    width : float
        The length of the bar, from 0 to 100; the largest share of the tree has 100.
    is_negative : bool
    text : str or None
        The text of the passage that ``what`` names.
    query : str or None
        The text of the training query that ``what`` names.
    parts : list of ShareBar
        What the share consists of.
    """

    what: str
    amount: str
    width: float
    is_negative: bool
    text: str | None = None
    query: str | None = None
    parts: list[ShareBar] = field(default_factory=list)


def share_bars(explanation: Explanation, query_text: Callable[[str], str | None]) -> list[ShareBar]:
    """Return the shares of a score as bars; those of a nested ranker are scaled to sum to its share.

    ``query_text`` returns the text of a training query, or None if it is not known.

    >>> inner = Explanation("bm25", "q", "d", 4.0, 1, [Share("term dog", 3.0), Share("term lead", 1.0)])
    >>> outer = Explanation("rrf(bm25)", "q", "d", 0.5, 1, [Share("bm25, rank 1", 0.5, of=inner)])
    >>> [bar] = share_bars(outer, lambda _: None)
    >>> bar.amount, [(part.what, part.amount, part.width) for part in bar.parts]
    ('100 %', [('term dog', '75 %', 75.0), ('term lead', '25 %', 25.0)])
    """
    score, most = explanation.score or 0.0, max((abs(share.share) for share in explanation.shares), default=0.0)
    in_percent = score > 0 and all(share >= 0 for share in _all_shares(explanation, 1.0))

    def bar(what: str, value: float, text: str | None, query: str | None, parts: list[ShareBar]) -> ShareBar:
        width = min(100.0, 100 * abs(value) / most) if most else 0.0
        amount = f"{100 * value / score:.0f} %" if in_percent else f"{value:+.4f}"
        return ShareBar(what, amount, round(width, 2), value < 0, text, query, parts)

    def bars(of: Explanation, scale: float) -> list[ShareBar]:
        made = []
        for share in of.shares[:_MAX_SHARES]:
            query = None if share.query_id is None else query_text(share.query_id)
            parts = [] if share.of is None else bars(share.of, _scale(share, scale))
            made.append(bar(share.what, scale * share.share, share.text, query, parts))
        others = of.shares[_MAX_SHARES:]
        if others:
            total = scale * math.fsum(share.share for share in others)
            made.append(bar(f"{len(others):,} more", total, None, None, []))
        return made

    return bars(explanation, 1.0)


def _scale(share: Share, scale: float) -> float:
    """Return the factor by which the shares of a nested ranker are multiplied, so that they sum to its share."""
    total = math.fsum(nested.share for nested in share.of.shares) if share.of is not None else 0.0
    return scale * share.share / total if total else 0.0


def _all_shares(explanation: Explanation, scale: float) -> Iterator[float]:
    for share in explanation.shares:
        yield scale * share.share
        if share.of is not None:
            yield from _all_shares(share.of, _scale(share, scale))


def paragraph_explanation(explanation: Explanation) -> ParagraphExplanation | None:
    """Return the explanation by pairs of paragraphs that PARM gave, alone or inside another ranker, if there is one.

    None for a query of one paragraph, whose pairs explain no more than its passages.
    """
    detail = explanation.detail
    if isinstance(detail, ParagraphExplanation):
        return detail if len(detail.labels) > 1 and detail.score is not None else None
    nested = (paragraph_explanation(share.of) for share in explanation.shares if share.of is not None)
    return next((inner for inner in nested if inner is not None), None)
