"""Rankers fused by weights that were learned on judged queries."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import COUNT, RANDOM_STATE, SHARE, one_of
from haybale.rankers.bm25 import BM25
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.fusion import Fusion
from haybale.rankers.judged_pools import JudgedPools, ndcg, pool_run
from haybale.rankers.knn import KNN
from haybale.rankers.learned_fusion import LearnedFusion
from haybale.rankers.new_queries import NewQueries, unseen_queries
from haybale.rankers.out_of_fold import OutOfFold
from haybale.rankers.parm import PARM
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.svr import SVR
from haybale.rankers.training import Training
from haybale.retrieval import Run
from haybale.retrieval.fusion import completed
from haybale.retrieval.hits import Ints
from haybale.timing import timed

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 5
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # candidates of unseen_share
_MIN_UNSEEN = 10  # with fewer unseen queries, cross-validation says nothing about them
_EXPECTED = "queries expected to be new"  # a key of the fit report


@dataclass(frozen=True, eq=False)
class Candidate:
    """A value of ``unseen_share`` with its cross-validated nDCG@10 and the weights learned with it."""

    share: float
    known: float  # nDCG@10 of the training queries that are not new
    new: float  # nDCG@10 of the new ones
    fusion: LearnedFusion  # learned on all training queries
    folds: list[LearnedFusion | None]  # learned on the queries outside each fold

    def expected(self, new: float) -> float:
        """Return the nDCG@10 to expect of queries of which a share ``new`` is new."""
        return (1 - new) * self.known + new * self.new


class Learned(OutOfFold, Fusion):
    """Score documents by a weighted sum of features of each ranker, with weights learned on judged queries.

    :class:`~haybale.LearnedFusion` has the formulas. The weights are learned from rankings of the training queries out
    of fold. This ranker ranks them out of fold too, with the weights that the other folds of training queries gave.

    Parameters
    ----------
    *rankers : Ranker
        The rankers to fuse. Default: the combination that was best on the dev splits of four collections, namely BM25
        and nearest neighbours over passages and over documents, PARM with RRF and VRRF, similar queries, and the SVR
        ensemble.
    depth : int, default 100
        Documents of each ranker that are fused. Documents beyond them follow, by the best rank that any ranker gives.
    unseen_share : "auto" or float, default "auto"
        The share of the loss for unseen queries, see :class:`~haybale.LearnedFusion`. "auto" takes, of 0, 0.2, … 1, the
        share with the smallest worst-case loss of nDCG@10 (minimax regret), estimated by cross-validation. Two losses
        count: over all training queries, against the best of these shares; and over unseen ones, against the best
        ranker that learns nothing. It is 0 where fewer than 10 training queries are unseen, or where all rankers learn.
    l2, max_iter : optional
        See :class:`~haybale.LearnedFusion`.
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
        """Return the rankers that are fused."""
        return list(self.rankers or default_rankers())

    def implied(self) -> dict[str, tuple[Ranker, ...]]:
        """Return the rankers that are fused by default, if none were given."""
        return {} if self.rankers else {"rankers": default_rankers()}

    def fit_batch(self, training: Training) -> None:
        import pandas as pd

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
        self.candidates_: list[Candidate] = []
        self.selection_report_: dict[str, Any] = {}
        self.new_queries_: NewQueries | None = None
        with batch.timed("learn fusion"):
            judged = JudgedPools.of(runs, qrels, self.depth, trained=trained, unseen=unseen)
            plain = sorted(set(runs) - set(trained))
            if self.unseen_share == "auto" and plain and judged.unseen.sum() >= _MIN_UNSEEN:
                if trained and not judged.unseen.all():
                    self.new_queries_ = NewQueries.fit(runs, judged.pool.query_ids, judged.unseen, trained)
                self.candidates_ = self.cross_validated(judged, qrels)
                of_new = {name: float(judged.ndcg[name][judged.unseen].mean()) for name in plain}
                self._choose(of_new, judged.unseen)
            else:
                share = 0.0 if isinstance(self.unseen_share, str) else self.unseen_share
                self.fusion_, self._judged = self._learned(judged, share), judged

    def cross_validated(self, judged: JudgedPools, qrels: pd.DataFrame) -> list[Candidate]:
        """Return a candidate for each share, cross-validated on the training queries."""
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
        """Take the share with the smallest worst-case loss.

        ``of_new`` is the nDCG@10 over new training queries of the rankers that learn nothing.
        """
        best = max(sorted(of_new), key=lambda name: of_new[name])
        share = float(is_new.mean())
        most = max(choice.expected(share) for choice in self.candidates_)
        loss = [max(most - choice.expected(share), of_new[best] - choice.new) for choice in self.candidates_]
        chosen = self.candidates_[int(np.argmin(loss))]
        self._take(chosen)
        self.selection_report_ = {
            "training queries, nDCG@10 by cross-validation": chosen.expected(share),
            "best of all shares": most,
            "new training queries": int(is_new.sum()),
            "new training queries, nDCG@10": chosen.new,
            "best ranker without training, nDCG@10": of_new[best],
            "best ranker without training": best,
        }

    def _take(self, chosen: Candidate) -> None:
        self.fusion_, self.fold_fusions_ = chosen.fusion, chosen.folds

    def adapted(self, queries: QueriesLike) -> Learned:
        """Return a copy with the weights that suit these queries best; they need no judgements.

        :class:`~haybale.rankers.NewQueries` estimates the share of new queries among them. The copy's
        ``unseen_share`` is the one with the largest cross-validated nDCG@10 for such a share; its ``fit_report_`` has
        both. With 60 queries the estimate has a root mean square error of .06 to .17 on five collections, the larger
        the fewer training queries there are.

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
            needed = f"a ranker that learns, unseen_share='auto', and {_MIN_UNSEEN} new training queries beside others"
            raise InputError(f"{self} cannot be adapted: this needs {needed}")
        parts = [self._runs(batch) for batch in self.batches(queries)]
        runs = {name: Run.joined([part[name] for part in parts]).top(self.depth) for name in self._named}
        if len(next(iter(runs.values())).query_ids) < _MIN_UNSEEN:
            raise InputError(f"adapted: expected at least {_MIN_UNSEEN} queries to estimate how many are new")
        share = self.new_queries_.estimate(runs)
        found = copy(self)
        chosen = max(self.candidates_, key=lambda choice: (choice.expected(share), -choice.share))
        found._take(chosen)
        found.unseen_share = chosen.share
        found.selection_report_ = {_EXPECTED: share, "expected nDCG@10": chosen.expected(share)}
        found.fitted_key = found.key()
        return found

    @cached_property
    def fold_fusions_(self) -> list[LearnedFusion | None]:
        """The weights learned on the queries outside each fold; computed on first use."""
        with timed("learn fusion of folds"):
            share = self.fusion_.unseen_share
            found = [self._learned(part, share) if part else None for part in self._outside(self._judged)]
        del self._judged
        return found

    def _outside(self, judged: JudgedPools) -> Iterator[JudgedPools | None]:
        """Yield the pools of the queries outside each fold; None if these have nothing to learn from."""
        inside = self._folds(judged)
        for fold in range(self.fold_of_.max() + 1):
            part = judged.take(inside != fold)
            yield part if part.is_relevant.any() else None

    def _folds(self, judged: JudgedPools) -> Ints:
        """Return the fold (m,) of each query of the pools."""
        return self.folds_of(judged.pool.query_ids)

    def _learned(self, judged: JudgedPools, share: float) -> LearnedFusion:
        settings = {name: getattr(self, name) for name in ("depth", "l2", "max_iter")}
        return LearnedFusion(unseen_share=share, **settings).learn(judged)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        runs = self._runs(batch, depth)
        with batch.timed("fuse (learned)"):
            return completed(self.fusion_.fuse(runs), list(runs.values()), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank training queries with the weights of the other folds, other queries with the weights of all."""
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
            notes.append(f"weights were learned with {share:.0%} of the loss for unseen queries")
        if _EXPECTED in self.selection_report_:
            notes.append(
                f"as {self.selection_report_[_EXPECTED]:.0%} of the queries to be ranked were expected to be such"
            )
        return replace(base, shares=by_size(shares), notes=notes)

    def _explain_below(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        """Explain a document behind those that are fused: by the ranker that has it highest."""
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
        choices = [vars(c) | {"fusion": c.fusion.to_dict(), "folds": _plain(c.folds)} for c in self.candidates_]
        new = None if self.new_queries_ is None else self.new_queries_.to_dict()
        return facts | {"choices": choices, "new queries": new}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        self.fusion_, self.selection_report_ = LearnedFusion.from_dict(state["fusion"]), dict(state["told"])
        self.fold_fusions_ = _fusions(state["folds"])
        self.candidates_ = [
            Candidate(**each | {"fusion": LearnedFusion.from_dict(each["fusion"]), "folds": _fusions(each["folds"])})
            for each in state["choices"]
        ]
        self.new_queries_ = None if state["new queries"] is None else NewQueries(**state["new queries"])

    @property
    def fit_report_(self) -> dict[str, Any]:
        fusion, weights = self.fusion_, self.fusion_.weights_
        counts = {"training queries": fusion.n_queries_, "unseen training queries": fusion.n_unseen_}
        named = (weights["run"] + " " + weights["feature"]).tolist()
        counts |= (
            {"unseen share": fusion.unseen_share} | self.selection_report_ | {"best ranker by itself": fusion.best_}
        )
        return counts | {"weights": dict(zip(named, weights["standardised"], strict=True))}


def _plain(fusions: list[LearnedFusion | None]) -> list[dict[str, Any] | None]:
    return [None if fusion is None else fusion.to_dict() for fusion in fusions]


def _fusions(plain: list[dict[str, Any] | None]) -> list[LearnedFusion | None]:
    return [None if fusion is None else LearnedFusion.from_dict(fusion) for fusion in plain]


def default_rankers() -> tuple[Ranker, ...]:
    """Return the rankers that ``Learned()`` fuses."""
    searches = (BM25("passage"), BM25("document"), KNN("passage"), KNN("document"))
    return (*searches, PARM("rrf"), PARM("vrrf"), SimilarQueries(), SVR())
