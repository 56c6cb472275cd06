"""Paragraph-level interactions: encoded pairs of a query's paragraphs and a candidate document's passages.

A *block* holds the interactions of a query with one candidate. It has a row for each query paragraph that is read: the
elementwise maximum over the candidate's passages (Shao et al., "BERT-PLI", IJCAI 2020, eq. 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.collections import Queries
from haybale.collections.collection import Ints, indptr_from_counts, ragged_take
from haybale.embeddings.store_files import as_json
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.pairs.pair_encoders import PairEncoder
from haybale.parameters import COUNT, COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.retrieval import Run
from haybale.returned_values import method_of, returned_vectors
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Floats, Matrix

SELECTIONS = {"first": (54, 40), "best": (16, 2)}  # default n and m
READING: dict[str, Constraints] = {
    "k": COUNT,
    "n": COUNT_OR_NONE,
    "m": COUNT_OR_NONE,
    "select": one_of(SELECTIONS),
}
_PAIRS_PER_CHUNK = 4096


@dataclass(frozen=True)
class Interactions:
    """Blocks of interactions as a ragged array of rows.

    Parameters
    ----------
    blocks : frame with one row for each block
        ``query_id`` and ``doc_id``; ``rank`` and ``score`` in the run; ``level``, the score standardised within the
        query; ``rows``, their number; ``passages``, the number read with each row; ``cut``, the number of query
        paragraphs that are not read; and ``texts``, a digest of the texts of the query and the document.
    values : (n_rows, d) float16 or float32
        Max-pooled pairs, block after block.
    paragraphs : (n_rows,) int32
        The query paragraph of each row.
    passages : (n_rows,) int32
        The passage that has the maximum in most columns of each row.
    padding : (d,) float32
        The vector of a missing pair.
    settings : dict
        Settings of the pair encoder and the reading.
    """

    blocks: pd.DataFrame
    values: NDArray[Any]
    paragraphs: NDArray[np.int32]
    passages: NDArray[np.int32]
    padding: Floats
    settings: dict[str, Any]

    def __len__(self) -> int:
        return len(self.blocks)

    @cached_property
    def offsets(self) -> Ints:
        """The first row of each block (n_blocks + 1,)."""
        return indptr_from_counts(self.blocks["rows"].to_numpy())

    @cached_property
    def levels(self) -> Floats:
        """The standardised scores of the first stage (n_blocks,)."""
        return self.blocks["level"].to_numpy(dtype=np.float32)

    def take(self, numbers: Sequence[int] | Ints) -> Interactions:
        """Return the blocks with these numbers, in this order."""
        chosen = np.asarray(numbers, dtype=np.int64)
        rows, _ = ragged_take(self.offsets, chosen)
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in ("values", "paragraphs", "passages")}
        return replace(self, blocks=self.blocks.iloc[chosen].reset_index(drop=True), **parts)

    @classmethod
    def joined(cls, parts: Sequence[Interactions]) -> Interactions:
        """Concatenate blocks that have the same encoder and settings."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("values", "paragraphs", "passages")
        }
        return replace(parts[0], blocks=pd.concat([part.blocks for part in parts], ignore_index=True), **columns)


