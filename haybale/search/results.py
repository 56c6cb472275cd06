"""Results of a search for people and programs: hits with their passages, as a table, a frame or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from haybale.search.hit_groups import HitGroup
from haybale.search.snippets import Snippet

if TYPE_CHECKING:
    import pandas as pd

_NOTEBOOK_WIDTH = 300  # characters of a snippet in a notebook


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
    """

    rank: int
    doc_id: str
    score: float
    title: str
    metadata: dict[str, Any]
    snippets: list[Snippet]
    shares: list[SourceShare]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; dates become ISO strings."""
        return {
            "rank": self.rank,
            "doc_id": self.doc_id,
            "score": self.score,
            "title": self.title,
            "metadata": plain_metadata(self.metadata),
            "snippets": [snippet.to_dict() for snippet in self.snippets],
            "shares": [share._asdict() for share in self.shares],
        }


class SearchResults(Sequence[SearchHit]):
    """The documents that :meth:`haybale.Ranker.search` found, the best first.

    Parameters
    ----------
    query : str
        The text that was searched.
    ranker : str
        The ranker as a text.
    hits : sequence of SearchHit
    groups : sequence of HitGroup, optional
        If documents that belong together are shown together: the groups in the order of ``hits``. Default: none.
    """

    def __init__(
        self, query: str, ranker: str, hits: Sequence[SearchHit], groups: Sequence[HitGroup] | None = None
    ) -> None:
        self.query, self.ranker, self.hits = query, ranker, tuple(hits)
        self.groups = None if groups is None else tuple(groups)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> SearchHit: ...
    @overload
    def __getitem__(self, index: slice) -> SearchResults: ...
    def __getitem__(self, index: int | slice) -> SearchHit | SearchResults:
        """Return a hit; or, for a slice, the results with only these hits."""
        if isinstance(index, slice):
            return SearchResults(self.query, self.ranker, self.hits[index])
        return self.hits[index]

    def __repr__(self) -> str:
        first_ids = ", ".join(hit.doc_id for hit in self.hits[:3]) + (", …" if len(self) > 3 else "")
        n = f"{len(self)} document{'' if len(self) == 1 else 's'}"
        return f"SearchResults of {self.ranker}: {n}" + (f" ({first_ids})" if first_ids else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as :meth:`to_json` writes them."""
        values: dict[str, Any] = {"query": self.query, "hits": [hit.to_dict() for hit in self.hits]}
        if self.groups is not None:
            values["groups"] = [group.to_dict() for group in self.groups]
        return values

    def to_json(self, indent: int | None = None) -> str:
        """Return JSON, as ``docs/search.schema.json`` describes it.

        Parameters
        ----------
        indent : int, optional
            The indentation of each level. Default: everything in one line.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with a row for each hit, with its best passage and its metadata.

        A column of metadata that has the name of another column gets the prefix ``metadata_``.
        """
        import pandas as pd

        columns = ["rank", "doc_id", "score", "title", "passage_id", "page", "heading", "text"]
        rows = []
        for hit in self.hits:
            best = hit.snippets[0] if hit.snippets else Snippet("", "", [])
            row = (hit.rank, hit.doc_id, hit.score, hit.title, best.passage_id, best.page, best.heading, best.text)
            more = {f"metadata_{name}" if name in columns else name: value for name, value in hit.metadata.items()}
            rows.append(dict(zip(columns, row, strict=True)) | more)
        names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
        return pd.DataFrame(rows, columns=list(names)).astype({"page": "Int64"})

    def _repr_html_(self) -> str:
        """Return the hits as a list for notebooks, with highlights as ``<mark>``."""
        items = "".join(f"<li>{_hit_html(hit)}</li>" for hit in self.hits)
        return f"<div><p>{escape(self.query)}</p>" + (f"<ol>{items}</ol>" if items else "<p>no document</p>") + "</div>"


def _hit_html(hit: SearchHit) -> str:
    about = [hit.doc_id, f"{hit.score:.4f}", *(f"{share.source} {share.share:+.4f}" for share in hit.shares)]
    parts = [f"<b>{escape(hit.title)}</b> <small>{escape(' · '.join(about))}</small>"]
    for snippet in hit.snippets:
        pieces = [(escape(text), marked) for text, marked in snippet.excerpt(_NOTEBOOK_WIDTH)]
        text = "".join(f"<mark>{piece}</mark>" if marked else piece for piece, marked in pieces)
        location = f"<small>{escape(snippet.place)}:</small> " if snippet.place else ""
        parts.append(f'<p dir="auto">{location}{text}</p>')
    return "".join(parts)
