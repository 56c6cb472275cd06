"""The SVR ensemble as a PyTerrier re-ranker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pyterrier as pt
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from haybale.collections.collection import numbers_of
from haybale.embeddings import Encoder, encode_queries
from haybale.ensemble import SVREnsemble
from haybale.errors import InputError
from haybale.pyterrier.frames import own_of, ranked, texts_of
from haybale.pyterrier.passages import check_unit
from haybale.retrieval import Hits
from haybale.retrieval.hits import Ints, from_flat
from haybale.vectors import Floats

Features = Callable[[Sequence[str], Hits], Floats]


class EnsembleReranker(pt.Transformer):
    """Retrieved documents or passages in the order of a fitted ensemble's scores.

    Parameters: ``ensemble``, a fitted :class:`SVREnsemble`; ``encoder`` of its query vectors, or a list with one a
    space; ``unit``, what ``docno`` names: of a ``"document"`` all passages in the ensemble's index are candidates and
    the best gives its score, a ``"passage"`` has its own score (and :class:`BestPassage` after it makes documents of
    passages); ``features``, for an ensemble with ``eta`` or ``blend``: query texts (m,) and candidates (m, c) to their
    features (m, c, f), see :func:`~haybale.ensemble.pair_features`.

    Input: ``qid``, ``query``, ``docno``, optionally ``own``; output: the same with ``score`` and ``rank`` replaced,
    without rows of the query's own document and of documents without a passage. Errors: an unknown docno, a query
    without text, ``protocol="injected"``, which does not rank.
    """

    def __init__(
        self,
        ensemble: SVREnsemble,
        encoder: Encoder | Sequence[Encoder],
        unit: str = "document",
        *,
        features: Features | None = None,
    ) -> None:
        check_unit(unit)
        if ensemble.protocol == "injected":
            raise InputError("protocol 'injected' does not rank: its candidates depend on the labels of the query")
        self.ensemble = ensemble
        self.encoder = encoder
        self.unit = unit
        self.features = features

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Results to results in a new order."""
        pt.validate.result_frame(inp, ["query"], context=self)
        check_is_fitted(self.ensemble, "support_")
        index, docnos = self.ensemble.index_, inp["docno"].tolist()
        if self.unit == "document":
            documents = numbers_of(index.doc_ids, docnos, "document")
            first, size = index.doc_offsets[documents], np.diff(index.doc_offsets)[documents]
        else:
            first = index.numbers(docnos)
            documents, size = index.doc_of[first], np.ones(len(first), dtype=np.int64)
        rows = np.flatnonzero((documents != index.excluded(own_of(inp), len(inp))) & (size > 0))
        if not len(rows):
            return ranked(inp, rows, [], np.empty(0))
        scores = self._scores(inp, rows, first[rows], size[rows])
        return ranked(inp, rows, [docnos[row] for row in rows], scores)

    def _scores(self, inp: pd.DataFrame, rows: Ints, first: Ints, size: Ints) -> NDArray[np.floating]:
        """(n,) of each row its best candidate's score; its candidates are passages first, first + 1, …"""
        query, qids = pd.factorize(inp["qid"].iloc[rows])
        order = np.argsort(query, kind="stable")
        query, first, size = query[order], first[order], size[order]
        starts = np.cumsum(size) - size
        passages = np.repeat(first - starts, size) + np.arange(size.sum())
        # Operators such as + leave the query out of some rows of a qid; one that has it is enough.
        texts = texts_of(inp[["qid", "query"]].groupby("qid", sort=False).first().loc[qids].reset_index())
        candidates = from_flat(len(texts), np.repeat(query, size), passages, np.zeros(len(passages), dtype=np.float32))
        features = None if self.features is None else self.features(texts, candidates)
        scores = self.ensemble.score_candidates(self._vectors(texts), candidates.passages, features)
        best = np.empty(len(rows), dtype=np.float64)
        best[order] = np.maximum.reduceat(scores[candidates.passages >= 0], starts)
        return best

    def _vectors(self, texts: list[str]) -> list[Floats]:
        encoders = self.encoder if isinstance(self.encoder, Sequence) else [self.encoder]
        return [encode_queries(encoder, texts) for encoder in encoders]