class Reading:
    """Choose pairs of query paragraphs and candidate passages, and encode them.

    Parameters
    ----------
    engine : Engine
        The engine with the documents, and with the vectors that ``select="best"`` uses.
    queries : Queries
    run : Run
        The first ``k`` documents of each query are its candidates; those without a passage are skipped.
    pairs : PairEncoder
    k : int, default 50
        Number of candidates of each query.
    n : int, optional
        Maximum number of paragraphs of each query. Default: 54 for ``"first"``, 16 for ``"best"``.
    m : int, optional
        Number of passages that each paragraph is paired with. Default: 40 for ``"first"``, 2 for ``"best"``.
    select : {"first", "best"}, default "first"
        ``"first"`` takes the first paragraphs and passages, as in the paper. ``"best"`` takes the ``n`` query
        paragraphs most similar to a passage by the engine's vectors, each with its ``m`` most similar passages.
    vectors : list of (n_paragraphs, d), optional
        Vectors of each query's paragraphs. Default: computed by the engine's encoder if needed.

    Raises
    ------
    InputError
        A parameter is out of range; the run has a query that is not in ``queries``, a document that is not in the
        engine, or a query's own document; or no candidate has a passage.
    """

    def __init__(
        self,
        engine: Engine,
        queries: Queries,
        run: Run,
        pairs: PairEncoder,
        *,
        k: int = 50,
        n: int | None = None,
        m: int | None = None,
        select: str = "first",
        vectors: list[Matrix] | None = None,
    ) -> None:
        check_parameters("interactions", {"k": k, "n": n, "m": m, "select": select}, READING)
        self.engine, self.queries, self.pairs, self._vectors = engine.snapshot(), queries, pairs, vectors
        self.select, self.k = select, k
        self.n, self.m = n or SELECTIONS[select][0], m or SELECTIONS[select][1]
        self.blocks, self._rows, self._documents = self._planned(run.top(k))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that determine the values, as JSON values."""
        return settings_of(self.engine, self.pairs, self.n, self.m, self.select)

    @cached_property
    def n_pairs(self) -> Ints:
        """The number of pairs of each block (n_blocks,)."""
        rows, passages = self._sizes
        return rows * passages

    @cached_property
    def _sizes(self) -> tuple[Ints, Ints]:
        """The rows of each block and the passages of each row, both (n_blocks,)."""
        return self.blocks["rows"].to_numpy(dtype=np.int64), self.blocks["passages"].to_numpy(dtype=np.int64)

    def chunks(self, pairs: int = _PAIRS_PER_CHUNK) -> list[Ints]:
        """Return the numbers of the blocks in each chunk of at most ``pairs`` pairs; a larger block is one chunk."""
        starts, used = [0], 0
        for number, more in enumerate(self.n_pairs.tolist()):
            if used + more > pairs and number > starts[-1]:
                starts.append(number)
                used = 0
            used += more
        return [np.arange(start, end) for start, end in pairwise([*starts, len(self.blocks)])]

    def all(self) -> Interactions:
        """Encode all blocks in memory."""
        return Interactions.joined([self.read(chunk) for chunk in self.chunks()])

    def read(self, numbers: Ints) -> Interactions:
        """Encode some blocks. Their values do not depend on the other blocks."""
        firsts, of_query = self._texts(self._rows[numbers], self.queries.paragraphs_of)
        seconds, of_document = self._texts(self._documents[numbers], self._passages_of)
        chosen = [self._selected(number) for number in numbers.tolist()]
        which = [
            np.add(pairs, (of_query[self._rows[number]], of_document[self._documents[number]]))
            for number, pairs in zip(numbers.tolist(), chosen, strict=True)
        ]
        pair_rows, method = np.concatenate(which), method_of(self.pairs, "encode")
        encoded = self.pairs.encode(firsts, seconds, pair_rows)
        encoded = returned_vectors(encoded, len(pair_rows), method, "return one row for each pair")
        values, paragraphs, passages = [], [], []
        of_blocks = np.split(encoded, np.cumsum(self.n_pairs[numbers])[:-1])
        for number, pairs, part in zip(numbers.tolist(), chosen, of_blocks, strict=True):
            rows = int(self._sizes[0][number])
            table = part.reshape(rows, -1, part.shape[1])
            values.append(table.max(axis=1))
            winner = _most_frequent(table.argmax(axis=1), table.shape[1])
            paragraphs.append(pairs[:: table.shape[1], 0])
            passages.append(pairs[:, 1].reshape(rows, -1)[np.arange(rows), winner])
        of_rows, winners = (np.concatenate(column).astype(np.int32) for column in (paragraphs, passages))
        blocks = self.blocks.iloc[numbers].reset_index(drop=True)
        return Interactions(blocks, np.concatenate(values), of_rows, winners, self.padding, self.settings)

    @cached_property
    def padding(self) -> Floats:
        """The vector (d,) of a missing pair."""
        return self.pairs.padding()

    def _planned(self, run: Run) -> tuple[pd.DataFrame, Ints, Ints]:
        """Return the blocks, the rows of their queries and the numbers of their documents, both (n_blocks,)."""
        collection = self.engine.collection
        query_rows = {query: row for row, query in enumerate(self.queries.ids.to_pylist())}
        unknown = [query for query in run.query_ids if query not in query_rows]
        if unknown:
            raise InputError(f"query {unknown[0]!r} of the run is not in 'queries'; add it, or remove it from the run")
        query_indices, ranks, ids, scores = run.flat()
        rows = np.array([query_rows[query] for query in run.query_ids], dtype=np.int64)[query_indices]
        documents = collection.document_numbers(ids)
        itself = documents == self.queries.own[rows]
        if itself.any():
            query = run.query_ids[int(query_indices[itself.argmax()])]
            raise InputError(f"the run must not have the document that query {query!r} was taken from; remove it")
        n_passages = np.diff(collection.passages.doc_offsets)[documents]
        n_paragraphs = np.diff(self.queries.offsets)[rows]
        if len(rows) and not n_paragraphs.all():
            query = run.query_ids[int(query_indices[n_paragraphs.argmin()])]
            raise InputError(f"query {query!r} has no paragraph; add its text, or remove it from the run")
        kept = n_passages > 0
        if not kept.any():
            raise InputError(f"expected a candidate with a passage, found none among the {len(kept)} of the run")
        blocks = pd.DataFrame(
            {
                "query_id": np.asarray(run.query_ids, dtype=object)[query_indices],
                "doc_id": ids.to_pylist(),
                "rank": ranks,
                "score": scores,
                "rows": np.minimum(n_paragraphs, self.n),
                "passages": np.minimum(n_passages, self.m),
                "cut": np.maximum(n_paragraphs - self.n, 0),
            }
        )[kept].reset_index(drop=True)
        blocks.insert(4, "level", levels(blocks["query_id"], blocks["score"]))
        rows, documents = rows[kept], documents[kept]
        blocks["texts"] = self._digests(rows, documents)
        return blocks, rows, documents

    def _digests(self, rows: Ints, documents: Ints) -> list[str]:
        """Return a digest of the query's and the document's texts for each block."""
        of_query = {row: _digest(self.queries.paragraphs_of(row)) for row in np.unique(rows).tolist()}
        of_document = {number: _digest(self._passages_of(number)) for number in np.unique(documents).tolist()}
        pairs = zip(rows.tolist(), documents.tolist(), strict=True)
        return [_digest([of_query[row], of_document[number]]) for row, number in pairs]

    def _passages_of(self, document: int) -> list[str]:
        passages = self.engine.collection.passages
        return passages.texts[passages.doc_offsets[document] : passages.doc_offsets[document + 1]].to_pylist()  # type: ignore[no-any-return]

    def _texts(self, owners: Ints, texts_of: Any) -> tuple[list[str], dict[int, int]]:
        """Return the texts of all owners (queries or documents), and the index of each owner's first text."""
        texts: list[str] = []
        starts = {}
        for owner in dict.fromkeys(owners.tolist()):
            starts[owner] = len(texts)
            texts += texts_of(owner)
        return texts, starts

    def _selected(self, number: int) -> Ints:
        """Return the pairs (n, 2) of a query paragraph and a passage of a block, paragraph by paragraph."""
        rows, passages = (int(column[number]) for column in self._sizes)
        if self.select == "first":
            return np.stack(np.divmod(np.arange(rows * passages), passages), axis=1)
        near = self.engine.passages.similarities(
            self._vectors_of[int(self._rows[number])], int(self._documents[number])
        )
        chosen = np.sort(np.argsort(-near.max(axis=1), kind="stable")[:rows])
        best = np.argsort(-near[chosen], axis=1, kind="stable")[:, :passages]
        return np.stack([np.repeat(chosen, passages), best.reshape(-1)], axis=1)

    @cached_property
    def _vectors_of(self) -> dict[int, Matrix]:
        """The paragraph vectors of each query that has a block, by its row."""
        rows = np.unique(self._rows)
        if self._vectors is not None:
            return {row: self._vectors[row] for row in rows.tolist()}
        vectors = QueryBatch(self.engine, self.queries.take(rows)).paragraph_vectors
        return dict(zip(rows.tolist(), vectors, strict=True))


