"""The SVR ensemble as a ranker: bags of support vector regressors, trained on judged queries."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from haybale.device import to_numpy
from haybale.engine import Engine
from haybale.ensemble import SVREnsemble, pair_features
from haybale.ensemble.pair_features import feature_names
from haybale.errors import InputError
from haybale.manifest import write_tensors
from haybale.parameters import COUNT, NOT_NEGATIVE, one_of
from haybale.rankers.bm25 import BM25, LONG_QUERIES
from haybale.rankers.forecasting import Forecasting
from haybale.rankers.knn import KNN
from haybale.rankers.parm import PARM
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.weighted_bm25 import WeightedBM25
from haybale.ranking.memory_tasks import candidate_scores
from haybale.ranking.out_of_fold import OutOfFold
from haybale.ranking.ranker import Ranker
from haybale.ranking.runs import hits_of
from haybale.ranking.training import Training
from haybale.retrieval import AnyPassageIndex, Hits, Run, pool, rank_documents
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import DEPTH
from haybale.search.explanation import Explanation, Share, by_size, device_notes
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Floats

# The parameters that are passed on to the ensemble.
_ENSEMBLE_PARAMETERS = ["n_bags", "strategy", "C", "epsilon", "tol", "standardize", "gamma", "positive_weight"]
_ENSEMBLE_PARAMETERS += ["rows_per_bag", "solver", "memory_budget", "n_jobs", "random_state"]
# With overlap=None, a bag has at most this share of the queries, and about this many candidate rows.
_MAX_BAG_SHARE, _MAX_BAG_ROWS = 0.25, 30_000


def searches(unit: str = "document") -> tuple[Ranker, ...]:
    """Return the rankers that retrieve candidates where there is no evidence."""
    passages = BM25("passage"), KNN("passage")
    if unit == "passage":
        return passages
    return (*passages, BM25("document"), KNN("document"), PARM("rrf"), PARM("vrrf"), SimilarQueries())


def default_evidence(unit: str = "document") -> tuple[Ranker, ...]:
    """Return the rankers whose scores and ranks are the evidence, if no others are given."""
    if unit == "passage":
        return searches(unit)
    return (*searches(unit), WeightedBM25(), BM25("passage", **LONG_QUERIES), BM25("document", **LONG_QUERIES))


PUBLISHED: dict[str, Any] = {"unit": "passage", "candidates": (KNN("passage"),), "evidence": (), "n_train": 50}
PUBLISHED |= {"n_candidates": 50, "strategy": "rows", "gamma": "scale", "standardize": True, "positive_weight": 1.0}
PUBLISHED |= {"n_bags": 35, "overlap": 0.6}
# With this gamma, chosen for TF-IDF, only queries similar to a training query get a score.
MEMORY: dict[str, Any] = {"evidence": (), "candidates": searches(), "gamma": (12.0, 0.5)}


@dataclass(eq=False, repr=False)
class SVR(Forecasting, OutOfFold, Ranker):
    """Rank by bagged support vector regressors over pairs of a query and a text, with evidence of other rankers.

    The kernel of two pairs is Kq · Kp + η · Ks. Kq and Kp are RBF kernels over queries and over texts; they learn which
    documents answered similar queries. Ks is a linear kernel over the evidence, the scores and ranks that other rankers
    give a pair; it generalises to documents without judgements. Bönisch & Mehler, "Finding Needles in Emb(a)dding
    Haystacks: Legal Document Retrieval via Bagging and SVR Ensembles", LIRAI 2024, use the first term.
    :class:`~haybale.SVREnsemble` is the model, and :func:`~haybale.ensemble.pair_features` computes the evidence.

    Parameters
    ----------
    evidence : sequence of Ranker, optional
        The rankers whose scores and ranks are evidence. Default: BM25 and KNN over passages and documents, PARM with
        RRF and VRRF, similar queries, BM25 with learned weights of query terms, and BM25 over passages and
        documents with parameters for long queries, k1 6, b 0.9 and k3 0; with ``unit="passage"``, BM25 and KNN over
        passages. With ``()``, the kernel is Kq · Kp.
    candidates : "evidence", sequence of Ranker or None, default "evidence"
        The rankers that retrieve the documents (or passages) to score. None scores all documents, as a first stage;
        training still uses the candidates of the evidence.
    unit : {"document", "passage"}, default "document"
        Whether a candidate is a document, as one vector, or a passage (a document scores by its best passage). With
        passages, only BM25 and KNN over passages are possible as evidence and candidates.
    n_train : int, default 10
        Candidates of a training query from each ranker.
    n_candidates : int, default 100
        Candidates from each ranker when ranking, and the depth of the evidence.
    gamma : "scale", float or pair, default (1, 1)
        γ of Kq and of Kp.
    eta : float, default 1
        η, the weight of the evidence.
    n_bags : int, default 24
        Number of bags; at most one for each training query or, for queries taken from documents, each document. If
        neither ``overlap`` nor ``rows_per_bag`` is given, and bags would hold more than 60,000 candidate rows, there
        are more bags of 30,000 rows.
    overlap : float, optional
        A bag holds (1 + overlap)/n_bags of the queries. Default: a quarter of the queries, or about 30,000 candidate
        rows if that is less.
    strategy, C, epsilon, tol, standardize, positive_weight, rows_per_bag : optional
    solver, memory_budget, n_jobs, random_state : optional
        See :class:`~haybale.SVREnsemble`.
    """

    name = "svr"
    variants: ClassVar = {"svr": {}, "svr-memory": MEMORY, "svr-paper": PUBLISHED}
    learns_documents = True
    _parameter_constraints: ClassVar = {
        "unit": one_of(["document", "passage"]),
        "n_train": COUNT,
        "n_candidates": COUNT,
        **{name: SVREnsemble._parameter_constraints[name] for name in (*_ENSEMBLE_PARAMETERS, "eta")},
        "overlap": [*NOT_NEGATIVE, None],
        "solver": [str],
    }

    evidence: Sequence[Ranker] | None = None
    _: KW_ONLY
    candidates: Sequence[Ranker] | str | None = "evidence"
    unit: str = "document"
    n_train: int = 10
    n_candidates: int = 100
    gamma: Any = (1.0, 1.0)
    eta: float = 1.0
    n_bags: int = 24
    overlap: float | None = None
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
    # The evidence of a saved ranker, if the default has changed since.
    _saved_evidence: Sequence[Ranker] | None = field(default=None, init=False)

    def _check_params(self) -> None:
        """Check parameters as every ranker does; passages must come from rankers that retrieve passages."""
        super()._check_params()
        for name, rankers in (("evidence", self.evidence), ("candidates", self.candidates)):
            default = rankers is None or (name == "candidates" and isinstance(rankers, str) and rankers == "evidence")
            if not default and not (
                isinstance(rankers, list | tuple) and all(isinstance(ranker, Ranker) for ranker in rankers)
            ):
                raise InputError(f"{name}: expected rankers, found {rankers!r}")
        if not self._sources():
            raise InputError(f"candidates={self.candidates!r} needs a ranker to retrieve candidates, found none")
        if self.candidates is None and self.unit == "passage":
            raise InputError("candidates=None needs unit='document', found 'passage'")
        nested = self.nested() if self.unit == "passage" else []
        others = [ranker for ranker in nested if not (isinstance(ranker, BM25 | KNN) and ranker.unit == "passage")]
        if others:
            raise InputError(f"unit='passage' needs BM25 or KNN over passages, found {others[0]}")

    def _implied(self) -> dict[str, tuple[Ranker, ...]]:
        """Return the default evidence if none is given."""
        return {"evidence": default_evidence(self.unit)} if self.evidence is None else {}

    def _evidence(self) -> Sequence[Ranker]:
        if self.evidence is None and self._saved_evidence is not None:
            return self._saved_evidence
        return default_evidence(self.unit) if self.evidence is None else self.evidence

    def _sources(self) -> Sequence[Ranker]:
        """Return the rankers that retrieve candidates."""
        if self.candidates is None:
            return self._evidence() or searches(self.unit)
        return self._evidence() if isinstance(self.candidates, str) else self.candidates

    @property
    def _ranks_whole_batches(self) -> bool:
        """True for candidates that are documents: the ensemble scores those of all queries together, by tasks."""
        return self.unit == "document" and self.candidates is not None

    @property
    def obeys_cutoffs(self) -> bool:
        """Whether other rankers retrieve the candidates; the search of all documents does not know dates."""
        return self.candidates is not None

    def fit_batch(self, training: Training) -> None:
        batch = training.batch
        judged = np.flatnonzero(list(map(bool, training.relevant)))
        units = len(np.unique(batch.groups[judged])) if self.strategy == "queries" else len(training)
        if len(training) < 2:
            raise InputError(f"{self} needs at least 2 judged queries, found {len(training)}")
        settings = {name: getattr(self, name) for name in _ENSEMBLE_PARAMETERS}
        if self.strategy != "rows" and units < self.n_bags:
            n_bags = settings["n_bags"] = max(2, units)
            message = (
                f"{self}: {units} training queries for n_bags={self.n_bags}, only {n_bags} bags are trained; add more"
            )
            warnings.warn(message, stacklevel=2)
        self._check_answers(training.batch.queries)
        nested = training.for_nested()
        self.rankers_ = [ranker._fitted_copy(nested) for ranker in (*self._evidence(), *self._sources())]
        rows, relevant = self.learnable_rows(training), training.relevant
        self._learn_or_remember(training, rows, at_once=False)
        if len(rows) < len(training):
            batch, relevant = batch.take(rows), [relevant[row] for row in rows]
        self.query_ids_ = batch.ids
        # The least and the largest value (2, f) of each feature in training, to which features are clipped in ranking.
        # With few training queries, the scores of similar queries hardly vary out of fold, and the scores of a query
        # that is like a training query lie far outside.
        self.feature_range_: Floats | None = None
        if self.candidates is None:  # share the ensemble with an equal ranker that has candidates
            equal = self.clone().set_params(candidates="evidence" if self._evidence() else self._sources())
            fitted = equal._fitted_copy(training)
            self.ensemble_: SVREnsemble = fitted.ensemble_
            self.feature_range_ = fitted.feature_range_
            return
        index, vectors = self._index(batch.engine), batch.vectors
        columns: dict[str, Any] = {"exclude": batch.exclude, "query_ids": batch.ids, "groups": batch.groups}
        columns["out_of_bag"] = training.out_of_fold
        hits = hits_of(self.rankers_, batch, self.n_candidates, self.unit, out_of_fold=True)
        n_evidence = len(self._evidence())
        candidates = pool(*(source.top(self.n_train) for source in hits[n_evidence:]), index=index)
        n_bags, n_rows = settings["n_bags"], int((candidates.passages >= 0).sum())
        # So many rows would give bags that are too large for memory.
        if self.overlap is None and self.rows_per_bag is None and n_rows > 2 * _MAX_BAG_ROWS * n_bags:
            n_bags = settings["n_bags"] = -(-n_rows // _MAX_BAG_ROWS)
        share = (
            min(_MAX_BAG_SHARE, _MAX_BAG_ROWS / max(1, n_rows)) if self.overlap is None else (1 + self.overlap) / n_bags
        )
        settings["overlap"] = max(0.0, min(share, 1 - 2 / n_bags) * n_bags - 1)  # two bags do not overlap
        if n_evidence and self.eta:
            settings["eta"] = self.eta
            columns["features"] = features = self._features(candidates, hits[:n_evidence])
            of_rows = features[candidates.passages >= 0]
            if len(of_rows):  # otherwise fitting raises
                self.feature_range_ = np.stack([of_rows.min(axis=0), of_rows.max(axis=0)])
        with batch.timed(f"fit {self}", index.device):
            ensemble = SVREnsemble(**settings)
            self.ensemble_ = ensemble.fit(index, vectors, relevant, candidates=candidates, **columns)

    def _index(self, engine: Engine) -> AnyPassageIndex:
        return engine.documents if self.unit == "document" else engine.passages

    def _features(self, candidates: Hits, evidence: list[Hits]) -> Floats:
        return pair_features(candidates, evidence, [ranker.learns_documents for ranker in self._evidence()])

    def _feature_names(self) -> list[tuple[str, str]]:
        evidence = self._evidence()
        return feature_names(list(map(str, evidence)), [ranker.learns_documents for ranker in evidence])

    def _scored(self, batch: QueryBatch, depth: int, numbers: Ints | None = None) -> tuple[Hits, Floats | None]:
        """Return scored candidates, and their features if there is evidence.

        With ``numbers`` (m,), the row of each query among the training queries or -1, scores are out of bag.
        """
        ensemble, vectors, out_of_fold = self.ensemble_on(batch.engine), to_numpy(batch.vectors), numbers is not None
        hits = hits_of(self.rankers_, batch, self.n_candidates, self.unit, out_of_fold=out_of_fold)
        n_evidence = len(self._evidence())
        parts = hits[n_evidence:]
        if self.candidates is None:
            with batch.timed(f"search {self}", ensemble.support_.device):
                # Evidence can move hits of this search down. By these extra hits, the first n do not depend on depth.
                k = depth + sum(part.passages.shape[1] for part in parts)
                settings: dict[str, Any] = {"exclude": batch.own, "query_numbers": numbers, "intercept": False}
                parts = [*parts, ensemble.search(vectors, k, **settings)]
        candidates = pool(*parts, index=self._index(batch.engine))
        features = None
        if ensemble.features_ is not None:
            features = self._features(candidates, hits[:n_evidence])
            if self.feature_range_ is not None:
                features = np.clip(features, *self.feature_range_)
        scores = np.empty_like(candidates.scores)
        training_rows = np.full(len(batch), -1) if numbers is None else numbers
        with batch.timed(f"score {self}", ensemble.support_.device):
            for rows in filter(len, (np.flatnonzero(training_rows < 0), np.flatnonzero(training_rows >= 0))):
                columns = vectors[rows], candidates.passages[rows], None if features is None else features[rows]
                query_numbers = None if training_rows[rows[0]] < 0 else training_rows[rows]
                scores[rows] = candidate_scores(self, ensemble, batch, *columns, query_numbers)
        return Hits(candidates.passages, scores), features

    def _scored_once(self, batch: QueryBatch, depth: int) -> tuple[Hits, Floats | None]:
        """Return :meth:`_scored`, which the explanations of a single query share with its ranking."""
        if len(batch) > 1:
            return self._scored(batch, depth)
        searched_depth = depth if self.candidates is None else None  # other candidates do not depend on the depth
        return batch.once(("scored", self._cache_key(), searched_depth), lambda: self._scored(batch, depth))

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return rank_documents(self._index(batch.engine), self._scored_once(batch, depth)[0], batch.ids, k=depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Score training queries by bags without queries of the same document, and other queries by all bags."""
        scored, _ = self._scored(batch, depth, self.rows_of(batch.ids))
        return rank_documents(self._index(batch.engine), scored, batch.ids, k=depth)

    def ensemble_on(self, engine: Engine) -> SVREnsemble:
        """Return the ensemble on an engine whose documents may have changed since fitting."""
        return self.ensemble_.on(self._index(engine))

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        ensemble, index, vectors = self.ensemble_on(batch.engine), self._index(batch.engine), to_numpy(batch.vectors)
        scored, features = self._scored_once(batch, DEPTH)
        passages, scores = scored.passages[0], scored.scores[0]
        of_document = np.flatnonzero((passages >= 0) & (index.doc_of[passages] == document))
        best = of_document[np.argmax(scores[of_document])]
        values = None if features is None else features[0, best]
        passage_id = str(index.passage_ids[int(passages[best])].as_py())
        detail = ensemble.explain(vectors, passage_id, features=values, top=20)
        shares = []
        evidence: dict[str, float] = {}
        if values is not None:
            names = batch.once(("feature names", self._cache_key()), self._feature_names)
            for (name, _), share in zip(names, detail.features.tolist(), strict=True):
                evidence[name] = evidence.get(name, 0.0) + share
        for ranker in self.rankers_[: len(evidence)]:
            inner = ranker.explained(batch, document)
            rank = "not found" if inner.rank is None else f"rank {inner.rank:,}"
            what = f"{inner.ranker}, {rank}"
            shares.append(Share(what, evidence[inner.ranker], of=inner if inner.rank else None))
        for pair in detail.pairs:
            label = "relevant" if pair.label > 0 else "not relevant"
            what = f"training query {pair.query_id} → {pair.passage_id}, {label}"
            shares.append(Share(what, pair.share, query_id=pair.query_id))
        if detail.n_others:
            shares.append(Share(f"{detail.n_others:,} other training pairs", detail.others))
        notes = [f"{len(detail.votes)} of {len(detail.bags)} bags vote for this candidate"]
        notes += device_notes(ensemble.support_.device)
        return replace(base, shares=by_size(shares), notes=notes, detail=detail, passage_id=passage_id)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.ensemble_.save(folder / "ensemble")
        table = pa.table({"query_id": pa.array(self.query_ids_, type=pa.large_string())})
        pq.write_table(table, folder / "training_queries.parquet")
        write_tensors(folder / "seen.safetensors", {"seen": np.packbits(self.ensemble_.seen_, axis=1)})
        state: dict[str, Any] = {"forecast": self._write_forecaster(folder)}
        return state if self.feature_range_ is None else state | {"feature_range": self.feature_range_.tolist()}

    def _cache_key(self) -> tuple[Any, ...]:
        """Return the cache key, with the saved evidence if the default evidence has changed since."""
        key = super()._cache_key()
        return key if self._saved_evidence is None else (*key, *map(str, self._saved_evidence))

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        if self.evidence is None:
            n_candidates = 0 if self.candidates is None or isinstance(self.candidates, str) else len(self.candidates)
            n = len(self.rankers_) - n_candidates if n_candidates else len(self.rankers_) // 2
            saved = [ranker.clone() for ranker in self.rankers_[:n]]
            self._saved_evidence = None if saved == list(default_evidence(self.unit)) else saved
        self.ensemble_ = SVREnsemble.load(folder / "ensemble", self._index(engine))
        self.query_ids_ = pq.read_table(folder / "training_queries.parquet").column("query_id").to_pylist()
        saved_range = state.get("feature_range")  # None without evidence
        self.feature_range_ = None if saved_range is None else np.array(saved_range, dtype=np.float32)
        self._read_forecaster(folder, state.get("forecast"))
        packed = load_file(folder / "seen.safetensors")["seen"]
        self.ensemble_.seen_ = np.unpackbits(packed, axis=1, count=self.ensemble_.n_bags).astype(bool)

    @property
    def fit_report_(self) -> dict[str, Any]:
        ensemble = self.ensemble_
        report = {
            "training queries": len(self.query_ids_),
            "candidate rows": ensemble.n_rows_,
            "bags": ensemble.n_bags,
            "mean rows of a bag": float(np.mean(ensemble.bag_sizes_)),
            "support rows": len(ensemble.support_.coef),
            "gamma": list(ensemble.gamma_),
        }
        report |= self.twins_.report
        if ensemble.support_.feature_weights is None:
            return report
        names = self._feature_names()
        weights = ensemble.support_.feature_weights.mean(axis=0) * np.sqrt(self.eta / len(names))  # of a z-score
        named = (f"{name} {kind}" for name, kind in names)
        return report | {"weights": dict(zip(named, weights.tolist(), strict=True))}
