"""Results of a search for people and programs: hits with their passages, as a table, a frame or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, overload

from haybale.search.hit_groups import HitGroup
from haybale.search.search_hit import SearchHit
from haybale.search.snippets import Snippet
from haybale.search.taken_hits import Searched, TakenHits

if TYPE_CHECKING:
    import pandas as pd

_NOTEBOOK_WIDTH = 300  # characters of a snippet in a notebook


class SearchResults(TakenHits, Sequence[SearchHit]):
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
    searched : Searched, optional
        Where was searched. Default: not known.
    """

    def __init__(
        self,
        query: str,
        ranker: str,
        hits: Sequence[SearchHit],
        groups: Sequence[HitGroup] | None = None,
        searched: Searched | None = None,
    ) -> None:
        self.query, self.ranker, self.hits = query, ranker, tuple(hits)
        self.groups, self.searched = None if groups is None else tuple(groups), searched

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> SearchHit: ...
    @overload
    def __getitem__(self, index: slice) -> SearchResults: ...
    def __getitem__(self, index: int | slice) -> SearchHit | SearchResults:
        """Return a hit; or, for a slice, the results with only these hits."""
        if isinstance(index, slice):
            return SearchResults(self.query, self.ranker, self.hits[index], searched=self.searched)
        return self.hits[index]

    def __repr__(self) -> str:
        first_ids = ", ".join(hit.doc_id for hit in self.hits[:3]) + (", …" if len(self) > 3 else "")
        n = f"{len(self)} document{'' if len(self) == 1 else 's'}"
        return f"SearchResults of {self.ranker}: {n}" + (f" ({first_ids})" if first_ids else "")

    def linked(self, link_of: Callable[[SearchHit], str]) -> SearchResults:
        """Return the results with the address of each hit."""
        hits = [replace(hit, link=link_of(hit)) for hit in self.hits]
        return SearchResults(self.query, self.ranker, hits, self.groups, self.searched)

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
