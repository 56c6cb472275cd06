"""Rankers fused by weights that were learned on judged queries."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from haybale.engine import Engine
from haybale.ensemble import LearnedFusion, unseen_queries
from haybale.ensemble.learned_fusion import ndcg
from haybale.errors import InputError
from haybale.parameters import COUNT, RANDOM_STATE, SHARE, one_of
from haybale.rankers.batch import Batch, Training
from haybale.rankers.bm25 import BM25
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.knn import KNN
from haybale.rankers.parm import PARM
from haybale.rankers.ranker import Ranker
from haybale.rankers.rrf import Fusion
from haybale.rankers.similar_queries import SimilarQueries, places
from haybale.rankers.svr import SVR
from haybale.retrieval import Run
from haybale.retrieval.fusion import completed
from haybale.stages import stage

_FOLDS = 5
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)  # of the loss, for unseen queries
_FEW = 10  # unseen queries, of which nothing is told by folds


class Learned(Fusion):
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
        As of :class:`~haybale.LearnedFusion`. "auto": of 0, 0.2, … 0.8 the one that loses least, by folds of the
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
    names: ClassVar = {"learned": {}}
    needs_training = True
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

    def _fit(self, training: Training) -> None:
        super()._fit(training)
        batch, known = training.batch, self._learnable(training)
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
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(_FOLDS, self.random_state)
        self.__dict__.pop("fold_fusions_", None)
        self._learned_from = runs, qrels, unseen
        self.choice_: dict[str, Any] = {}
        with batch.stage("learn fusion"):
            share = self._chosen_share() if isinstance(self.unseen_share, str) else self.unseen_share
            self.fusion_ = self._learned(*self._learned_from, share)
        if self.choice_:
            del self._learned_from  # those of folds were learned with it

    def _chosen_share(self) -> float:
        """The share that loses least; what was measured of it becomes ``choice_``."""
        runs, qrels, unseen = self._learned_from
        judged = set(qrels["query_id"])
        asked = [(query, fold) for query, fold in zip(self.query_ids_, self.fold_of_, strict=True) if query in judged]
        ids, is_new = [query for query, _ in asked], np.array([query in unseen for query, _ in asked])
        plain = [str(ranker) for ranker in self.rankers_ if not ranker.learns_documents]
        if is_new.sum() < _FEW or not plain:
            return 0.0
        of_new = {name: float(ndcg(runs[name], ids, qrels)[is_new].mean()) for name in plain}
        best = max(sorted(plain), key=lambda name: of_new[name])
        folds = {share: self._of_folds(share) for share in _SHARES}
        values = {}
        for share, fusions in folds.items():
            values[share] = np.zeros(len(ids))
            for number, fusion in enumerate(fusions):
                inside = np.array([fold == number for _, fold in asked])
                part = [query for query, there in zip(ids, inside, strict=True) if there]
                if fusion is not None and part:
                    fused = fusion.fuse({name: run.take(part) for name, run in runs.items()})
                    values[share][inside] = ndcg(fused, part, qrels)
        most = max(float(each.mean()) for each in values.values())
        means = {share: (float(each.mean()), float(each[is_new].mean())) for share, each in values.items()}
        share = min(_SHARES, key=lambda share: max(most - means[share][0], of_new[best] - means[share][1]))
        self.fold_fusions_ = folds[share]
        self.choice_ = {
            "training queries, nDCG@10 by folds": means[share][0],
            "the most, with another share": most,
            "new ones of these": int(is_new.sum()),
            "nDCG@10 of new ones": means[share][1],
            "of the best that learns nothing": of_new[best],
            "which is": best,
        }
        return share

    @cached_property
    def fold_fusions_(self) -> list[LearnedFusion | None]:
        """Weights of the queries outside each fold: learned when somebody asks for them, or saves."""
        with stage("learn fusion of folds"):
            found = self._of_folds(self.fusion_.unseen_share)
        del self._learned_from
        return found

    def _of_folds(self, share: float) -> list[LearnedFusion | None]:
        """None where the others have nothing to learn from."""
        runs, qrels, unseen = self._learned_from
        found: list[LearnedFusion | None] = []
        for fold in range(self.fold_of_.max() + 1):
            inside = np.array(self.query_ids_)[self.fold_of_ == fold]
            try:
                found.append(self._learned(runs, qrels[~qrels["query_id"].isin(inside)], unseen, share))
            except InputError:
                found.append(None)
        return found

    def _learned(self, runs: dict[str, Run], qrels: pd.DataFrame, unseen: set[str], share: float) -> LearnedFusion:
        settings = {name: getattr(self, name) for name in ("depth", "l2", "max_iter")}
        trained = [str(ranker) for ranker in self.rankers_ if ranker.learns_documents]
        return LearnedFusion(unseen_share=share, **settings).fit(runs, qrels, trained=trained, unseen=unseen)

    def _rank(self, batch: Batch, depth: int) -> Run:
        runs = self._runs(batch, depth)
        with batch.stage("fuse (learned)"):
            return completed(self.fusion_.fuse(runs), list(runs.values()), depth)

    def _out_of_fold(self, batch: Batch, depth: int) -> Run:
        """Queries that were learned from by the weights of the other folds, others by the weights of all."""
        runs = self._runs(batch, depth, out_of_fold=True)
        where = places(self.query_ids_, batch.ids)
        folds = np.where(where >= 0, self.fold_of_[where], -1)
        with batch.stage("fuse (learned)"):
            parts = []
            for fold in np.unique(folds):
                ids = np.array(batch.ids)[folds == fold].tolist()
                fusion = self.fusion_ if fold < 0 else self.fold_fusions_[fold]
                if fusion is None:
                    raise InputError(f"{self}: without {ids[0]!r} there are too few queries to learn weights from")
                parts.append(fusion.fuse({name: run.take(ids) for name, run in runs.items()}))
            return completed(Run.joined(parts).take(batch.ids), list(runs.values()), depth)

    def _explain(self, batch: Batch, document: int, base: Explanation) -> Explanation:
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
        if self.choice_:
            share = self.fusion_.unseen_share
            notes.append(f"weights were learned with {share:.0%} of the loss for queries that training had not met")
        return replace(base, shares=by_size(shares), notes=notes)

    def _explain_below(self, batch: Batch, document: int, base: Explanation) -> Explanation:
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

    def _state(self, folder: Path) -> dict[str, Any]:
        self._write_folds(folder)
        folds = [None if fusion is None else fusion.to_dict() for fusion in self.fold_fusions_]
        return {"fusion": self.fusion_.to_dict(), "folds": folds, "choice": self.choice_}

    def _restore(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        self._read_folds(folder)
        self.fusion_, self.choice_ = LearnedFusion.from_dict(facts["fusion"]), dict(facts["choice"])
        self.fold_fusions_ = [None if fusion is None else LearnedFusion.from_dict(fusion) for fusion in facts["folds"]]

    @property
    def facts(self) -> dict[str, Any]:
        fusion, weights = self.fusion_, self.fusion_.weights_
        counts = {"training queries": fusion.n_queries_, "of them unseen": fusion.n_unseen_}
        named = (weights["run"] + " " + weights["feature"]).tolist()
        counts |= {"unseen share": fusion.unseen_share} | self.choice_ | {"drawn to the weights of": fusion.best_}
        return counts | dict(zip(named, weights["standardised"], strict=True))


def everything() -> tuple[Ranker, ...]:
    """What ``Learned()`` fuses."""
    searches = (BM25("passage"), BM25("document"), KNN("passage"), KNN("document"))
    return (*searches, PARM("rrf"), PARM("vrrf"), SimilarQueries(), SVR())
