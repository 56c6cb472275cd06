"""Explain a document's score by the rank, similarity and share of each pair of paragraphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.cached import cached_property
from haybale.device import device_of, to_numpy
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.parm.aggregate import make_task, score_blocks
from haybale.retrieval.parm.device_scores import DeviceScores
from haybale.retrieval.parm.formulas import Scored, Task, Vectors
from haybale.vectors import Floats, array_namespace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ParagraphExplanation:
    """The share of each pair of a query paragraph (n) and a passage of the document (m) in the document's score.

    Shares sum to the score: exactly for CombSum, RRF, VSum, VScores, VRanks and VRRF, up to rounding for VAvg. With
    MaxP and FirstP, one pair has the whole score. With VMin and VMax, the share of a pair is the sum over the
    dimensions whose extremes come from it. ``rank`` and ``score`` are None for a document that no paragraph found.
    """

    doc_id: str
    aggregation: str
    score: float | None
    rank: int | None
    n_documents: int  # number of documents found for the query
    labels: list[str]  # (n,) names of the query's paragraphs
    passage_ids: list[str]  # (m,)
    ranks: Ints  # (n, m) rank of the passage among the paragraph's hits, from 1; 0 if it is not among them
    similarities: Callable[[], Floats]  # computes :attr:`similarity`
    share: NDArray[np.float64]  # (n, m)
    query_texts: list[str] | None = None
    passage_texts: list[str] | None = None

    @cached_property
    def similarity(self) -> Floats:
        """Return the score of every pair in the index, (n, m); computed when it is first needed."""
        return self.similarities()

    @property
    def in_percent(self) -> bool:
        """Whether shares can be shown as percentages of the score.

        Inner products may be negative, so this requires a positive score, and no pair, paragraph or passage whose share
        has a larger magnitude than the score.
        """
        parts = (self.share, self.share.sum(axis=0), self.share.sum(axis=1))
        most = (self.score or 0) * (1 + 1e-6)  # with tolerance for rounding
        return most > 0 and all(np.abs(part).max(initial=0) <= most for part in parts)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with a row for each pair that is a hit or has a share, the largest share first.

        ``rank`` is missing where the passage is no hit of the paragraph. ``share_of_score`` is missing unless
        :attr:`in_percent`. Texts, if known, are in the columns ``query_text`` and ``passage_text``.
        """
        import pandas as pd

        rows, columns = np.nonzero((self.ranks > 0) | (self.share != 0))
        order = np.argsort(-np.abs(self.share[rows, columns]), kind="stable")
        rows, columns = rows[order], columns[order]
        ranks, share = pd.Series(self.ranks[rows, columns], dtype="Int64"), self.share[rows, columns]
        frame = pd.DataFrame(
            {
                "query_paragraph": np.asarray(self.labels, dtype=object)[rows],
                "passage_id": np.asarray(self.passage_ids, dtype=object)[columns],
                "rank": ranks.where(ranks > 0),
                "similarity": self.similarity[rows, columns],
                "share": share,
                "share_of_score": share / self.score if self.in_percent and self.score else np.nan,
            }
        )
        for name, texts, of in (
            ("query_text", self.query_texts, rows),
            ("passage_text", self.passage_texts, columns),
        ):
            if texts is not None:
                frame[name] = np.asarray(texts, dtype=object)[of]
        return frame

    def heatmap(self, path: str | Path | None = None) -> Any:
        """Return a matplotlib figure of the shares; write it to ``path`` if given."""
        from haybale.drawing import draw_heatmap

        rank = "not found" if self.rank is None else f"rank {self.rank}"
        return draw_heatmap(
            self.share,
            self.labels,
            [passage_id.removeprefix(f"{self.doc_id}:") for passage_id in self.passage_ids],
            title=f"{self.doc_id} ({rank}, {self.aggregation})",
            x_label="paragraph of the document",
            y_label="paragraph of the query",
            value_label="share",
            path=path,
        )


