"""Token matrices of a graph's nodes and of queries, by a late-interaction model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from haybale.collections import Collection
from haybale.collections.collection import Ints
from haybale.context.engine_graph import graph_of
from haybale.embeddings.torch_models import late_interaction
from haybale.engine import Engine
from haybale.rankers.query_batch import QueryBatch
from haybale.vectors import Floats

_KEPT = 2**28  # numbers kept for nodes: 512 MiB of float16
_BLOCK = 64  # queries of a batch that are encoded together


class TokenMatrices:
    """A matrix for each text, with a vector of length 1 for each token.

    Nodes are kept as float16 until they take 512 MiB; of queries, the last block of a batch is kept.

    Parameters
    ----------
    model : str
        Hub id or folder that ``MultiVectorEncoder`` of sentence-transformers loads.
    query_length, passage_length : int
        Largest number of tokens.
    """

    def __init__(self, model: str, query_length: int, passage_length: int) -> None:
        self.model = late_interaction(model)
        self.query_length, self.passage_length = query_length, passage_length
        self._nodes: dict[int, Any] = {}
        self._collection: Collection | None = None  # that the nodes are of
        self._n_numbers = 0
        self._block: tuple[QueryBatch, int, list[Floats]] | None = None

    @cached_property
    def dim(self) -> int:
        return int(self.of_queries(["a text"])[0].shape[1])

    def of_queries(self, texts: Sequence[str]) -> list[Floats]:
        """Return a matrix (q, dim) for each query."""
        found = self.model.encode_query(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return [_unit(tokens[: self.query_length]) for tokens in found]

    def of_query(self, batch: QueryBatch, row: int) -> Floats:
        """Return the matrix of one query of a batch, encoded together with those beside it."""
        number, place = divmod(row, _BLOCK)
        block = self._block
        if block is None or block[0] is not batch or block[1] != number:
            block = batch, number, self.of_queries(batch.texts[number * _BLOCK : (number + 1) * _BLOCK])
            self._block = block
        return block[2][place]

    def of_nodes(self, engine: Engine, nodes: Ints) -> tuple[Floats, Any]:
        """Return tokens (n, t, dim) of passages' texts and sections' titles, and which of the tokens exist (n, t).

        An empty text has one token, which is 0.
        """
        if self._collection is not engine.collection or self._n_numbers > _KEPT:
            self._collection, self._nodes, self._n_numbers = engine.collection, {}, 0
        missing = [node for node in np.unique(nodes).tolist() if node not in self._nodes]
        if missing:
            graph, texts = graph_of(engine).graph, engine.collection.passages.texts
            n = graph.n_passages
            given = [texts[node].as_py() if node < n else graph.titles[node - n] for node in missing]
            full = [text for text in given if text.strip()]
            options = {"convert_to_numpy": True, "show_progress_bar": False}
            found = iter(self.model.encode_document(full, **options) if full else [])
            for node, text in zip(missing, given, strict=True):
                tokens = _unit(next(found)[: self.passage_length]) if text.strip() else np.zeros((1, self.dim))
                self._nodes[node] = tokens.astype(np.float16)
                self._n_numbers += tokens.size
        matrices = [self._nodes[node] for node in nodes.tolist()]
        lengths = np.array(list(map(len, matrices)))
        there = np.arange(lengths.max()) < lengths[:, None]
        values = np.zeros((*there.shape, self.dim), dtype=np.float32)
        values[there] = np.concatenate(matrices)
        return values, there


def _unit(tokens: Any) -> Floats:
    """Scale rows to length 1."""
    lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.asarray(tokens / np.where(lengths > 0, lengths, 1), dtype=np.float32)
