"""A document that was found, with its passages, how it is cited, and what each ranker adds to its score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

from haybale.collections.citations import Citation, cite
from haybale.search.snippets import Snippet


class SourceShare(NamedTuple):
    """A ranker, as a text, with the share that it adds to the score of a document."""

    source: str
    share: float


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a document for JSON: dates become ISO strings, and infinity, which JSON lacks, a word.

    >>> plain_metadata({"date": date(2015, 1, 31), "weight": float("-inf"), "weights": [0.5, float("nan")]})
    {'date': '2015-01-31', 'weight': '-Infinity', 'weights': [0.5, None]}
    """
    return {name: _plain(value) for name, value in metadata.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@dataclass(frozen=True)
class SearchHit:
    """A document that was found.

    Parameters
    ----------
    rank : int
        From 1.
    doc_id : str
    score : float
    title : str
        The title of the document; its id if it has none.
    metadata : dict
        The metadata that the document has, by column.
    snippets : list of Snippet
        Its best passages, at most two, the best first.
    shares : list of SourceShare
        What each nested ranker adds to the score, the largest first; otherwise the ranker itself.
    link : str, default ""
        The address at which the document can be opened, such as in a service.
    """

    rank: int
    doc_id: str
    score: float
    title: str
    metadata: dict[str, Any]
    snippets: list[Snippet]
    shares: list[SourceShare]
    link: str = ""

    @property
    def citation(self) -> Citation:
        """How the document is cited, from its metadata; its link is that of the hit, or else of the metadata."""
        citation = cite(self.title, self.metadata)
        return citation._replace(link=self.link) if self.link else citation

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; dates become ISO strings."""
        citation = self.citation
        return {
            "rank": self.rank,
            "doc_id": self.doc_id,
            "score": self.score,
            "title": self.title,
            "citation": citation.text,
            "court": citation.court,
            "date": citation.date,
            "docket": citation.docket,
            "link": citation.link,
            "metadata": plain_metadata(self.metadata),
            "snippets": [snippet.to_dict() for snippet in self.snippets],
            "shares": [share._asdict() for share in self.shares],
        }
