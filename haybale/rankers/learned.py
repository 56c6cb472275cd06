"""Fusion of rankers with weights learned on judged queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import COUNT, RANDOM_STATE, SEQUENCE, SHARE, one_of
from haybale.rankers.bm25 import BM25, LONG_QUERIES
from haybale.rankers.forecasting import Forecasting
from haybale.rankers.in_space import InSpace
from haybale.rankers.knn import KNN
from haybale.rankers.models.judged_pools import JudgedPools, ndcg, pool_run
from haybale.rankers.models.learned_fusion import LearnedFusion
from haybale.rankers.models.new_queries import NewQueries, unseen_queries
from haybale.rankers.parm import PARM
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.svr import SVR
from haybale.rankers.weighted_bm25 import WeightedBM25
from haybale.ranking.contract import RankerContract
from haybale.ranking.fusion_ranker import Fusion, in_blocks
from haybale.ranking.out_of_fold import OutOfFold, learned_once
from haybale.ranking.ranker import Ranker, batches_of, ranks_and_scores
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.fusion import completed
from haybale.retrieval.query_saturation import K3_BY_LENGTH
from haybale.search.explanation import Explanation, Share, by_size
from haybale.search.query_batch import QueryBatch
from haybale.timing import timed

if TYPE_CHECKING:
    import pandas as pd

_N_FOLDS = 5
_UNSEEN_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # the candidates for unseen_share
_MIN_UNSEEN_QUERIES = 10  # with fewer unseen queries, cross-validation cannot estimate how they are ranked
_EXPECTED_SHARE = "queries expected to be new"  # a key of the fit report


@dataclass(frozen=True, eq=False)
class Candidate:
    """A value of ``unseen_share`` with its cross-validated nDCG@10 and the weights that it gives."""

    share: float
    known: float  # nDCG@10 of the training queries that are not unseen
    new: float  # nDCG@10 of the unseen training queries
    fusion: LearnedFusion  # learned on all training queries
    folds: list[LearnedFusion | None]  # learned on the queries outside each fold

    def expected(self, new: float) -> float:
        """Return the expected nDCG@10 over queries of which a share ``new`` is unseen."""
        return (1 - new) * self.known + new * self.new


class Learned(Forecasting, OutOfFold, Fusion):
    """Rank by a weighted sum of features of each ranker, with weights learned on judged queries.

    :class:`~haybale.LearnedFusion` has the formulas. The weights are learned from out-of-fold rankings of the training
    queries. Out of fold, this ranker ranks a training query with weights learned on the other folds.

    Parameters
    ----------
    *rankers : Ranker
        The rankers to fuse. Default: BM25 and nearest neighbours over passages and over documents, PARM with RRF and
        VRRF, BM25 over both with parameters for long queries (k1 6, b 0.9, k3 0), BM25 with learned weights of query
        terms, similar queries, and the SVR ensemble.
    depth : int, default 100
        Documents of each ranker that are fused. Other documents follow below, ordered by their best rank.
    unseen_share : "auto" or float, default "auto"
        Share of the loss for unseen queries, see :class:`~haybale.LearnedFusion`. "auto" chooses among 0, 0.2, … 1 the
        share with the smallest worst-case loss of nDCG@10 (minimax regret), estimated by cross-validation. The loss is
        the larger of two: over all training queries, relative to the best share; and over unseen queries, relative to
        the best ranker that does not learn which documents are relevant. With fewer than 10 unseen training queries,
        or without such a ranker, "auto" is 0.
    l2, max_iter : optional
        See :class:`~haybale.LearnedFusion`.
    spaces : sequence of str, default ()
        Folders of other engines of the same documents, each with an encoder of its own, such as a neural one. Nearest
        neighbours over passages and over documents and PARM with VRRF in each space are fused beside the default
        rankers, and are evidence of the SVR ensemble. With other rankers, give :class:`~haybale.InSpace` rankers.
    n_queries : int, default 3000
        Largest number of training queries that the weights are learned on; more are sampled at random.
    random_state : int, default 0
        Seed of the sample and of the folds.
    """

    name = "learned"
    variants: ClassVar = {"learned": {}}
    _parameter_constraints: ClassVar = {
        **LearnedFusion._parameter_constraints,
        "unseen_share": [*one_of(["auto"]), *SHARE],
        "spaces": SEQUENCE,
        "n_queries": COUNT,
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        *rankers: Ranker,
        depth: int = 100,
        unseen_share: float | str = "auto",
        spaces: Sequence[str] = (),
        n_queries: int = 3000,
        l2: float = 100.0,
        max_iter: int = 50,
        random_state: int | None = 0,
    ) -> None:
        self.rankers = rankers
        self.depth = depth
        self.unseen_share = unseen_share
        self.spaces = spaces
        self.n_queries = n_queries
        self.l2 = l2
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_params(self) -> None:
        """Check parameters as every fusion does; spaces go with the default rankers."""
        super()._check_params()
        if self.rankers and len(self.spaces):
            raise InputError(
                f"spaces={list(self.spaces)} needs the default rankers, found {', '.join(map(str, self.rankers))}; "
                f"add space(knn,engine={self.spaces[0]!r}) to them instead"
            )

    def nested(self) -> list[Ranker]:
        """Return the rankers that are fused."""
        return list(self.rankers or rankers_to_fuse(self.spaces))

    def _implied(self) -> dict[str, tuple[Ranker, ...]]:
        """Return the default rankers if none are given."""
        return {} if self.rankers else {"rankers": rankers_to_fuse(self.spaces)}

    def _make_explicit(self, name: str, rankers: tuple[RankerContract, ...]) -> None:
        """Set the rankers, which include those in the spaces."""
        super()._make_explicit(name, rankers)
        self.spaces = ()

    def fit_batch(self, training: Training) -> None:
        import pandas as pd

        self._check_answers(training.batch.queries)
        super().fit_batch(training.for_nested())
        batch, learnable_rows = training.batch, self.learnable_rows(training)
        drawn = np.random.default_rng(self.random_state).choice(
            len(learnable_rows), size=min(len(learnable_rows), self.n_queries), replace=False
        )
        rows = learnable_rows[np.sort(drawn)]
        batch = batch.take(rows) if len(rows) < len(training) else batch
        runs = self._runs(batch, out_of_fold=True)
        relevant = [training.relevant[row] for row in rows]
        is_unseen = unseen_queries(training.relevant, training.batch.groups)[rows]
        qrels = pd.DataFrame({"query_id": batch.ids, "doc_id": relevant, "relevance": 1}).explode("doc_id").dropna()
        unseen = set(np.array(batch.ids)[is_unseen].tolist())
        trained = [str(ranker) for ranker in self.rankers_ if ranker.learns_documents]
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(_N_FOLDS, self.random_state)
        self.__dict__.pop("fold_fusions_", None)
        self.candidates_: list[Candidate] = []
        self.selection_report_: dict[str, Any] = {}
        self.new_queries_: NewQueries | None = None
        with batch.timed("learn fusion"):
            judged = JudgedPools.of(runs, qrels, self.depth, trained=trained, unseen=unseen)
            others = [name for name in judged.runs if name not in trained]
            if self.unseen_share == "auto" and others and judged.unseen.sum() >= _MIN_UNSEEN_QUERIES:
                if trained and not judged.unseen.all():
                    self.new_queries_ = NewQueries.fit(runs, judged.pool.query_ids, judged.unseen, trained)
                self.candidates_ = self.cross_validated(judged, qrels)
                unseen_ndcg = {name: float(judged.ndcg[name][judged.unseen].mean()) for name in others}
                self._select(unseen_ndcg, judged.unseen)
            else:
                share = 0.0 if isinstance(self.unseen_share, str) else self.unseen_share
                self.fusion_, self._judged = self._learned(judged, share), judged
        self.twins_ = training.twins
        has_all_folds = all(fusion is not None for fusion in self.fold_fusions_)
        self._learn_or_remember(training, rows if has_all_folds else rows[:0], at_once=True)

    def cross_validated(self, judged: JudgedPools, qrels: pd.DataFrame) -> list[Candidate]:
        """Return a candidate for each share, cross-validated on the training queries."""
        folds = [
            [self._learned(part, share) for share in _UNSEEN_SHARES] if part else None for part in self._outside(judged)
        ]
        fold_of = self.folds_of(judged.pool.query_ids)
        has_weights = np.array([folds[fold] is not None for fold in fold_of])
        candidates = []
        for number, share in enumerate(_UNSEEN_SHARES):
            scores = np.zeros(len(judged.pool))
            fusions = [None if fold is None else fold[number] for fold in folds]
            for fold, fusion in enumerate(fusions):
                rows = fold_of[judged.pool.query] == fold
                if fusion is not None:
                    scores[rows] = fusion.scores(judged.features[:, rows])
            values = ndcg(pool_run(judged.pool, scores), judged.pool.query_ids, qrels) * has_weights
            seen_ndcg, unseen_ndcg = (
                float(values[rows].mean()) if rows.any() else 0.0 for rows in (~judged.unseen, judged.unseen)
            )
            candidates.append(Candidate(share, seen_ndcg, unseen_ndcg, self._learned(judged, share), fusions))
        return candidates

    def _select(self, unseen_ndcg: dict[str, float], is_unseen: NDArray[np.bool_]) -> None:
        """Use the candidate with the smallest worst-case loss of nDCG@10.

        ``unseen_ndcg`` is the nDCG@10 over unseen training queries of each ranker that does not learn which documents
        are relevant, sorted by name.
        """
        best = max(unseen_ndcg, key=lambda name: unseen_ndcg[name])
        share = float(is_unseen.mean())
        highest = max(candidate.expected(share) for candidate in self.candidates_)
        loss = [
            max(highest - candidate.expected(share), unseen_ndcg[best] - candidate.new)
            for candidate in self.candidates_
        ]
        chosen = self.candidates_[int(np.argmin(loss))]
        self.fusion_, self.fold_fusions_ = chosen.fusion, chosen.folds
        self.selection_report_ = {
            "training queries, nDCG@10 by cross-validation": chosen.expected(share),
            "best unseen share, nDCG@10 by cross-validation": highest,
            "new training queries": int(is_unseen.sum()),
            "new training queries, nDCG@10": chosen.new,
            "best ranker that learns no documents, nDCG@10": unseen_ndcg[best],
            "best ranker that learns no documents": best,
        }

    def adapted(
        self,
        queries: QueriesLike,
        *,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
        before: str | None = None,
    ) -> Learned:
        """Return a copy with weights adapted to the queries to be ranked, which need no judgements.

        :class:`~haybale.rankers.NewQueries` estimates the share of unseen queries among them. The copy has the
        ``unseen_share`` with the largest cross-validated nDCG@10 for that estimate, and both are in its
        ``fit_report_``. On five collections, the root mean square error of the estimate for 60 queries is .05 to .17,
        and .06 to .24 with 150 training queries.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            At least 10 queries in any form that :meth:`rank` takes.
        within, where, before : optional
            The documents to be ranked, as in :meth:`rank`.

        Raises
        ------
        InputError
            For fewer queries, and for a ranker that was fitted with a given ``unseen_share``, without a ranker that
            learns documents or without one that does not, with fewer than 10 unseen training queries, or with only
            unseen ones.
        """
        return self.adapted_to(list(batches_of(self, queries, within=within, where=where, before=before)), self.depth)

    def adapted_to(self, batches: Sequence[QueryBatch], depth: int) -> Learned:
        """Return a copy with weights adapted to the queries of batches, as :meth:`adapted` does.

        The batches keep the rankings of the nested rankers, so the copy ranks these batches without another search.

        Parameters
        ----------
        batches : sequence of QueryBatch
            At least 10 queries in all, as :meth:`batches` yields them.
        depth : int
            Number of documents that the copy will rank for each query.

        Raises
        ------
        InputError
            As :meth:`adapted`, before anything is ranked.
        """
        self._check_fitted()
        if self.new_queries_ is None:
            raise InputError(
                f"{self} cannot be adapted; fit it with unseen_share='auto', rankers that learn documents, others that "
                f"do not, and {_MIN_UNSEEN_QUERIES} or more unseen training queries beside others"
            )
        if (n := sum(map(len, batches))) < _MIN_UNSEEN_QUERIES:
            raise InputError(
                f"adapting weights needs at least {_MIN_UNSEEN_QUERIES} queries, found {n}; give more queries"
            )
        parts = [self._runs(batch, depth) for batch in batches]
        runs = {name: Run.joined([part[name].top(self.depth) for part in parts]) for name in self._named}
        share = self.new_queries_.estimate(runs)
        chosen = max(self.candidates_, key=lambda candidate: (candidate.expected(share), -candidate.share))
        ranker = copy(self)
        ranker.fusion_, ranker.fold_fusions_ = chosen.fusion, chosen.folds
        ranker.unseen_share = chosen.share
        ranker._forecaster = ranker._judged_queries = None  # of the other weights
        ranker.selection_report_ = {_EXPECTED_SHARE: share, "expected nDCG@10": chosen.expected(share)}
        ranker._fitted_key = ranker._cache_key()
        return ranker

    @learned_once
    def fold_fusions_(self) -> list[LearnedFusion | None]:
        """The weights learned on the queries outside each fold, computed on first use."""
        with timed("learn fusion of folds"):
            share = self.fusion_.unseen_share
            fusions = [self._learned(part, share) if part else None for part in self._outside(self._judged)]
        del self._judged
        return fusions

    def _outside(self, judged: JudgedPools) -> Iterator[JudgedPools | None]:
        """Yield the pools of the queries outside each fold, or None if no document in them is relevant."""
        fold_of = self.folds_of(judged.pool.query_ids)
        for fold in range(self.fold_of_.max() + 1):
            part = judged.take(fold_of != fold)
            yield part if part.is_relevant.any() else None

    def _learned(self, judged: JudgedPools, share: float) -> LearnedFusion:
        settings = {name: getattr(self, name) for name in ("depth", "l2", "max_iter")}
        return LearnedFusion(unseen_share=share, **settings).learn(judged)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        runs = self._runs(batch, depth)
        with batch.timed("fuse (learned)"):
            return in_blocks(runs, lambda part: completed(self.fusion_.fuse(part), list(part.values()), depth))

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank training queries with weights of the other folds, and other queries with weights of all queries."""
        runs = self._runs(batch, depth, out_of_fold=True)
        folds = self.folds_of(batch.ids)
        with batch.timed("fuse (learned)"):
            parts = []
            for fold in np.unique(folds):
                ids = np.array(batch.ids)[folds == fold].tolist()
                fusion = self.fusion_ if fold < 0 else self.fold_fusions_[fold]
                if fusion is None:
                    raise InputError(f"{self} needs training queries beside {ids[0]!r}; give more queries")
                parts.append(fusion.fuse({name: run.take(ids) for name, run in runs.items()}))
            return completed(Run.joined(parts).take(batch.ids), list(runs.values()), depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        if not any(base.doc_id in ranks_and_scores(ranker, batch, self.depth) for ranker in self._named.values()):
            return self._explain_below(batch, document, base)
        contributions = self.fusion_.contributions(self._runs(batch), batch.ids[0], base.doc_id)
        by_name = {name: (rank, share) for name, rank, _, share in contributions}
        shares, missing = [], []
        for name, ranker in self._named.items():
            rank, share = by_name[name]
            if rank is None:
                missing.append(name)
            else:
                shares.append(Share(f"{name}, rank {rank:,}", share, of=ranker.explained(batch, document)))
        notes = [f"not among the first {self.depth} of {', '.join(missing)}"] if missing else []
        if self.selection_report_:
            share = self.fusion_.unseen_share
            notes.append(f"weights were learned with {share:.0%} of the loss for unseen queries")
        if _EXPECTED_SHARE in self.selection_report_:
            notes.append(
                f"an estimated {self.selection_report_[_EXPECTED_SHARE]:.0%} of the queries to be ranked are unseen"
            )
        return replace(base, shares=by_size(shares), notes=notes)

    def _explain_below(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        """Explain a document below those that are fused, by the ranker that gives it the best rank."""
        ranks = {}
        for name, run in self._runs(batch, base.rank or 0).items():
            doc_ids = list(dict(run[base.query_id]))
            if base.doc_id in doc_ids:
                ranks[name] = doc_ids.index(base.doc_id) + 1
        best = min(ranks, key=ranks.__getitem__)
        inner = self._named[best].explained(batch, document)
        shares = [Share(f"{best}, rank {ranks[best]:,}", base.score or 0.0, of=inner)]
        notes = [f"ranked by its best rank, below the first {self.depth} documents of every ranker"]
        return replace(base, shares=shares, notes=notes)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        return {
            "fusion": self.fusion_.to_dict(),
            "folds": _plain(self.fold_fusions_),
            "told": self.selection_report_,
            "choices": [
                vars(candidate) | {"fusion": candidate.fusion.to_dict(), "folds": _plain(candidate.folds)}
                for candidate in self.candidates_
            ],
            "new queries": None if self.new_queries_ is None else asdict(self.new_queries_),
            "forecast": self._write_forecaster(folder),
        }

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        state = _renamed(state, _names_before_k3_by_length(self.rankers_, state["fusion"]["runs"]))
        self.fusion_, self.selection_report_ = LearnedFusion.from_dict(state["fusion"]), dict(state["told"])
        self.fold_fusions_ = _fusions(state["folds"])
        self.candidates_ = [
            Candidate(**saved | {"fusion": LearnedFusion.from_dict(saved["fusion"]), "folds": _fusions(saved["folds"])})
            for saved in state["choices"]
        ]
        self.new_queries_ = None if state["new queries"] is None else NewQueries(**state["new queries"])
        self._read_forecaster(folder, state.get("forecast"))

    @property
    def fit_report_(self) -> dict[str, Any]:
        fusion, weights = self.fusion_, self.fusion_.weights_
        counts = {"training queries": fusion.n_queries_, "unseen training queries": fusion.n_unseen_}
        named = (weights["run"] + " " + weights["feature"]).tolist()
        counts |= (
            self.twins_.report
            | {"unseen share": fusion.unseen_share}
            | self.selection_report_
            | {"best single ranker": fusion.best_}
        )
        return counts | {"weights": dict(zip(named, weights["standardised"], strict=True))}


def _plain(fusions: list[LearnedFusion | None]) -> list[dict[str, Any] | None]:
    return [None if fusion is None else fusion.to_dict() for fusion in fusions]


def _fusions(plain: list[dict[str, Any] | None]) -> list[LearnedFusion | None]:
    return [None if fusion is None else LearnedFusion.from_dict(fusion) for fusion in plain]


def _names_before_k3_by_length(rankers: Sequence[RankerContract], saved: Sequence[str]) -> dict[str, str]:
    """Return the texts of rankers by those in a fusion saved when BM25's default ``k3`` was none, where they differ."""
    names = {}
    for ranker in rankers:
        then = ranker.clone()
        pending: list[RankerContract] = [then]
        for inner in pending:
            pending += inner.nested()
            if isinstance(inner, BM25) and inner.k3 is None:
                inner.k3 = K3_BY_LENGTH
        if str(then) in saved and str(ranker) not in saved:
            names[str(then)] = str(ranker)
    return names


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Return plain values in which texts are replaced, each as a whole."""
    if isinstance(value, list):
        return [_renamed(element, names) for element in value]
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(element, names) for key, element in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def rankers_to_fuse(spaces: Sequence[str] = ()) -> tuple[Ranker, ...]:
    """Return the rankers that ``Learned(spaces=spaces)`` fuses."""
    searches = (BM25("passage"), BM25("document"), KNN("passage"), KNN("document"), PARM("rrf"), PARM("vrrf"))
    long_queries = BM25("passage", **LONG_QUERIES), BM25("document", **LONG_QUERIES)
    in_spaces = [
        InSpace(search, folder) for folder in spaces for search in (KNN("passage"), KNN("document"), PARM("vrrf"))
    ]
    svr = SVR([*SVR()._implied()["evidence"], *in_spaces]) if in_spaces else SVR()
    return (*searches, *long_queries, WeightedBM25(), SimilarQueries(), svr, *in_spaces)
