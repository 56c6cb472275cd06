"""Why a document has its score: shares that sum to it, each of which may be explained in its turn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from haybale.retrieval.parm.explanation import shortened


@dataclass(frozen=True)
class Share:
    """One thing that a score rests on.

    Parameters
    ----------
    what : str
        ``"term dog"``, ``"passage bgb:3"``, ``"query q17, to which it was relevant"``, the name of a ranker …
    share : float
        What it adds to the score.
    text : str, optional
        The text behind it.
    of : Explanation, optional
        Of a ranker within a ranker: why *it* ranks the document as it does.
    """

    what: str
    share: float
    text: str | None = None
    of: Explanation | None = None


@dataclass(frozen=True)
class Explanation:
    """A document's score for a query, taken apart.

    Parameters
    ----------
    ranker, query_id, doc_id : str
    score : float or None
        None where the ranker does not have the document.
    rank : int or None
        From 1; None where it is not among the documents that were ranked.
    shares : list of Share
        By size; they sum to ``score``, up to rounding of the last bits.
    notes : list of str
        What else is worth knowing, in words.
    detail : object, optional
        The ranker's own explanation where it has more to show: of PARM with its heatmap, of the ensemble with its bags.
    """

    ranker: str
    query_id: str
    doc_id: str
    score: float | None
    rank: int | None
    shares: list[Share] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    detail: Any = None

    def _leaves(self) -> Iterator[tuple[str, float, str | None]]:
        for share in self.shares:
            inner = list(share.of._leaves()) if share.of is not None else []
            total = math.fsum(value for _, value, _ in inner)
            if total == 0:
                yield share.what, share.share, share.text
            else:
                scale = share.share / total
                yield from ((f"{share.what} / {path}", scale * value, text) for path, value, text in inner)

    def to_frame(self) -> pd.DataFrame:
        """Columns ``path``, ``share``, ``text``: a row for each passage or judgement that the rankers within rest on.

        The shares of a ranker within sum to its own score; here they are scaled to what it adds: all sum to this one.
        """
        return pd.DataFrame(self._leaves(), columns=["path", "share", "text"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shares = [
            {"what": share.what, "share": share.share}
            | ({} if share.text is None else {"text": share.text})
            | ({} if share.of is None else {"of": share.of.to_dict()})
            for share in self.shares
        ]
        found = {"ranker": self.ranker, "query_id": self.query_id, "doc_id": self.doc_id, "score": self.score}
        return found | {"rank": self.rank, "shares": shares, "notes": self.notes}

    def text(self, top: int = 5, width: int = 100) -> str:
        """In words: the ``top`` shares of every ranker, with ``width`` characters of their texts."""
        if self.score is None:
            return f"{self.doc_id}: {self.ranker} does not have it"
        head = f"{self.doc_id}: rank {self.rank:,}, {self.ranker} {self.score:.4f}"
        return "\n".join([head, *self._lines(top, width, "  ")])

    def _lines(self, top: int, width: int, indent: str) -> Iterator[str]:
        for share in self.shares[:top]:
            yield f"{indent}{format_share(share.share)}  {share.what}"
            if share.text:
                yield f"{indent}         {shortened(share.text, width)}"
            if share.of is not None:
                yield from share.of._lines(top, width, indent + "      ")
        rest = self.shares[top:]
        if rest:
            yield f"{indent}{format_share(math.fsum(share.share for share in rest))}  {len(rest):,} more"
        yield from (f"{indent}{note}" for note in self.notes)

    def __str__(self) -> str:
        return self.text()


def format_share(share: float) -> str:
    """A share in seven characters or so: small ones keep their size.

    >>> format_share(2.40151), format_share(-0.0000123), format_share(0.0)
    ('+2.4015', '-1.2e-05', '+0.0000')
    """
    return f"{share:+.4f}" if share == 0 or abs(share) >= 5e-4 else f"{share:+.1e}"


def by_size(shares: Sequence[Share]) -> list[Share]:
    """The largest first; of equal ones the first by name."""
    return sorted(shares, key=lambda share: (-abs(share.share), share.what))