def settings_of(engine: Engine, pairs: PairEncoder, n: int | None, m: int | None, select: str) -> dict[str, Any]:
    """Return the settings that determine interactions, as JSON values; for ``"best"`` they include the engine."""
    n, m = n or SELECTIONS[select][0], m or SELECTIONS[select][1]
    settings = {"pairs": pairs.describe(), "n": n, "m": m, "select": select}
    return as_json(settings | ({"engine": engine.id} if select == "best" else {}))  # type: ignore[no-any-return]


def levels(query_ids: Any, scores: Any) -> NDArray[np.float64]:
    """Standardise scores (n,) to mean 0 and standard deviation 1 within each query; equal scores become 0.

    >>> levels(["a", "a", "b"], [3.0, 1.0, 7.0])
    array([ 1., -1.,  0.])
    """
    by_query = pd.Series(scores, dtype=float).groupby(np.asarray(query_ids))
    mean, deviation = by_query.transform("mean").to_numpy(), by_query.transform("std", ddof=0).to_numpy()
    apart = np.asarray(scores, dtype=float) - mean
    flat = deviation <= 1e-12 * np.abs(mean)
    return np.where(flat, 0.0, apart / np.where(flat, 1.0, deviation))


def _most_frequent(winners: Ints, n: int) -> Ints:
    """Return the most frequent number in each row (rows,), the smallest in a tie; all numbers are below ``n``."""
    counts = np.zeros((len(winners), n), dtype=np.int64)
    np.add.at(counts, (np.arange(len(winners))[:, None], winners), 1)
    return counts.argmax(axis=1)  # type: ignore[no-any-return]


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(len(text).to_bytes(8, "little") + text.encode())
    return digest.hexdigest()
