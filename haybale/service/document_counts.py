"""Count the documents that a search matches: in all, and for each value of the metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.engine import Engine
from haybale.search.matching import matching_documents
from haybale.service.facets import Facet, FacetTable, condition
from haybale.service.request_texts import paragraphs


@dataclass(frozen=True)
class MatchCounts:
    """How many documents a search matches.

    Parameters
    ----------
    engine : Engine
        The snapshot whose documents were counted.
    has_word : (n_documents,) bool array
        The documents that match the query, whatever the filters leave.
    n_matching : int
        The number of those that the filters leave.
    facets : list of Facet
        The columns of the metadata, counted among the documents that match the query, and that the condition and the
        values chosen of the *other* columns leave. Ranges are those of all documents.
    """

    engine: Engine
    has_word: NDArray[np.bool_]
    n_matching: int
    facets: list[Facet]

    @property
    def n_documents(self) -> int:
        """The number of all documents."""
        return len(self.has_word)

    def match(self, doc_ids: Sequence[str]) -> list[bool]:
        """Return whether each of some documents matches the query; True for one that has just been added."""
        numbers = self.engine.collection.find_documents(doc_ids)
        matches: list[bool] = np.where(numbers < 0, True, self.has_word[numbers]).tolist()
        return matches

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        facets = [facet.to_dict() for facet in self.facets]
        return {"facets": facets, "n_matching": self.n_matching, "n_documents": self.n_documents}


class DocumentCounts:
    """Counts the documents of an engine. Several threads may use it.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._facets: tuple[Engine, FacetTable] | None = None

    def table(self, snapshot: Engine) -> FacetTable:
        """Return the facets of a snapshot, which is read once."""
        cached = self._facets
        if cached is None or cached[0] is not snapshot:
            cached = self._facets = snapshot, FacetTable(snapshot.documents_table())
        return cached[1]

    def condition(self, chosen: Mapping[str, Sequence[Any]]) -> str | None:
        """Return the condition for ``where`` on documents with chosen values of facets; None without values."""
        return condition(self.table(self.engine.snapshot()).documents, chosen)

    def count(
        self,
        text: str = "",
        where: str | None = None,
        chosen: Mapping[str, Sequence[Any]] | None = None,
        names: Sequence[str] | None = None,
    ) -> MatchCounts:
        """Count the documents that match a query (:func:`~haybale.search.matching.matching_documents`) and filters.

        Parameters
        ----------
        text : str, default ""
            The query; an empty one matches all documents.
        where : str, optional
            An SQL condition on the metadata.
        chosen : mapping, optional
            The chosen values by column, as :meth:`condition` takes them.
        names : sequence of str, optional
            The columns to count. Default: all.

        Raises
        ------
        InputError
            For a text that cannot be searched, a wrong condition or an unknown column.
        """
        snapshot = self.engine.snapshot()
        table = self.table(snapshot)

        def fulfil(part: str) -> NDArray[np.bool_]:
            documents = np.zeros(snapshot.collection.n_documents, dtype=bool)
            documents[snapshot.documents_where(part)] = True
            return documents

        everything = np.ones(snapshot.collection.n_documents, dtype=bool)
        has_word = matching_documents(snapshot, paragraphs(text)) if text.strip() else everything
        left = has_word & fulfil(where) if where else has_word
        by_column = {
            column: fulfil(part)
            for column, values in (chosen or {}).items()
            if (part := condition(table.documents, {column: values}))
        }

        def left_by_others(name: str) -> NDArray[np.bool_]:
            documents = left.copy()
            for column, fulfilling in by_column.items():
                if column != name:
                    documents &= fulfilling
            return documents

        facets = []
        for facet in table.facets:
            if names is None or facet.name in names:
                is_range = facet.kind == "range"
                counted = facet if is_range else table.counted(facet.name, left_by_others(facet.name))
                facets.append(counted or Facet(facet.name, facet.kind, []))
        return MatchCounts(snapshot, has_word, int(left_by_others("").sum()), facets)
