"""Explanations of scores as sums of shares; a share can have an explanation of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haybale.collections import Passages
from haybale.notebook import html_table

if TYPE_CHECKING:
    import pandas as pd

    from haybale.device import Device

_SHARES_IN_REPR, _SHARES_IN_NOTEBOOK = 3, 10


@dataclass(frozen=True)
class Share:
    """One summand of a score.

    Parameters
    ----------
    what : str
        What adds to the score, such as ``"term dog"``, ``"passage bgb:3"`` or the name of a ranker.
    share : float
        How much it adds.
    text : str, optional
        The text of the passage that ``what`` names.
    of : Explanation, optional
        The explanation by the nested ranker that ``what`` names.
    term, passage_id : str, optional
        The term or the passage that ``what`` names. Search results show and highlight these.
    query_id : str, optional
        The training query that ``what`` names.
    """

    what: str
    share: float
    text: str | None = None
    of: Explanation | None = None
    term: str | None = None
    passage_id: str | None = None
    query_id: str | None = None


@dataclass(frozen=True, repr=False)
class Explanation:
    """The score of a document for a query, as a sum of shares.

    Parameters
    ----------
    ranker, query_id, doc_id : str
    score : float or None
        None if the ranker does not find the document.
    rank : int or None
        From 1; None if the document is not among those that were ranked.
    shares : list of Share
        The largest first; they sum to ``score`` up to rounding.
    notes : list of str
        Remarks that have no share.
    detail : object, optional
        The ranker's own explanation if it holds more: PARM's with a heatmap, the ensemble's with its bags.
    passage_id : str, optional
        The passage whose score the document has, if it scores by one.
    matcher : object, optional
        The analyzer whose terms, or the encoder whose vectors, the ranker itself matches; :meth:`Ranker.explained`
        sets the engine's encoder if the ranker uses vectors.
    """

    ranker: str
    query_id: str
    doc_id: str
    score: float | None
    rank: int | None
    shares: list[Share] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    detail: Any = None
    passage_id: str | None = None
    matcher: Any = field(default=None, compare=False)

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
        """Return a row for each innermost share, with columns ``path``, ``share`` and ``text``.

        The shares of a nested ranker are scaled to what that ranker adds, so that all rows sum to this score.
        """
        import pandas as pd

        return pd.DataFrame(self._leaves(), columns=["path", "share", "text"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        shares = [
            {"what": share.what, "share": share.share}
            | ({} if share.text is None else {"text": share.text})
            | ({} if share.of is None else {"of": share.of.to_dict()})
            for share in self.shares
        ]
        plain = {"ranker": self.ranker, "query_id": self.query_id, "doc_id": self.doc_id, "score": self.score}
        return plain | {"rank": self.rank, "shares": shares, "notes": self.notes}

    def text(self, top: int = 5, width: int = 100) -> str:
        """Return lines with the ``top`` largest shares of each ranker, and texts cut to ``width`` characters."""
        if self.score is None:
            return "\n".join([f"{self.doc_id}: {self.ranker} does not find it", *self._lines(top, width, "  ")])
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

    def __repr__(self) -> str:
        if self.score is None:
            return f"Explanation of {self.doc_id!r}: {self.ranker} does not find it"
        head = f"Explanation of {self.doc_id!r}: rank {self.rank:,}, {self.ranker} {self.score:.4f}"
        parts = [f"{format_share(share.share)} {shortened(share.what, 40)}" for share in self.shares[:_SHARES_IN_REPR]]
        more = len(self.shares) - len(parts)
        return " = ".join([head, ", ".join([*parts, *([f"{more:,} more"] if more > 0 else [])])] if parts else [head])

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks: its innermost shares, the largest first."""
        rows = sorted(self._leaves(), key=lambda leaf: -abs(leaf[1]))
        cells = [(format_share(share), path, shortened(text or "")) for path, share, text in rows[:_SHARES_IN_NOTEBOOK]]
        if len(rows) > len(cells):
            rest = math.fsum(share for _, share, _ in rows[len(cells) :])
            cells.append((format_share(rest), f"{len(rows) - len(cells):,} more", ""))
        return html_table(self.text(top=0).partition("\n")[0], ("share", "of", "text"), cells)


def format_share(share: float) -> str:
    """Format a share in about seven characters; small ones in scientific notation.

    >>> format_share(2.40151), format_share(-0.0000123), format_share(0.0)
    ('+2.4015', '-1.2e-05', '+0.0000')
    """
    return f"{share:+.4f}" if share == 0 or abs(share) >= 5e-4 else f"{share:+.1e}"


def shortened(text: str, width: int = 100) -> str:
    """Shorten a text to one line of at most ``width`` characters.

    >>> shortened("one two\\nthree", 9)
    'one two …'
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def by_size(shares: Sequence[Share]) -> list[Share]:
    """Return shares sorted by size, the largest first, then by name."""
    return sorted(shares, key=lambda share: (-abs(share.share), share.what))


def device_notes(device: Device) -> list[str]:
    """Return a note that says on which device a score was computed; none for the CPU."""
    return [] if device.is_cpu else [f"computed on {device}"]


def passage_note(passages: Passages, passage: int) -> str:
    """Return a note with the id and the beginning of the passage that gives a document its score."""
    return f"best passage {passages.ids[passage].as_py()}: {shortened(passages.texts[passage].as_py())}"