def explain_document(
    index: Any,
    aggregation: str,
    hits: Hits,
    vectors: Vectors | None,
    queries: Any,
    doc_id: str,
    *,
    query_texts: list[str] | None,
    passage_texts: list[str] | None,
    scored: tuple[Task, list[Scored | DeviceScores]] | None = None,
    **options: Any,
) -> ParagraphExplanation:
    """Explain a document's score for one query document, whose paragraphs have the ``hits`` (n, N).

    ``queries`` are the vectors or texts of the paragraphs, and ``passage_texts`` the texts of the document's passages.
    """
    document, n = int(index.document_numbers([doc_id])[0]), len(hits)
    start, end = map(int, index.doc_offsets[document : document + 2])
    score = rank = None
    n_documents, share = 0, np.zeros((n, end - start))
    with device_of(hits.passages).current():
        task, blocks = scored or scored_blocks(hits, aggregation, index, vectors, **options)
        for block in blocks:
            _, documents, scores = map(to_numpy, block.columns())
            n_documents = len(documents)
            for position in np.flatnonzero(documents == document):
                score = float(scores[position])
                tied_ids = [index.doc_ids[tied].as_py() for tied in documents[scores == score].tolist()]
                rank = 1 + int((scores > score).sum()) + sum(tied_id < doc_id for tied_id in tied_ids)
                rows, passages, shares = _shares(task, block, int(position), score)
                np.add.at(share, (rows, passages - start), shares)
    ranks = np.zeros((n, end - start), dtype=np.int64)
    passages = to_numpy(hits.passages[:, : task.n_hits])
    row, column = np.nonzero((passages >= start) & (passages < end))  # of so many hits, few are of one document
    ranks[row, passages[row, column] - start] = column + 1
    labels, ids = [str(number) for number in range(n)], index.passage_ids[start:end].to_pylist()
    similarity = partial(_similarities, index, queries, document)
    ranked = doc_id, aggregation, score, rank, n_documents
    return ParagraphExplanation(*ranked, labels, ids, ranks, similarity, share, query_texts, passage_texts)


def _similarities(index: Any, queries: Any, document: int) -> Floats:
    similarities: Floats = to_numpy(index.similarities(queries, document))
    return similarities


def scored_blocks(
    hits: Hits, aggregation: str, index: Any, vectors: Vectors | None, **options: Any
) -> tuple[Task, list[Scored | DeviceScores]]:
    """Return the scores of all documents for one query document, which explanations of several documents share."""
    task = make_task(hits, aggregation, index.doc_of, np.array([0, len(hits)]), vectors, **options)
    return task, list(score_blocks(task, slice(0, 1)))  # at most one block


def _shares(task: Task, scores: Scored | DeviceScores, position: int, score: float) -> tuple[Ints, Ints, Any]:
    """Return ``(query paragraph, passage, share)`` of the hits that make up a document's score, each (n,)."""
    rows, columns, share = scores.hits_of(position)
    passages = to_numpy(task.hits.passages)[rows, columns]
    if share is not None:
        return rows, passages, share
    if task.vectors is None:  # a maximum: the first hit that reaches it
        best = np.flatnonzero(to_numpy(task.hits.scores)[rows, columns] == np.float32(score))[:1]
        return rows[best], passages[best], score
    # ⟨min q, min p⟩ is a sum over dimensions. In each, one query paragraph and one passage have the extreme.
    retrieved = np.unique(passages)
    matrix = task.vectors.passages
    numbers = retrieved if sparse.issparse(matrix) else array_namespace(matrix).asarray(retrieved)
    q, p = to_numpy(task.vectors.paragraphs), to_numpy(matrix[numbers])
    if sparse.issparse(q):
        terms = np.union1d(q.indices, p.indices)  # all other terms are 0
        q, p = q[:, terms].toarray(), p[:, terms].toarray()
    pick = np.argmin if task.aggregation.vectors == "minimum" else np.argmax
    row, column = pick(q, axis=0), pick(p, axis=0)  # (d,) the first among equal values
    d = np.arange(q.shape[1])
    return row, retrieved[column], q[row, d].astype(np.float64) * p[column, d].astype(np.float64)
