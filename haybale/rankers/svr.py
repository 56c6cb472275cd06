"""The SVR ensemble as a ranker: what was learned from judged queries about which texts answer which."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from haybale.device import to_numpy
from haybale.engine import Engine
from haybale.ensemble import SVREnsemble
from haybale.errors import InputError
from haybale.manifest import write_tensors
from haybale.parameters import COUNT, COUNT_OR_NONE, one_of
from haybale.rankers.batch import Batch, Training, numbered
from haybale.rankers.bm25 import BM25
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.knn import KNN
from haybale.rankers.ranker import Ranker
from haybale.rankers.similar_queries import SimilarQueries, places
from haybale.retrieval import Hits, PassageIndex, Run, pool, rank_documents
from haybale.retrieval.hits import from_flat

SPARSE_GAMMA = (8.0, 2.5)  # two TF-IDF vectors are farther apart than two of LSA: a narrower kernel for queries
DENSE_GAMMA = (3.0, 2.5)
_SHARED = ["n_bags", "overlap", "strategy", "C", "epsilon", "tol", "standardize", "positive_weight", "rows_per_bag"]
_SHARED += ["solver", "memory_budget", "n_jobs", "random_state"]
PUBLISHED: dict[str, Any] = {"unit": "passage", "candidates": (KNN("passage"),), "n_train": 50, "n_candidates": 50}
PUBLISHED |= {"gamma": "scale", "strategy": "rows", "standardize": True, "positive_weight": 1.0}
_FEW_BAGS = 8  # below it, bags that overlap may leave a query no bag that has not seen it


@dataclass(eq=False, repr=False)
class SVR(Ranker):
    """Re-orders the candidates of other rankers by bags of RBF support vector regressors over [query ; text].

    Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR
    Ensembles", LIRAI 2024; :class:`~haybale.SVREnsemble` has the model.

    Parameters
    ----------
    unit : {"document", "passage"}, default "document"
        What a candidate is: a document as one vector, or a passage, of which a document's best counts.
    candidates : sequence of Ranker, optional
        Whose first documents (or passages, by BM25 and KNN over passages) are the candidates. Default: BM25 and KNN
        over passages, and for documents also both over documents, and similar queries.
    n_train : int, optional
        Candidates of a training query from each; default 10 documents, or 20 passages.
    n_candidates : int, default 60
        Candidates of a query that is ranked, from each.
    gamma : "scale", float, pair or list, optional
        γ of the query half and of the text half; default (8, 2.5) for sparse documents, else (3, 2.5).
    n_bags, overlap, strategy, C, epsilon, tol, standardize, positive_weight, rows_per_bag : optional
    solver, memory_budget, n_jobs, random_state : optional
        As of :class:`~haybale.SVREnsemble`. Where there are fewer queries than bags, there are fewer bags.
    """

    name = "svr"
    names: ClassVar = {"svr": {"unit": "passage"}, "svr-doc": {}, "svr-paper": PUBLISHED}
    needs_training = True
    learns_documents = True
    _parameter_constraints: ClassVar = {
        "unit": one_of(["document", "passage"]),
        "n_train": COUNT_OR_NONE,
        "n_candidates": COUNT,
        "gamma": [*SVREnsemble._parameter_constraints["gamma"], None],
        **{name: SVREnsemble._parameter_constraints[name] for name in _SHARED},
        "solver": [str],
    }

    unit: str = "document"
    _: KW_ONLY
    candidates: Sequence[Ranker] | None = None
    n_train: int | None = None
    n_candidates: int = 60
    gamma: Any = None
    n_bags: int = 35
    overlap: float = 0.6
    strategy: str = "queries"
    C: float = 1.0
    epsilon: float = 0.1
    tol: float = 1e-3
    standardize: bool = False
    positive_weight: float = 3.0
    rows_per_bag: int | None = None
    solver: str = "auto"
    memory_budget: float | None = None
    n_jobs: int | None = -1
    random_state: int | None = 0

    def check_params(self) -> None:
        """As every ranker's; candidates of passages come from rankers that retrieve passages."""
        super().check_params()
        strangers = [each for each in self.nested() if self.unit == "passage" and not hasattr(each, "passage_hits")]
        if strangers:
            raise InputError(f"candidates of passages are retrieved by BM25 or KNN over passages, found {strangers[0]}")
        if self.candidates is not None and (len(self.nested()) != len(self.candidates) or not self.candidates):
            raise InputError(f"candidates: expected rankers, found {self.candidates!r}")

    def implied(self) -> dict[str, tuple[Ranker, ...]]:
        """Whose documents are the candidates where no rankers were given."""
        if self.candidates is not None:
            return {}
        passages = BM25("passage"), KNN("passage")
        whole = BM25("passage"), BM25("document"), KNN("passage"), KNN("document"), SimilarQueries()
        return {"candidates": passages if self.unit == "passage" else whole}

    def _fit(self, training: Training) -> None:
        batch = training.batch
        units = sum(map(bool, training.relevant)) if self.strategy == "queries" else len(training)
        if len(training) < 2:
            raise InputError(f"{self} learns from at least 2 judged queries, found {len(training)}")
        settings = {name: getattr(self, name) for name in _SHARED}
        if self.strategy != "rows" and units < self.n_bags:  # said before any work
            settings["n_bags"] = max(2, units)
            message = f"{self}: {units} training queries for {self.n_bags} bags; {settings['n_bags']} bags are trained"
            warnings.warn(message, stacklevel=2)
        if settings["n_bags"] < min(_FEW_BAGS, self.n_bags):
            settings["overlap"] = 0.0
        sources = self.implied()["candidates"] if self.candidates is None else self.candidates
        self.rankers_ = [training.fitted(ranker) for ranker in sources]
        index, vectors = self._index(batch.engine), batch.vectors
        by_kind = SPARSE_GAMMA if self.unit == "document" and index.is_sparse else DENSE_GAMMA
        gamma = by_kind if self.gamma is None else self.gamma
        candidates = self._pool(batch, self.n_train or (10 if self.unit == "document" else 20), out_of_fold=True)
        known: dict[str, Any] = {"candidates": candidates, "exclude": batch.own, "query_ids": batch.ids}
        with batch.stage(f"fit {self}"):
            self.ensemble_ = SVREnsemble(gamma=gamma, **settings).fit(index, vectors, training.relevant, **known)
        self.query_ids_ = batch.ids

    def _index(self, engine: Engine) -> PassageIndex:
        return engine.documents if self.unit == "document" else engine.passages

    def _pool(self, batch: Batch, n: int, *, out_of_fold: bool = False) -> Hits:
        """The candidates of each query; their scores mean nothing."""
        if self.unit == "passage":
            with batch.stage("search candidates"):
                return pool(*(ranker.passage_hits(batch, n) for ranker in self.rankers_))  # type: ignore[attr-defined]
        index = self._index(batch.engine)
        ask = batch.out_of_fold if out_of_fold else batch.run
        parts = [numbered(ask(ranker, n), batch.engine.collection) for ranker in self.rankers_]
        rows, _, documents = (np.concatenate(column) for column in zip(*parts, strict=True))
        there = np.diff(index.doc_offsets)[documents] > 0
        n_documents = len(index.doc_ids)
        pairs = np.unique(rows[there] * n_documents + documents[there])
        places = index.doc_offsets[pairs % n_documents]
        return from_flat(len(batch), pairs // n_documents, places, np.zeros(len(pairs), dtype=np.float32))

    def _rank(self, batch: Batch, depth: int) -> Run:
        candidates, vectors = self._pool(batch, self.n_candidates), to_numpy(batch.vectors)
        with batch.stage(f"score {self}"):
            scores = self._on(batch.engine).score_candidates(vectors, candidates.passages)
            return rank_documents(self._index(batch.engine), Hits(candidates.passages, scores), batch.ids, k=depth)

    def _out_of_fold(self, batch: Batch, depth: int) -> Run:
        """Training queries by the bags that did not see them, others by all bags."""
        where = places(self.query_ids_, batch.ids)
        candidates = self._pool(batch, self.n_candidates, out_of_fold=True)
        vectors, ensemble = to_numpy(batch.vectors), self._on(batch.engine)
        known, new = np.flatnonzero(where >= 0), np.flatnonzero(where < 0)
        with batch.stage(f"score {self}"):
            scores = np.empty(candidates.passages.shape, dtype=np.float32)
            if len(known):
                scores[known] = ensemble.out_of_bag_scores(where[known], vectors[known], candidates.passages[known])
            if len(new):
                scores[new] = ensemble.score_candidates(vectors[new], candidates.passages[new])
            return rank_documents(self._index(batch.engine), Hits(candidates.passages, scores), batch.ids, k=depth)

    def _on(self, engine: Engine) -> SVREnsemble:
        """The ensemble with the vectors of an engine: the one it was fitted on, grown or limited since."""
        return self.ensemble_.on(self._index(engine))

    def _explain(self, batch: Batch, document: int, base: Explanation) -> Explanation:
        ensemble, index, vectors = self._on(batch.engine), self._index(batch.engine), to_numpy(batch.vectors)
        mine = self._pool(batch, self.n_candidates).passages[0]
        mine = mine[(mine >= 0) & (index.doc_of[mine] == document)]
        best = int(mine[np.argmax(ensemble.score_candidates(vectors, mine[None])[0])])
        found = ensemble.explain(vectors, str(index.passage_ids[best].as_py()), top=20)
        shares = []
        for pair in found.evidence:
            taught = "relevant" if pair.label > 0 else "not relevant"
            shares.append(Share(f"training query {pair.query_id} → {pair.passage_id}, {taught}", pair.share))
        if found.n_others:
            shares.append(Share(f"{found.n_others:,} other training pairs", found.others))
        shares.append(Share("intercept", found.intercept))
        notes = [f"{len(found.votes)} of {len(found.bags)} bags vote for it"]
        return replace(base, shares=shares, notes=notes, detail=found)

    def _state(self, folder: Path) -> dict[str, Any]:
        self.ensemble_.save(folder / "ensemble")
        table = pa.table({"query_id": pa.array(self.query_ids_, type=pa.large_string())})
        pq.write_table(table, folder / "training_queries.parquet")
        write_tensors(folder / "seen.safetensors", {"seen": np.packbits(self.ensemble_.seen_, axis=1)})
        return {}

    def _restore(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        self.ensemble_ = SVREnsemble.load(folder / "ensemble", self._index(engine))
        self.query_ids_ = pq.read_table(folder / "training_queries.parquet").column("query_id").to_pylist()
        packed = load_file(folder / "seen.safetensors")["seen"]
        self.ensemble_.seen_ = np.unpackbits(packed, axis=1, count=self.ensemble_.n_bags).astype(bool)

    @property
    def facts(self) -> dict[str, Any]:
        ensemble = self.ensemble_
        return {
            "training queries": len(self.query_ids_),
            "candidate rows": ensemble.n_rows_,
            "bags": ensemble.n_bags,
            "rows a bag is trained on (mean)": float(np.mean(ensemble.bag_sizes_)),
            "support rows": len(ensemble.support_.coef),
            "gamma": list(ensemble.gamma_),
        }
