"""Rankers fused by weights that were learned on judged queries."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import COUNT, RANDOM_STATE, SHARE, one_of
from haybale.rankers.bm25 import BM25
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.knn import KNN
from haybale.rankers.learned_fusion import JudgedPools, LearnedFusion, ndcg, pool_run, unseen_queries
from haybale.rankers.new_queries import NewQueries
from haybale.rankers.out_of_fold import OutOfFold
from haybale.rankers.parm import PARM
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.rrf import Fusion
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.svr import SVR
from haybale.rankers.training import Training
from haybale.retrieval import Run
from haybale.retrieval.fusion import completed
from haybale.retrieval.hits import Ints
from haybale.timing import timed

_FOLDS = 5
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the loss, for unseen queries
_FEW = 10  # unseen queries, of which nothing is told by folds
_EXPECTED = "queries expected to be new"  # a fact


@dataclass(frozen=True, eq=False)
class Candidate:
    """A share of the loss for unseen queries, what it would give, and its weights."""

    share: float
    known: float  # nDCG@10 of training queries by folds: of those that are not new
    new: float
    fusion: LearnedFusion
    folds: list[LearnedFusion | None]

    def expected(self, new: float) -> float:
        """nDCG@10 where such a share of the queries is new."""
        return (1 - new) * self.known + new * self.new


class Learned(OutOfFold, Fusion):
    """A linear score of what each ranker says of a document, with weights that make relevant documents likely.

    :class:`~haybale.LearnedFusion` has the formulas. Rankers that learn from judgements are asked about training
    queries as if they had not seen them; so is this one (:meth:`out_of_fold`), by folds with weights of the others.

    Parameters
    ----------
    *rankers : Ranker
        What is fused; without any, what helps on dev of four collections: BM25 and nearest neighbours over passages and
        documents, PARM with RRF and VRRF, similar queries, and the SVR ensemble.
    depth : int, default 100
        Documents of each ranker that are fused. What is ranked beyond them follows by the best rank that any gives it.
    unseen_share : "auto" or float, default "auto"
        As of :class:`~haybale.LearnedFusion`. "auto": of 0, 0.2, … 1 the one that loses least, by folds of the
        training queries. It may lose in nDCG@10 over all of them, against the best of these shares; and over unseen
        ones, against the best of the rankers that learn nothing: the larger of both counts. 0 where fewer than 10 are
        unseen or all rankers learn.
    l2, max_iter : optional
        As of :class:`~haybale.LearnedFusion`.
    n_queries : int, default 3000
        Training queries that the weights are learned on, drawn at random where there are more.
    random_state : int, default 0
    """

    name = "learned"
    variants: ClassVar = {"learned": {}}
    _parameter_constraints: ClassVar = {
        **LearnedFusion._parameter_constraints,
        "unseen_share": [*one_of(["auto"]), *SHARE],
        "n_queries": COUNT,
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        *rankers: Ranker,
        depth: int = 100,
        unseen_share: float | str = "auto",
        n_queries: int = 3000,
        l2: float = 100.0,
        max_iter: int = 50,
        random_state: int | None = 0,
    ) -> None:
        self.rankers = rankers
        self.depth = depth
        self.unseen_share = unseen_share
        self.n_queries = n_queries
        self.l2 = l2
        self.max_iter = max_iter
        self.random_state = random_state

    def nested(self) -> list[Ranker]:
        """What is fused."""
        return list(self.rankers or everything())

    def implied(self) -> dict[str, tuple[Ranker, ...]]:
        """What is fused where nothing was given."""
        return {} if self.rankers else {"rankers": everything()}

    def fit_batch(self, training: Training) -> None:
        super().fit_batch(training)
        batch, known = training.batch, self.learnable_rows(training)
        drawn = np.random.default_rng(self.random_state).choice(
            len(known), size=min(len(known), self.n_queries), replace=False
        )
        rows = known[np.sort(drawn)]
        batch = batch.take(rows) if len(rows) < len(training) else batch
        runs = self._runs(batch, out_of_fold=True)
        relevant = [training.relevant[row] for row in rows]
        is_unseen = unseen_queries(training.relevant, training.batch.queries.groups)[rows]
        qrels = pd.DataFrame({"query_id": batch.ids, "doc_id": relevant, "relevance": 1}).explode("doc_id").dropna()
        unseen = {query_id for query_id, new in zip(batch.ids, is_unseen, strict=True) if new}
        trained = [str(ranker) for ranker in self.rankers_ if ranker.learns_documents]
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(_FOLDS, self.random_state)
        self.__dict__.pop("fold_fusions_", None)
        self.choices_: list[Candidate] = []
        self.selection_report_: dict[str, Any] = {}
        self.new_queries_: NewQueries | None = None
        with batch.timed("learn fusion"):
            judged = JudgedPools.of(runs, qrels, self.depth, trained=trained, unseen=unseen)
            plain = sorted(set(runs) - set(trained))
            if self.unseen_share == "auto" and plain and judged.unseen.sum() >= _FEW:
                if trained and not judged.unseen.all():
                    self.new_queries_ = NewQueries.fit(runs, judged.pool.query_ids, judged.unseen, trained)
                self.choices_ = self.cross_validated(judged, qrels)
                of_new = {name: float(judged.ndcg[name][judged.unseen].mean()) for name in plain}
                self._choose(of_new, judged.unseen)
            else:
                share = 0.0 if isinstance(self.unseen_share, str) else self.unseen_share
                self.fusion_, self._judged = self._learned(judged, share), judged

    def cross_validated(self, judged: JudgedPools, qrels: pd.DataFrame) -> list[Candidate]:
        """Every share, by folds of the training queries."""
        folds = [[self._learned(part, share) for share in _SHARES] if part else None for part in self._outside(judged)]
        inside = self._folds(judged)
        told = np.array([folds[fold] is not None for fold in inside])
        found = []
        for number, share in enumerate(_SHARES):
            scores = np.zeros(len(judged.pool))
            fusions = [None if fold is None else fold[number] for fold in folds]
            for fold, fusion in enumerate(fusions):
                rows = inside[judged.pool.query] == fold
                if fusion is not None:
                    scores[rows] = fusion.scores(judged.features[:, rows])
            values = ndcg(pool_run(judged.pool, scores), judged.pool.query_ids, qrels) * told
            known, new = (float(values[of].mean()) if of.any() else 0.0 for of in (~judged.unseen, judged.unseen))
            found.append(Candidate(share, known, new, self._learned(judged, share), fusions))
        return found

    def _choose(self, of_new: dict[str, float], is_new: NDArray[np.bool_]) -> None:
        """The share that loses least; ``of_new``: nDCG@10 over new training queries of rankers that learn nothing."""
        best = max(sorted(of_new), key=lambda name: of_new[name])
        share = float(is_new.mean())
        most = max(choice.expected(share) for choice in self.choices_)
        loss = [max(most - choice.expected(share), of_new[best] - choice.new) for choice in self.choices_]
        chosen = self.choices_[int(np.argmin(loss))]
        self._take(chosen)
        self.selection_report_ = {
            "training queries, nDCG@10 by folds": chosen.expected(share),
            "the most, with another share": most,
            "new ones of these": int(is_new.sum()),
            "nDCG@10 of new ones": chosen.new,
            "of the best that learns nothing": of_new[best],
            "which is": best,
        }

    def _take(self, chosen: Candidate) -> None:
        self.fusion_, self.fold_fusions_ = chosen.fusion, chosen.folds

    def adapted(self, queries: QueriesLike) -> Learned:
        """A copy whose weights are the best for these queries, of which nothing has to be judged.

        :class:`~haybale.ensemble.NewQueries` estimates how many of them are new; the copy's ``unseen_share`` is the one
        with the largest nDCG@10 of training queries, by folds, were as many of them new. Its ``facts`` say both. Sixty
        queries tell the share to .06 to .17 on five collections (root mean square error), the worse the fewer training
        queries there are.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            As of :meth:`rank`; at least 10.

        Raises
        ------
        InputError
            Fewer queries; no ranker learns; a given ``unseen_share``; fewer than 10 new training queries, or all are.
        """
        self.check_fitted()
        if self.new_queries_ is None:
            needed = f"a ranker that learns, unseen_share='auto', {_FEW} new training queries and others"
            raise InputError(f"{self}: to adapt it needs {needed}")
        parts = [self._runs(batch) for batch in self.batches(queries)]
        runs = {name: Run.joined([part[name] for part in parts]).top(self.depth) for name in self._named}
        if len(next(iter(runs.values())).query_ids) < _FEW:
            raise InputError(f"adapted: fewer than {_FEW} queries do not tell how many are new")
        share = self.new_queries_.estimate(runs)
        found = copy(self)
        chosen = max(self.choices_, key=lambda choice: (choice.expected(share), -choice.share))
        found._take(chosen)
        found.unseen_share = chosen.share
        found.selection_report_ = {_EXPECTED: share, "nDCG@10 to expect, by folds": chosen.expected(share)}
        found.fitted_key = found.key()
        return found

    @cached_property
    def fold_fusions_(self) -> list[LearnedFusion | None]:
        """Weights of the queries outside each fold: learned when somebody asks for them, or saves."""
        with timed("learn fusion of folds"):
            share = self.fusion_.unseen_share
            found = [self._learned(part, share) if part else None for part in self._outside(self._judged)]
        del self._judged
        return found

    def _outside(self, judged: JudgedPools) -> Iterator[JudgedPools | None]:
        """The pools of the queries outside each fold; None where they have nothing to learn from."""
        inside = self._folds(judged)
        for fold in range(self.fold_of_.max() + 1):
            part = judged.take(inside != fold)
            yield part if part.right.any() else None

    def _folds(self, judged: JudgedPools) -> Ints:
        """(m,) the fold of each query of the pools."""
        return self.folds_of(judged.pool.query_ids)

    def _learned(self, judged: JudgedPools, share: float) -> LearnedFusion:
        settings = {name: getattr(self, name) for name in ("depth", "l2", "max_iter")}
        return LearnedFusion(unseen_share=share, **settings).learn(judged)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        runs = self._runs(batch, depth)
        with batch.timed("fuse (learned)"):
            return completed(self.fusion_.fuse(runs), list(runs.values()), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Queries that were learned from by the weights of the other folds, others by the weights of all."""
        runs = self._runs(batch, depth, out_of_fold=True)
        folds = self.folds_of(batch.ids)
        with batch.timed("fuse (learned)"):
            parts = []
            for fold in np.unique(folds):
                ids = np.array(batch.ids)[folds == fold].tolist()
                fusion = self.fusion_ if fold < 0 else self.fold_fusions_[fold]
                if fusion is None:
                    raise InputError(f"{self}: without {ids[0]!r} there are too few queries to learn weights from")
                parts.append(fusion.fuse({name: run.take(ids) for name, run in runs.items()}))
            return completed(Run.joined(parts).take(batch.ids), list(runs.values()), depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        runs = self._runs(batch)
        if not any(base.doc_id in dict(run[base.query_id]) for run in runs.values()):
            return self._explain_below(batch, document, base)
        found = {row["run"]: row for row in self.fusion_.explain(runs, batch.ids[0], base.doc_id).to_dict("records")}
        missing = [name for name in self._named if np.isnan(found[name]["rank"])]
        shares = []
        for name in [each for each in self._named if each not in missing]:
            inner = self._named[name].explained(batch, document)
            shares.append(Share(f"{name}, rank {int(found[name]['rank']):,}", found[name]["share"], of=inner))
        notes = [f"not among the first {self.depth} of {', '.join(missing)}"] if missing else []
        if self.selection_report_:
            share = self.fusion_.unseen_share
            notes.append(f"weights were learned with {share:.0%} of the loss for queries that training had not met")
        if _EXPECTED in self.selection_report_:
            notes.append(
                f"as {self.selection_report_[_EXPECTED]:.0%} of the queries to be ranked were expected to be such"
            )
        return replace(base, shares=by_size(shares), notes=notes)

    def _explain_below(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        """Of a document behind those that are fused: who has it highest."""
        ranks = {}
        for name, run in self._runs(batch, base.rank or 0).items():
            listed = list(dict(run[base.query_id]))
            if base.doc_id in listed:
                ranks[name] = listed.index(base.doc_id) + 1
        best = min(ranks, key=ranks.__getitem__)
        inner = self._named[best].explained(batch, document)
        shares = [Share(f"{best}, rank {ranks[best]:,}", base.score or 0.0, of=inner)]
        notes = [f"not among the first {self.depth} of any ranker: behind those that are, by its best rank"]
        return replace(base, shares=shares, notes=notes)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        facts = {"fusion": self.fusion_.to_dict(), "folds": _plain(self.fold_fusions_), "told": self.selection_report_}
        choices = [vars(c) | {"fusion": c.fusion.to_dict(), "folds": _plain(c.folds)} for c in self.choices_]
        new = None if self.new_queries_ is None else self.new_queries_.to_dict()
        return facts | {"choices": choices, "new queries": new}

    def load_state(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        self.fusion_, self.selection_report_ = LearnedFusion.from_dict(facts["fusion"]), dict(facts["told"])
        self.fold_fusions_ = _fusions(facts["folds"])
        self.choices_ = [
            Candidate(**each | {"fusion": LearnedFusion.from_dict(each["fusion"]), "folds": _fusions(each["folds"])})
            for each in facts["choices"]
        ]
        self.new_queries_ = None if facts["new queries"] is None else NewQueries(**facts["new queries"])

    @property
    def fit_report_(self) -> dict[str, Any]:
        fusion, weights = self.fusion_, self.fusion_.weights_
        counts = {"training queries": fusion.n_queries_, "of them unseen": fusion.n_unseen_}
        named = (weights["run"] + " " + weights["feature"]).tolist()
        counts |= (
            {"unseen share": fusion.unseen_share} | self.selection_report_ | {"drawn to the weights of": fusion.best_}
        )
        return counts | {"weights": dict(zip(named, weights["standardised"], strict=True))}


def _plain(fusions: list[LearnedFusion | None]) -> list[dict[str, Any] | None]:
    return [None if fusion is None else fusion.to_dict() for fusion in fusions]


def _fusions(plain: list[dict[str, Any] | None]) -> list[LearnedFusion | None]:
    return [None if fusion is None else LearnedFusion.from_dict(fusion) for fusion in plain]


def everything() -> tuple[Ranker, ...]:
    """What ``Learned()`` fuses."""
    searches = (BM25("passage"), BM25("document"), KNN("passage"), KNN("document"))
    return (*searches, PARM("rrf"), PARM("vrrf"), SimilarQueries(), SVR())
