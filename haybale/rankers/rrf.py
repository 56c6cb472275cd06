"""Reciprocal rank fusion of rankers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from haybale.errors import InputError
from haybale.parameters import COUNT, NOT_NEGATIVE
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.retrieval import Run, reciprocal_rank_fusion


class Fusion(Ranker):
    """The base of rankers that fuse others: each is fitted on the same queries, and asked for ``depth`` documents."""

    rankers: tuple[Ranker, ...]
    depth: int

    def check_params(self) -> None:
        """As every ranker's; one of a kind is fused."""
        super().check_params()
        strangers = [each for each in self.rankers if not isinstance(each, Ranker)]
        if strangers or not self.nested():
            found = repr(strangers[0]) if strangers else "none"
            raise InputError(f"{type(self).__name__} fuses rankers, found {found}")
        [(name, times)] = Counter(map(str, self.nested())).most_common(1)
        if times > 1:
            raise InputError(f"{type(self).__name__}: {name} stands there twice")

    @property
    def uses_vectors(self) -> bool:
        """Only rankers within do."""
        return False

    def fit_batch(self, training: Training) -> None:
        self.__dict__.pop("_named", None)
        self.rankers_ = [ranker.fitted(training) for ranker in self.nested()]

    def _runs(self, batch: QueryBatch, depth: int = 0, *, out_of_fold: bool = False) -> dict[str, Run]:
        """What each ranker finds, ``depth`` documents if that is more than are fused."""
        depth = max(depth, self.depth)
        return {
            name: ranker.run_out_of_fold(batch, depth) if out_of_fold else ranker.run(batch, depth)
            for name, ranker in self._named.items()
        }

    @cached_property
    def _named(self) -> dict[str, Ranker]:
        """The fitted rankers by name; kept, since writing the names takes longer than some of them take to rank."""
        return {str(ranker): ranker for ranker in self.rankers_}


class RRF(Fusion):
    """score(d) = Σ over rankers that have d among their first ``depth`` of 1/(k + rank).

    Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009.

    Parameters
    ----------
    *rankers : Ranker
        What is fused.
    k : float, default 60
    depth : int, default 1000
        Documents of each ranker that count.
    """

    name = "rrf"
    variants: ClassVar = {"rrf": {}}
    _parameter_constraints: ClassVar = {"k": NOT_NEGATIVE, "depth": COUNT}

    def __init__(self, *rankers: Ranker, k: float = 60, depth: int = 1000) -> None:
        self.rankers = rankers
        self.k = k
        self.depth = depth

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._fused(batch, self._runs(batch), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._fused(batch, self._runs(batch, out_of_fold=True), depth)

    def _fused(self, batch: QueryBatch, runs: dict[str, Run], depth: int) -> Run:
        with batch.timed("fuse"):
            return reciprocal_rank_fusion(list(runs.values()), rrf_k=self.k, k=depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        shares = []
        for ranker in self.rankers_:
            listed = [doc for doc, _ in ranker.run(batch, self.depth)[batch.ids[0]]]
            if base.doc_id in listed:
                rank = listed.index(base.doc_id) + 1
                inner = ranker.explained(batch, document)
                shares.append(Share(f"{ranker}, rank {rank:,}", 1 / (self.k + rank), of=inner))
        return replace(base, shares=by_size(shares))
