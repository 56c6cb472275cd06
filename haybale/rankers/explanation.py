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

    def leaves(self) -> Iterator[tuple[tuple[str, ...], float, str | None]]:
        """``(path, share of this score, text)`` of what the rankers within rest on, down to passages and judgements.

        The shares of a ranker within sum to its own score; here they are scaled to what that ranker adds.
        """
        for share in self.shares:
            inner = list(share.of.leaves()) if share.of is not None else []
            total = math.fsum(value for _, value, _ in inner)
            if not inner or total == 0:
                yield (share.what,), share.share, share.text
                continue
            for path, value, text in inner:
                yield (share.what, *path), share.share * value / total, text

    def to_frame(self) -> pd.DataFrame:
        """A row a leaf: columns ``path``, ``share``, ``text``; the shares sum to the score."""
        rows = [(" / ".join(path), value, text) for path, value, text in self.leaves()]
        return pd.DataFrame(rows, columns=["path", "share", "text"])

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
        return "\n".join(self._lines(top, width, ""))

    def _lines(self, top: int, width: int, indent: str) -> Iterator[str]:
        if self.score is None:
            yield f"{indent}{self.doc_id}: {self.ranker} does not have it"
        else:
            place = "" if self.rank is None else f"rank {self.rank:,}, "
            yield f"{indent}{self.doc_id}: {place}{self.ranker} {self.score:.4f}"
        for share in self.shares[:top]:
            yield f"{indent}  {signed(share.share)}  {share.what}"
            if share.text:
                yield f"{indent}           {shortened(share.text, width)}"
            if share.of is not None:
                lines = list(share.of._lines(top, width, indent + "      "))
                yield from lines[1:]
        rest = self.shares[top:]
        if rest:
            yield f"{indent}  {signed(math.fsum(share.share for share in rest))}  {len(rest):,} more"
        yield from (f"{indent}  {note}" for note in self.notes)

    def __str__(self) -> str:
        return self.text()


def signed(share: float) -> str:
    """A share in seven characters or so: small ones keep their size.

    >>> signed(2.40151), signed(-0.0000123), signed(0.0)
    ('+2.4015', '-1.2e-05', '+0.0000')
    """
    return f"{share:+.4f}" if share == 0 or abs(share) >= 5e-4 else f"{share:+.1e}"


def by_size(shares: Sequence[Share]) -> list[Share]:
    """The largest first; of equal ones the first by name."""
    return sorted(shares, key=lambda share: (-abs(share.share), share.what))
