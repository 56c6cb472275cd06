"""Paragraph-level interactions: what a pair encoder makes of a query's paragraphs with those of a candidate document.

A *block* is a query with one candidate. It has a row for each query paragraph that is read, the elementwise maximum
over the candidate's paragraphs (Shao et al., "BERT-PLI", IJCAI 2020, eq. 2), and what won it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.collections import Queries
from haybale.collections.collection import indptr_from_counts, ragged_take
from haybale.embeddings import encode_queries
from haybale.embeddings.store_files import as_json
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.pairs.pair_encoders import PairEncoder
from haybale.parameters import COUNT, COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.retrieval import Run
from haybale.vectors import Floats, Matrix

Ints = NDArray[np.int64]

SELECTIONS = {"first": (54, 40), "best": (16, 2)}  # N and M where they are not given
READING: dict[str, Constraints] = {
    "k": COUNT,
    "n": COUNT_OR_NONE,
    "m": COUNT_OR_NONE,
    "select": one_of(SELECTIONS),
}
_PAIRS = 4096  # of a chunk


@dataclass(frozen=True)
class Interactions:
    """Blocks and their rows.

    Parameters
    ----------
    blocks : frame, a row a block
        ``query_id``, ``doc_id``, ``rank`` and ``score`` (of the run), ``level`` (its score among the candidates of the
        query, with mean 0 and standard deviation 1), ``rows``, ``passages`` (read with each of them), ``cut`` (query
        paragraphs that are not read) and ``texts``, a digest of what was read from.
    values : (n_rows, d) float16 or float32
        Max-pooled pairs, the rows of a block side by side.
    paragraphs, passages : (n_rows,) int32
        Which paragraph of the query a row is of, and which passage of the document is the maximum in most columns.
    padding : (d,) float32
        What a missing pair would be.
    settings : dict
        Of the pair encoder and of what is read.
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
        """(n_blocks + 1,) where the rows of each block begin."""
        return indptr_from_counts(self.blocks["rows"].to_numpy())

    @cached_property
    def levels(self) -> Floats:
        """(n_blocks,) of the first stage."""
        return self.blocks["level"].to_numpy(dtype=np.float32)

    @cached_property
    def n_passages(self) -> Ints:
        """(n_blocks,) that each row of a block is of."""
        return self.blocks["passages"].to_numpy(dtype=np.int64)

    def take(self, numbers: Sequence[int] | Ints) -> Interactions:
        """Some of the blocks, in this order."""
        chosen = np.asarray(numbers, dtype=np.int64)
        rows, _ = ragged_take(self.offsets, chosen)
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in ("values", "paragraphs", "passages")}
        return replace(self, blocks=self.blocks.iloc[chosen].reset_index(drop=True), **parts)

    @classmethod
    def joined(cls, parts: Sequence[Interactions]) -> Interactions:
        """Blocks of one and the same encoder and reading, behind each other."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("values", "paragraphs", "passages")
        }
        return replace(parts[0], blocks=pd.concat([part.blocks for part in parts], ignore_index=True), **columns)


class Reading:
    """Which paragraphs of queries and of their candidates are read together, and the reading of them.

    Parameters
    ----------
    engine : Engine
        With the documents, and the vectors that ``select="best"`` goes by.
    queries : Queries
    run : Run
        Whose first ``k`` documents of each query are the candidates; those without a passage cannot be read.
    pairs : PairEncoder
    k : int, default 50
    n, m : int, optional
        Query paragraphs, and passages that each of them meets (N and M); default: 54 and 40 of ``"first"``, 16 and 2
        of ``"best"``.
    select : {"first", "best"}, default "first"
        The first ones, as in the paper; or the ``n`` query paragraphs that are most similar to a passage of the
        document by the engine's vectors, each with its ``m`` most similar passages.
    vectors : list of (n_paragraphs, d), optional
        Of the paragraphs of each query, where they are known.

    Raises
    ------
    InputError
        A query of the run that is not among ``queries``, a document that the engine does not have, a query's own
        document among its candidates, no candidate with a passage.
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
        self.engine, self.queries, self.pairs, self._vectors = engine, queries, pairs, vectors
        self.select, self.k = select, k
        self.n, self.m = n or SELECTIONS[select][0], m or SELECTIONS[select][1]
        self.blocks, self._rows, self._documents = self._planned(run.top(k))

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the numbers, as JSON can hold it."""
        return settings_of(self.engine, self.pairs, self.n, self.m, self.select)

    @cached_property
    def n_pairs(self) -> Ints:
        """(n_blocks,) pairs of each block."""
        return self._sizes[0] * self._sizes[1]

    @cached_property
    def _sizes(self) -> tuple[Ints, Ints]:
        """Rows of each block, and passages of each row, (n_blocks,)."""
        return self.blocks["rows"].to_numpy(dtype=np.int64), self.blocks["passages"].to_numpy(dtype=np.int64)

    def chunks(self, pairs: int = _PAIRS) -> list[Ints]:
        """The numbers of blocks that are read at once: whole blocks, about so many pairs."""
        starts, used = [0], 0
        for number, more in enumerate(self.n_pairs.tolist()):
            if used + more > pairs and number > starts[-1]:
                starts.append(number)
                used = 0
            used += more
        return [np.arange(start, end) for start, end in pairwise([*starts, len(self.blocks)])]

    def all(self) -> Interactions:
        """Everything, in memory."""
        return Interactions.joined([self.read(chunk) for chunk in self.chunks()])

    def read(self, numbers: Ints) -> Interactions:
        """Some blocks, made of their own pairs alone."""
        firsts, of_query = self._texts(self._rows[numbers], self.queries.paragraphs_of)
        seconds, of_document = self._texts(self._documents[numbers], self._passages_of)
        met = [self._selected(number) for number in numbers.tolist()]
        which = [
            np.add(pairs, (of_query[self._rows[number]], of_document[self._documents[number]]))
            for number, pairs in zip(numbers.tolist(), met, strict=True)
        ]
        encoded = self.pairs.encode(firsts, seconds, np.concatenate(which))
        values, paragraphs, passages = [], [], []
        for number, pairs, part in zip(numbers.tolist(), met, self._parted(encoded, numbers), strict=True):
            rows = int(self._sizes[0][number])
            table = part.reshape(rows, -1, part.shape[1])
            values.append(table.max(axis=1))
            winner = _most_frequent(table.argmax(axis=1), table.shape[1])
            paragraphs.append(pairs[:: table.shape[1], 0])
            passages.append(pairs[:, 1].reshape(rows, -1)[np.arange(rows), winner])
        whose, won = (np.concatenate(each).astype(np.int32) for each in (paragraphs, passages))
        blocks = self.blocks.iloc[numbers].reset_index(drop=True)
        return Interactions(blocks, np.concatenate(values), whose, won, self.padding, self.settings)

    @cached_property
    def padding(self) -> Floats:
        """(d,) what a missing pair would be."""
        return self.pairs.padding()

    def _planned(self, run: Run) -> tuple[pd.DataFrame, Ints, Ints]:
        """The blocks, with the rows of their queries and the numbers of their documents."""
        collection = self.engine.collection
        known = {query: row for row, query in enumerate(self.queries.ids.to_pylist())}
        strangers = [query for query in run.query_ids if query not in known]
        if strangers:
            raise InputError(f"query {strangers[0]!r} of the run is not among the queries whose texts are read")
        places, ranks, ids, scores = run.flat()
        rows = np.array([known[query] for query in run.query_ids], dtype=np.int64)[places]
        documents = collection.document_numbers(ids)
        itself = documents == self.queries.own[rows]
        if itself.any():
            query = run.query_ids[int(places[itself.argmax()])]
            raise InputError(f"the run has the document that query {query!r} was taken from among its candidates")
        there = np.diff(collection.passages.doc_offsets)[documents]
        paragraphs = np.diff(self.queries.offsets)[rows]
        if len(rows) and not paragraphs.all():
            raise InputError(f"query {run.query_ids[int(places[paragraphs.argmin()])]!r} has no paragraph")
        kept = there > 0
        if not kept.any():
            raise InputError("the run has no document with a passage: there is nothing to read")
        blocks = pd.DataFrame(
            {
                "query_id": np.asarray(run.query_ids, dtype=object)[places],
                "doc_id": ids.to_pylist(),
                "rank": ranks,
                "score": scores,
                "rows": np.minimum(paragraphs, self.n),
                "passages": np.minimum(there, self.m),
                "cut": np.maximum(paragraphs - self.n, 0),
            }
        )[kept].reset_index(drop=True)
        blocks.insert(4, "level", levels(blocks["query_id"], blocks["score"]))
        rows, documents = rows[kept], documents[kept]
        blocks["texts"] = self._digests(rows, documents)
        return blocks, rows, documents

    def _digests(self, rows: Ints, documents: Ints) -> list[str]:
        """Of the texts of each block: those of the query and of the document."""
        of_query = {row: _digest(self.queries.paragraphs_of(row)) for row in np.unique(rows).tolist()}
        of_document = {number: _digest(self._passages_of(number)) for number in np.unique(documents).tolist()}
        pairs = zip(rows.tolist(), documents.tolist(), strict=True)
        return [_digest([of_query[row], of_document[number]]) for row, number in pairs]

    def _passages_of(self, document: int) -> list[str]:
        passages = self.engine.collection.passages
        return passages.texts[passages.doc_offsets[document] : passages.doc_offsets[document + 1]].to_pylist()  # type: ignore[no-any-return]

    def _texts(self, owners: Ints, texts_of: Any) -> tuple[list[str], dict[int, int]]:
        """The texts of some owners, each once, and where those of an owner begin."""
        texts: list[str] = []
        starts = {}
        for owner in dict.fromkeys(owners.tolist()):
            starts[owner] = len(texts)
            texts += texts_of(owner)
        return texts, starts

    def _selected(self, number: int) -> Ints:
        """(pairs, 2) paragraph of the query and passage of the document, by paragraph; as many passages for each."""
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
        """Of each query that is read."""
        rows = np.unique(self._rows)
        if self._vectors is not None:
            return {row: self._vectors[row] for row in rows.tolist()}
        return dict(zip(rows.tolist(), paragraph_vectors(self.engine, self.queries.take(rows)), strict=True))

    def _parted(self, encoded: Floats, numbers: Ints) -> Iterator[Floats]:
        yield from np.split(encoded, np.cumsum(self.n_pairs[numbers])[:-1])


def settings_of(engine: Engine, pairs: PairEncoder, n: int | None, m: int | None, select: str) -> dict[str, Any]:
    """What decides the numbers of interactions, as JSON can hold it; of ``"best"`` also where near is."""
    n, m = n or SELECTIONS[select][0], m or SELECTIONS[select][1]
    found = {"pairs": pairs.describe(), "n": n, "m": m, "select": select}
    return as_json(found | ({"engine": engine.id} if select == "best" else {}))  # type: ignore[no-any-return]


def levels(query_ids: Any, scores: Any) -> NDArray[np.float64]:
    """(n,) scores among those of their query, with mean 0 and standard deviation 1; equal scores are 0.

    >>> levels(["a", "a", "b"], [3.0, 1.0, 7.0])
    array([ 1., -1.,  0.])
    """
    by_query = pd.Series(scores, dtype=float).groupby(np.asarray(query_ids))
    mean, deviation = by_query.transform("mean").to_numpy(), by_query.transform("std", ddof=0).to_numpy()
    apart = np.asarray(scores, dtype=float) - mean
    flat = deviation <= 1e-12 * np.abs(mean)
    return np.where(flat, 0.0, apart / np.where(flat, 1.0, deviation))


def paragraph_vectors(engine: Engine, queries: Queries) -> list[Matrix]:
    """Of each query the vectors of its paragraphs, by the engine's encoder."""
    flat = encode_queries(engine.encoder, queries.paragraphs.to_pylist())
    return [flat[start:end] for start, end in pairwise(queries.offsets - queries.offsets[0])]


def _most_frequent(winners: Ints, n: int) -> Ints:
    """(rows,) the number below n that is most frequent in each row; of equally frequent ones the smallest."""
    counts = np.zeros((len(winners), n), dtype=np.int64)
    np.add.at(counts, (np.arange(len(winners))[:, None], winners), 1)
    return counts.argmax(axis=1)  # type: ignore[no-any-return]


def _digest(texts: Sequence[str]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for text in texts:
        found.update(len(text).to_bytes(8, "little") + text.encode())
    return found.hexdigest()
