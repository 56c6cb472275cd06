"""On which paragraphs a document's score rests: for every pair of paragraphs its rank, similarity and share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, to_numpy
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.parm.aggregate import Task
from haybale.retrieval.parm.formulas import Options, Vectors
from haybale.vectors import Floats, Matrix, array_namespace

SHOWN = ("share", "similarity", "rank")


@dataclass(frozen=True)
class ParagraphExplanation:
    """A document's score, taken apart by query paragraph (n) and paragraph of the document (m).

    ``share`` sums to ``score``, exactly, for CombSum, RRF, VSum, VScores, VRanks and VRRF, and up to rounding for VAvg.
    MaxP and FirstP rest on one pair. VMin and VMax do not split by hits; there a share is what the dimensions add whose
    extremes come from this pair. ``rank`` and ``score`` are None for a document that no paragraph found.
    """

    doc_id: str
    aggregation: str
    score: float | None
    rank: int | None
    n_documents: int  # found for the query
    labels: list[str]  # (n,) of the query's paragraphs
    passage_ids: list[str]  # (m,)
    ranks: Ints  # (n, m) rank of the passage in the paragraph's list, from 1; 0 where it is not in it
    similarity: Floats  # (n, m) the index's score of every pair
    share: NDArray[np.float64]  # (n, m)
    query_texts: list[str] | None = None
    passage_texts: list[str] | None = None

    @property
    def in_percent(self) -> bool:
        """Whether shares are parts of the score: it is positive, and no pair, paragraph or passage adds or takes more.

        Where vectors point away from each other, similarities, and with them shares and scores, may be below 0; 112 %
        of such a score would say nothing.
        """
        if self.score is None or self.score <= 0:
            return False
        parts = (self.share, self.share.sum(axis=0), self.share.sum(axis=1))
        return all(self._within(float(np.abs(part).max(initial=0))) for part in parts)

    def _within(self, share: float) -> bool:
        return self.score is not None and abs(share) <= self.score * (1 + 1e-6)  # the last bits are rounding

    def to_frame(self, all_pairs: bool = False) -> pd.DataFrame:
        """A row a pair that was found or carries a share, the largest share first; with ``all_pairs`` every pair.

        ``rank`` is missing where the passage is not in the paragraph's list, ``share_of_score`` unless
        :attr:`in_percent`; texts are there where they are known.
        """
        rows, columns = np.nonzero((self.ranks > 0) | (self.share != 0) | all_pairs)
        order = np.lexsort((columns, rows, -np.abs(self.share[rows, columns])))
        rows, columns = rows[order], columns[order]
        ranks, share = self.ranks[rows, columns], self.share[rows, columns]
        frame = pd.DataFrame(
            {
                "query_paragraph": np.asarray(self.labels, dtype=object)[rows],
                "passage_id": np.asarray(self.passage_ids, dtype=object)[columns],
                "rank": pd.array(np.where(ranks > 0, ranks, 0), dtype="Int64"),
                "similarity": self.similarity[rows, columns],
                "share": share,
                "share_of_score": share / (self.score if self.in_percent and self.score else np.nan),
            }
        )
        frame.loc[ranks == 0, "rank"] = pd.NA
        if self.query_texts is not None:
            frame["query_text"] = np.asarray(self.query_texts, dtype=object)[rows]
        if self.passage_texts is not None:
            frame["passage_text"] = np.asarray(self.passage_texts, dtype=object)[columns]
        return frame

    def text(self, top: int = 5, width: int = 100) -> str:
        """Which paragraphs carry most, on either side; the ``top`` pairs, with ``width`` characters of their texts."""
        if self.score is None:
            return f"{self.doc_id}: found by no paragraph of the query (best similarity {self.similarity.max():.3f})"
        frame, in_percent = self.to_frame(), self.in_percent
        found = self.ranks > 0
        lines = [
            f"{self.doc_id}: rank {self.rank:,} of {self.n_documents:,}, {self.aggregation} {self.score:.4f}; "
            f"{found.any(axis=1).sum()} of {len(self.labels)} query paragraphs found "
            f"{found.any(axis=0).sum()} of its {len(self.passage_ids)}",
            f"  most from its paragraphs {self._most(self.passage_ids, self.share.sum(axis=0), in_percent)}; "
            f"through the query's {self._most(self.labels, self.share.sum(axis=1), in_percent)}",
        ]
        for pair in frame.head(top).to_dict("records"):
            rank = "not in its list" if pd.isna(pair["rank"]) else f"rank {pair['rank']}"
            lines.append(
                f"  {self._shown(pair['share'], in_percent)}  {pair['query_paragraph']} → {pair['passage_id']}  "
                f"({rank}, similarity {pair['similarity']:.3f})"
            )
            texts = [pair[name] for name in ("query_text", "passage_text") if name in pair]
            lines += [f"                  {shortened(text, width)}" for text in texts]
        rest = frame["share"].iloc[top:]
        if len(rest):
            lines.append(f"  {self._shown(float(rest.sum()), in_percent)}  {len(rest):,} other pairs")
        return "\n".join(lines)

    def _percent(self, share: float) -> str:
        assert self.score
        percent = 100 * share / self.score
        return f"{percent:.0f} %" if abs(percent) >= 10 else f"{percent:.1f} %"

    def _shown(self, share: float, in_percent: bool) -> str:
        if not in_percent:
            return f"{share:+.4f}"
        return f"{share:+.4f} {self._percent(share) if self._within(share) else '':>6}"

    def _most(self, names: list[str], shares: NDArray[np.float64], in_percent: bool) -> str:
        """The three that carry most, summed over the other side."""
        order = [i for i in np.lexsort((np.arange(len(shares)), -shares))[:3] if shares[i] > 0]
        shown = [self._percent(shares[i]) if in_percent else f"{shares[i]:+.4f}" for i in order]
        short = [names[i].removeprefix(f"{self.doc_id}:") for i in order]
        return ", ".join(f"{name} ({value})" for name, value in zip(short, shown, strict=True)) or "none"

    def __str__(self) -> str:
        return self.text()

    def heatmap(self, path: str | Path | None = None, of: str = "share") -> Any:
        """Query paragraphs × paragraphs of the document, drawn; ``of`` ``"share"``, ``"similarity"`` or ``"rank"``.

        Returns a matplotlib figure, and writes it to ``path`` (svg, png, pdf).
        """
        from haybale.drawing import draw_heatmap

        if of not in SHOWN:
            raise UnknownNameError("value of a heatmap", of, SHOWN)
        values = {"share": self.share, "similarity": self.similarity, "rank": np.where(self.ranks, self.ranks, np.nan)}
        rank = "not found" if self.rank is None else f"rank {self.rank}"
        return draw_heatmap(
            np.asarray(values[of], dtype=np.float64),
            self.labels,
            [passage_id.removeprefix(f"{self.doc_id}:") for passage_id in self.passage_ids],
            title=f"{self.doc_id} ({rank}, {self.aggregation})",
            x_label="paragraph of the document",
            y_label="paragraph of the query",
            value_label=of,
            path=path,
        )


def explained(
    index: Any,
    aggregation: str,
    hits: Hits,
    vectors: Vectors | None,
    queries: Any,
    doc_id: str,
    *,
    weights: Sequence[float] | None,
    options: dict[str, Any],
    labels: Sequence[str] | None = None,
    query_texts: list[str] | None = None,
    passage_texts: Any = None,
) -> ParagraphExplanation:
    """Explain one document for one query document, whose paragraphs are the rows of ``hits`` (n, N).

    ``queries``: the paragraphs as the index is searched with them, vectors or texts.
    """
    document = index.document_number(doc_id)
    start, end = (int(place) for place in index.doc_offsets[document : document + 2])
    n = len(hits)
    labels = [str(number) for number in range(n)] if labels is None else list(labels)
    if len(labels) != n:
        raise InputError(f"{len(labels)} labels for {n} query paragraphs")
    with device_of(hits.passages).current():
        task = Task(hits, aggregation, index.doc_of, np.array([0, n]), vectors, weights, Options(**options))
        score, share, documents, scores = _shares(task, document, start, end)
    ranks = np.zeros((n, end - start), dtype=np.int64)
    row, rank, passage, _ = hits.top(options["n_hits"]).to_numpy().flat()
    within = (passage >= start) & (passage < end)
    ranks[row[within], passage[within] - start] = rank[within]
    place = None
    if score is not None:
        tied = [int(other) for other in documents[scores == score] if other != document]
        place = 1 + int((scores > score).sum()) + sum(index.doc_ids[other].as_py() < doc_id for other in tied)
    if passage_texts is not None:
        part = passage_texts[start:end]
        passage_texts = list(part.to_pylist() if hasattr(part, "to_pylist") else part)
    return ParagraphExplanation(
        doc_id,
        aggregation,
        score,
        place,
        len(documents),
        labels,
        index.passage_ids[start:end].to_pylist(),
        ranks,
        to_numpy(index.similarities(queries, document)),
        share,
        query_texts,
        passage_texts,
    )


def _shares(
    task: Task, document: int, start: int, end: int
) -> tuple[float | None, NDArray[np.float64], Ints, NDArray[np.float64]]:
    """``(score or None, shares (n, m), documents found, their scores)`` of a document with passages ``start:end``."""
    share = np.zeros((len(task.hits), end - start))
    done = next(task.blocks(slice(0, 1)), None)
    if done is None:
        return None, share, np.empty(0, dtype=np.int64), np.empty(0)
    _, block, scored = done
    cells, _, documents = map(to_numpy, block.filled())
    scores = to_numpy(scored.score)[cells]
    at = np.flatnonzero(documents == document)
    if not len(at):
        return None, share, documents, scores
    score, cell = float(scores[at[0]]), int(cells[at[0]])
    rows, columns = np.nonzero(to_numpy(block.cell == cell))  # the hits of the document
    passages = to_numpy(block.passages)[rows, columns]
    if scored.share is not None:
        by = 1 if scored.divisor is None else float(scored.divisor[cell])
        share[rows, passages - start] = to_numpy(scored.share)[rows, columns] / by
    elif task.vectors is None:  # a maximum: the first of the best
        best = np.flatnonzero(to_numpy(block.scores)[rows, columns] == np.float32(score))[0]
        share[rows[best], passages[best] - start] = score
    else:  # ⟨min q, min p⟩ is a sum over dimensions, each with one paragraph on either side that gives the extreme
        paragraphs, retrieved = np.flatnonzero(to_numpy(block.weight) > 0), np.unique(passages)
        q, p = _rows(task.vectors.paragraphs, paragraphs), _rows(task.vectors.passages, retrieved)
        if sparse.issparse(q):
            terms = np.union1d(q.indices, p.indices)  # outside of them all is 0
            q, p = q[:, terms].toarray(), p[:, terms].toarray()
        pick = np.argmin if task.aggregation.vectors == "minimum" else np.argmax
        row, column = pick(q, axis=0), pick(p, axis=0)  # (d,) the first of equal ones
        d = np.arange(q.shape[1])
        product = q[row, d].astype(np.float64) * p[column, d].astype(np.float64)
        np.add.at(share, (paragraphs[row], retrieved[column] - start), product)
    return score, share, documents, scores


def _rows(matrix: Matrix, numbers: Ints) -> Matrix:
    """Rows of a matrix, in main memory."""
    return matrix[numbers] if sparse.issparse(matrix) else to_numpy(matrix[array_namespace(matrix).asarray(numbers)])


def shortened(text: str, width: int = 100) -> str:
    """One line of at most ``width`` characters.

    >>> shortened("one two\\nthree", 9)
    'one two …'
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
