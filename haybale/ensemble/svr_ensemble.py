"""The SVR ensemble: bagged RBF support vector regressors over [query ; passage].

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR
Ensembles", LIRAI 2024, with rankings evaluated end to end.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from haybale.device import Device, device_of, to_device, to_numpy
from haybale.ensemble.bagging import TrainingSet, gathered, solve_bags
from haybale.ensemble.bags import STRATEGIES, make_bags, seen_by, thinned
from haybale.ensemble.explanation import Explanation, explained
from haybale.ensemble.kernel import Points
from haybale.ensemble.model_files import load_model, save_model
from haybale.ensemble.problem import PrecisionWarning, Solver, rounding
from haybale.ensemble.rows import PROTOCOLS, CandidateRows, Ints, candidate_rows
from haybale.ensemble.solvers import find_solver
from haybale.ensemble.spaces import check_spaces, described, fit_features, fit_spaces, home_of, rows_of
from haybale.ensemble.support import Pairs
from haybale.errors import InputError, VectorError
from haybale.parallel import batch_size_for_memory, iter_chunks
from haybale.parameters import (
    BOOLEAN,
    COUNT,
    GAMMA,
    MEMORY,
    MOST,
    N_JOBS,
    NOT_NEGATIVE,
    POSITIVE,
    RANDOM_STATE,
    Interval,
    check_parameters,
    one_of,
)
from haybale.retrieval import Hits, PassageIndex, Run, rank_documents
from haybale.retrieval.exact import SLACK
from haybale.retrieval.hits import select
from haybale.retrieval.passages import Exclude
from haybale.vectors import Floats, Matrix, reals

_FACTS = ("n_rows_", "bag_sizes_", "n_iter_")
_CHECKED = 64  # rows predicted in float64 too, where float32 may not be enough
_NO_SCORE = np.float32(-np.inf)


@dataclass(eq=False, repr=False)
class SVREnsemble(BaseEstimator):  # type: ignore[misc]
    """Learns from judged queries which passages answer which queries, and ranks by it.

    A query's k nearest passages are its candidates; each is a row [q ; p], labelled by the relevance of its
    document. Overlapping bags of rows train one RBF ε-SVR each; their mean prediction ranks.

    The defaults are for L2-normalised vectors and were chosen on the dev queries of two collections;
    :meth:`as_published` has the paper's. Query vectors may be NumPy or on the ensemble's device, dense or sparse as the
    passages are; scores come back as they were given.

    Kernels are float32; where vectors that are long against γ, or coefficients of a large C, make predictions off by
    more than ``tol``, :class:`PrecisionWarning` says so. Whichever threads or processes train, on processors and
    libraries of one kind and with one ``memory_budget``, the model is the same bit for bit, and so are the scores of
    the same candidates from any thread. With other queries or passages beside it, or another number of cores, a score
    may differ in float32's last bits (about 1e-6), unless the queries and the passages of the support have up to 65,536
    numbers each.

    Parameters
    ----------
    n_bags, overlap : int, default 35; float, default 0.6
        As in the paper: a bag holds (1 + overlap)/n_bags of the training set.
    strategy : {"queries", "rows", "regions"}, default "queries"
        How rows are shared out to bags; see :func:`~haybale.ensemble.bags.make_bags`.
    k : int, default 50
        Candidates of a query taken from the index, when none are given.
    C, epsilon, tol : float, default 1, 0.1, 1e-3
        Of the ε-SVR.
    gamma : "scale", float or pair, default (3, 2.5)
        γ of both halves, or (queries, passages).
    standardize : bool, default False
        Whether every feature is z-scored over the candidate rows.
    eta : float, default 0
        Weight of a linear kernel over f z-scored pair features z, which is added: K = Kq·Kp + eta/f · z zᵀ.
    positive_weight : float, default 3
        How much heavier an error on a relevant row weighs (they are about 2 % of the rows).
    rows_per_bag : int, optional
        Train each bag on at most so many rows: all its positives and a sample of its negatives.
    protocol : {"end-to-end", "injected"}, default "end-to-end"
        ``"injected"`` repeats the paper's table; see :func:`candidate_rows`.
    threshold, proof : float, default 0.5; int, default 1
        :meth:`relevant` says yes where at least ``proof`` bags predict over ``threshold``.
    solver : str or callable, default "auto"
        A name of :data:`~haybale.ensemble.SOLVERS`, or a function from :class:`Problem` to :class:`Dual`.
    memory_budget : float, optional
        Bytes of kernel values held while training, by each task where joblib's backend is Dask; default half of the
        memory there is. Beyond it, rows of them are computed as they are needed.
    device : str, optional
        Of vectors and kernels: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"auto"``; default where the index's vectors are.
    n_jobs : int, optional
        Bags trained at once, through joblib (so ``joblib.parallel_config`` has its say).
    random_state : int, default 0
        Of the bags.

    Attributes
    ----------
    support_, spaces_ : Support, Spaces
        Support rows of all bags; scalings and γ, which is also ``gamma_``.
    n_rows_, bag_sizes_, n_iter_ : int, list of int, list of int
        Candidate rows; rows each bag was trained on; steps of each bag.
    seen_ : (n_training_queries, n_bags) bool
        Whether a bag was trained on any row of a query; not saved.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> index = PassageIndex(rng.normal(size=(40, 4)))
    >>> queries = index.vectors[:20] + 0.1
    >>> relevant = [[str(i)] for i in range(20)]
    >>> ensemble = SVREnsemble(n_bags=4, k=10).fit(index, queries, relevant)
    >>> ensemble.rank(queries[:2], ["q0", "q1"], k=10)
    Run of 2 queries, 20 ranked documents
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_bags": COUNT,
        "overlap": NOT_NEGATIVE,
        "strategy": one_of(STRATEGIES),
        "k": COUNT,
        "C": POSITIVE,
        "epsilon": NOT_NEGATIVE,
        "tol": POSITIVE,
        "gamma": GAMMA,
        "standardize": BOOLEAN,
        "eta": NOT_NEGATIVE,
        "positive_weight": POSITIVE,
        "rows_per_bag": [Interval(Integral, 2, MOST, closed="both"), None],
        "protocol": one_of(PROTOCOLS),
        "threshold": [Interval(Real, -MOST, MOST, closed="both")],
        "proof": COUNT,
        "solver": [str, callable],
        "memory_budget": MEMORY,
        "device": [str, None],
        "n_jobs": N_JOBS,
        "random_state": RANDOM_STATE,
    }

    n_bags: int = 35
    _: KW_ONLY
    overlap: float = 0.6
    strategy: str = "queries"
    k: int = 50
    C: float = 1.0
    epsilon: float = 0.1
    tol: float = 1e-3
    gamma: float | str | tuple[float, float] = (3.0, 2.5)
    standardize: bool = False
    eta: float = 0.0
    positive_weight: float = 3.0
    rows_per_bag: int | None = None
    protocol: str = "end-to-end"
    threshold: float = 0.5
    proof: int = 1
    solver: str | Solver = "auto"
    memory_budget: float | None = None
    device: str | None = None
    n_jobs: int | None = None
    random_state: int | None = 0

    @classmethod
    def as_published(cls, **changes: Any) -> SVREnsemble:
        """The paper's settings: bootstrapped rows, z-scores, one γ = 1/(n_features · Var X), no weights."""
        published: dict[str, Any] = {"strategy": "rows", "gamma": "scale", "standardize": True, "positive_weight": 1.0}
        return cls(**(published | changes))

    @property
    def gamma_(self) -> tuple[float, float]:
        return self.spaces_.gamma[0]

    def fit(
        self,
        index: PassageIndex,
        query_vectors: Matrix,
        relevant: Sequence[Sequence[str]],
        *,
        candidates: Hits | None = None,
        exclude: Exclude | None = None,
        features: Floats | None = None,
        query_ids: Sequence[str] | None = None,
        groups: Ints | None = None,
    ) -> Self:
        """Train on judged queries.

        Parameters
        ----------
        index : PassageIndex
        query_vectors : (m, d)
        relevant : list of list of str
            The ids of each query's relevant documents.
        candidates : Hits (m, c), optional
            The passages to learn from; default the k nearest.
        exclude : (m,), optional
            Each query's own document, by id or number.
        features : (m, c, f), optional
            Of each candidate, for ``eta``; see :func:`pair_features`. A passage added for its label has none.
        query_ids : sequence of str, optional
            What explanations name; default the numbers.
        groups : (m,) int, optional
            Of queries that have much in common, as those taken from one document: whole groups are dealt out to bags of
            queries, and a query's out-of-bag scores are those of the bags that saw nothing of its group.

        Raises
        ------
        InputError, VectorError, DeviceError
            Other widths or NaN, an unknown document id, no relevant document at all, more bags than queries, vectors on
            another device than the ensemble's.
        """
        check_parameters("SVREnsemble", self.get_params(), self._parameter_constraints)
        vectors = _checked(query_vectors, index, home_of(self.device, [index.vectors]))
        m, near = int(vectors.shape[0]), to_numpy(vectors)
        if len(relevant) != m:
            raise InputError(f"{len(relevant)} lists of relevant documents for {m} query vectors")
        if candidates is None:
            if features is not None:
                raise InputError("features belong to candidates, which must be given with them")
            candidates = index.search(near, min(self.k, len(index)), exclude=exclude)
        elif len(candidates) != m:
            raise InputError(f"candidates of {len(candidates)} queries for {m} query vectors")
        candidates = candidates.to_numpy()
        rows = candidate_rows(self.protocol, candidates, relevant, index, near, exclude)
        values = None if features is None else _checked_features(features, candidates.passages)
        return self.fit_rows(index, vectors, rows, features=values, query_ids=query_ids, groups=groups)

    def fit_rows(
        self,
        index: PassageIndex,
        query_vectors: Matrix,
        rows: CandidateRows,
        *,
        features: Floats | None = None,
        query_ids: Sequence[str] | None = None,
        groups: Ints | None = None,
    ) -> Self:
        """Train on candidate rows of one's own making; the rest as in :meth:`fit`.

        Parameters
        ----------
        index, query_vectors, query_ids, groups
        rows : CandidateRows
        features : (m·c, f), optional
            Of the flattened candidates, in which ``rows.place`` counts.
        """
        check_parameters("SVREnsemble", self.get_params(), self._parameter_constraints)
        where = home_of(self.device, [index.vectors])
        vectors = _checked(query_vectors, index, where)
        m = int(vectors.shape[0])
        ids = [str(i) for i in range(m)] if query_ids is None else list(query_ids)
        if len(ids) != m:
            raise InputError(f"{len(ids)} query ids for {m} query vectors")
        groups = np.arange(m) if groups is None else np.asarray(groups)
        if groups.shape != (m,):
            raise InputError(f"groups: expected one of each of {m} queries, found {groups.shape}")
        if not rows.label.any():
            raise InputError("no candidate row is relevant: there is nothing to learn")
        for name, given, size in (("query", rows.query, m), ("passage", rows.passage, len(index))):
            if given.min() < 0 or given.max() >= size:
                raise InputError(f"candidate rows: {name} numbers must lie in 0..{size - 1}")
        if self.eta and (features is None or rows.place is None):
            raise InputError("eta > 0 asks for features of the candidates")
        # Only vectors that some row uses are scaled: the collection may be far larger.
        used_q, query = np.unique(rows.query, return_inverse=True)
        used_p, passage = np.unique(rows.passage, return_inverse=True)
        of_queries, of_passages = [rows_of(vectors, used_q, where)], [rows_of(index.vectors, used_p, where)]
        self.spaces_ = fit_spaces(query, passage, of_queries, of_passages, self.gamma, self.standardize)
        columns: dict[str, Any] = {}
        self.features_ = None
        if self.eta:
            assert features is not None
            assert rows.place is not None
            found = rows.place >= 0
            self.features_ = fit_features(features[rows.place[found]], self.eta)
            values = np.zeros((len(rows), features.shape[1]), dtype=np.float32)
            values[found] = self.features_(features[rows.place[found]])
            columns = {"features": values}
        points = self.spaces_.queries(of_queries), self.spaces_.passages(of_passages)
        weight = np.where(rows.label > 0, self.positive_weight, 1.0)
        data = TrainingSet(*points, query, passage, rows.label.astype(np.float64), weight, **columns)
        bags = self._bags(rows, to_numpy(vectors), groups)
        settings = {name: getattr(self, name) for name in ("C", "epsilon", "tol")}
        duals = solve_bags(data, bags, find_solver(self.solver), self.n_jobs, self.memory_budget, settings)
        self.support_, support_q, support_p = gathered(data, bags, duals)
        off = float(np.mean([rounding(data, dual.coef) for dual in duals]))
        if off > self.tol / 4:  # they may be: look
            some = np.linspace(0, len(rows) - 1, min(len(rows), _CHECKED)).astype(np.int64)
            off = self.support_.error(Pairs(points[0], points[1], query[some], passage[some]))
        if off > self.tol:
            warnings.warn(
                f"predictions may be off by {off:.2g}, tol is {self.tol:.2g}: float32 does not hold these kernels. "
                "Scale the vectors, lower gamma or C, or raise tol",
                PrecisionWarning,
                stacklevel=3,
            )
        self.support_query_ids_ = [ids[i] for i in used_q[support_q]]
        self.support_passage_ids_ = index.passage_ids.take(used_p[support_p]).to_pylist()
        self.index_, self.n_rows_ = index, len(rows)
        self.bag_sizes_, self.n_iter_ = [len(bag) for bag in bags], [dual.n_iter for dual in duals]
        self.seen_ = seen_by(rows.query, bags, groups)
        return self

    def _bags(self, rows: CandidateRows, vectors: Matrix, groups: Ints) -> list[Ints]:
        first, *others = map(np.random.default_rng, np.random.SeedSequence(self.random_state).spawn(self.n_bags + 1))
        bags = make_bags(rows, self.strategy, self.n_bags, self.overlap, first, vectors, groups)
        barren = sum(not rows.label[bag].any() for bag in bags)
        if barren:
            message = f"{barren} of {self.n_bags} bags have no relevant row; they are trained and predict about 0"
            warnings.warn(message, stacklevel=4)
        return [thinned(rows, bag, self.rows_per_bag, rng) for bag, rng in zip(bags, others, strict=True)]

    def score_candidates(
        self, query_vectors: Matrix, passages: Any, features: Any | None = None, *, intercept: bool = True
    ) -> Any:
        """(m, k) float32 mean prediction of the bags for any passages.

        Bags learned 1 for relevant and 0 for not, but one that saw nothing near predicts about 0, so the mean ranks;
        :meth:`relevant` decides.

        Parameters
        ----------
        query_vectors : (m, d)
        passages : (m, k) int
            Numbers in the index; -1 for none, whose score is -inf.
        features : (m, k, f), optional
            Of the pairs, if the ensemble was trained with them.
        intercept : bool, default True
            Without it a score is the sum of coef · K alone. Both rank alike, but beside the intercept, which is the
            same for all passages of a query, float32 loses small sums: the larger γ, the more.
        """
        check_is_fitted(self, "support_")
        return self._scored(query_vectors, passages, features, partial(self.support_.mean, intercept=intercept))

    def out_of_bag_scores(
        self,
        query_numbers: Ints,
        query_vectors: Matrix,
        passages: Any,
        features: Any | None = None,
        *,
        intercept: bool = True,
    ) -> Any:
        """As :meth:`score_candidates`, each training query by the mean of the bags that saw nothing of it.

        Refuses a loaded model, since ``seen_`` is not saved, and a query that every bag saw.

        Parameters
        ----------
        query_numbers : (m,) int
            Places of the queries among those that were given to :meth:`fit`; -1 for a new one, whose bags are all.
        query_vectors, passages, features, intercept
            As in :meth:`score_candidates`; passages may be any.
        """
        check_is_fitted(self, "support_")
        weights = self._bag_weights(query_numbers, len(passages))
        work = partial(self.support_.mean, intercept=intercept)
        return self._scored(query_vectors, passages, features, work, weights)

    def search(
        self,
        query_vectors: Matrix,
        k: int,
        *,
        exclude: Exclude | None = None,
        query_numbers: Ints | None = None,
        intercept: bool = True,
    ) -> Hits:
        """The k passages of the whole index that score highest for each query; Hits (m, k), as the queries were given.

        Every query meets every passage, in tiles: memory grows with m and k, not with the index. Scores are those of
        :meth:`score_candidates`; which passages are the last, float32's last bits may decide. An ensemble with ``eta``
        searches by its memory, Kq·Kp: what no search has found has no pair features.

        Parameters
        ----------
        query_vectors, k, exclude : (m, d); int; (m,), optional
            As in :meth:`PassageIndex.search`; a k beyond the index is all of it.
        query_numbers : (m,) int, optional
            As in :meth:`out_of_bag_scores`: training queries are searched by the bags that saw nothing of them.
        intercept : bool, default True
            As in :meth:`score_candidates`. With it, small sums that float32 loses are ties.
        """
        check_is_fitted(self, "support_")
        check_parameters("SVREnsemble.search", {"k": k}, {"k": COUNT})
        index, where = self.index_, self.support_.device
        vectors = _checked(query_vectors, index, where)
        m, n = int(vectors.shape[0]), len(index)
        weights = None if query_numbers is None else self._bag_weights(query_numbers, m)
        excluded = index.excluded(exclude, m)
        own = np.append(np.diff(index.doc_offsets), 0)[excluded].max(initial=0)  # the last is that of no document, -1

        def passages(tile: slice) -> Points:
            return self.spaces_.passages([rows_of(index.vectors, np.arange(tile.start, tile.stop), where)])

        with where.current():
            queries, depth = self.spaces_.queries([vectors]), min(n, min(k, n) + int(own) + SLACK)
            near = to_numpy(self.support_.highest(queries, n, passages, depth, weights, intercept=intercept))
        left = index.doc_of[near] != excluded[:, None]
        work = partial(self.support_.mean, intercept=intercept)
        scores = np.full(near.shape, _NO_SCORE)
        scores[left] = self._of_pairs(vectors, np.nonzero(left)[0], near[left], None, work, weights)
        return Hits(*(to_device(best, device_of(query_vectors)) for best in select(scores, min(k, n), near)))

    def _bag_weights(self, query_numbers: Any, m: int) -> Any:
        """(m, n_bags) what a bag's prediction counts for each query: those that saw nothing of it, alike."""
        asked = np.asarray(to_numpy(query_numbers))
        if not hasattr(self, "seen_"):
            raise InputError("a loaded model does not know which bags saw which training queries; fit it anew")
        if asked.shape != (m,) or not np.isin(asked, np.arange(-1, len(self.seen_))).all():
            raise InputError(f"query_numbers: expected {m} numbers of the {len(self.seen_)} training queries, or -1")
        outside = ~self.seen_[asked] | (asked < 0)[:, None]
        counts = outside.sum(axis=1)
        if not counts.all():
            first = f"{(counts == 0).sum()} of {len(asked)} queries, the first is {asked[counts.argmin()]}"
            raise InputError(f"out-of-bag scores: every bag saw {first}; take more bags or less overlap")
        return outside / counts[:, None]

    def votes(self, query_vectors: Matrix, passages: Any, features: Any | None = None) -> Any:
        """(m, k) how many of the bags predict more than ``threshold``."""

        def count(pairs: Pairs, _: Any) -> Any:
            return (self.support_.bags(pairs) > self.threshold).sum(axis=1)

        check_is_fitted(self, "support_")
        return self._scored(query_vectors, passages, features, count, nothing=np.int64(0))

    def relevant(self, query_vectors: Matrix, passages: Any, features: Any | None = None) -> Any:
        """(m, k) the paper's decision: at least ``proof`` bags vote for the passage."""
        votes = self.votes(query_vectors, passages, features)
        with device_of(votes).current():
            return votes >= self.proof

    def rank(
        self, query_vectors: Matrix, query_ids: Sequence[str], *, k: int = 100, exclude: Exclude | None = None
    ) -> Run:
        """Rank documents by the best-scored of the query's ``k`` nearest passages, but its own (``exclude``).

        Refused for ``protocol="injected"``, whose candidates would have to be chosen by the labels.
        """
        check_is_fitted(self, "support_")
        check_parameters("SVREnsemble.rank", {"k": k}, {"k": COUNT})
        if self.protocol == "injected":
            raise InputError("protocol 'injected' does not rank: its candidates depend on the labels of the query")
        vectors = _checked(query_vectors, self.index_, self.support_.device)
        near = self.index_.search(to_numpy(vectors), min(k, len(self.index_)), exclude=exclude).passages
        return rank_documents(self.index_, Hits(near, to_numpy(self.score_candidates(vectors, near))), query_ids)

    def explain(
        self, query_vector: Matrix, passage_id: str, *, features: Floats | None = None, top: int = 10
    ) -> Explanation:
        """Why a passage got its score for a query: the training pairs that carry it, with their exact shares.

        Parameters
        ----------
        query_vector : (1, d)
        passage_id : str
        features : (f,), optional
            Of the pair.
        top : int, default 10
            Pairs listed, by the size of their share; the others are summed up.
        """
        check_is_fitted(self, "support_")
        check_parameters("SVREnsemble.explain", {"top": top}, {"top": COUNT})
        vectors = _checked(query_vector, self.index_, self.support_.device)
        if vectors.shape[0] != 1:
            raise InputError("explain takes one query")
        passage = self.index_.numbers([passage_id])
        values = self._pair_features(None if features is None else to_numpy(features)[None, None], passage[None])
        pair = self._pairs(vectors, np.zeros(1, dtype=np.int64), passage, values)
        ids = self.support_query_ids_, self.support_passage_ids_
        return explained(self.support_, pair, ids, self.threshold, top)

    def _pair_features(self, features: Any, passages: Ints) -> Floats | None:
        """(m·k, f) features of the candidates (m, k), if the ensemble has such; then they must be given."""
        if self.features_ is None:
            return None
        if features is None:
            raise InputError("this ensemble was trained with pair features, which must be given")
        values, width = _checked_features(features, passages), len(self.features_.factor)
        if values.shape[1] != width:
            raise InputError(f"features: expected {width} a pair, found {values.shape[1]}")
        return values

    def _scored(
        self,
        query_vectors: Any,
        passages: Any,
        features: Any,
        work: Callable[[Pairs, Any], Any],
        bag_weights: NDArray[np.float64] | None = None,
        nothing: Any = _NO_SCORE,
    ) -> Any:
        """(m, k) what ``work`` makes of the candidates, and ``nothing`` where there is none.

        ``bag_weights`` (m, n_bags) of each query are handed on to ``work``.
        """
        asked_from, passages = device_of(query_vectors), to_numpy(passages)
        vectors = _checked(query_vectors, self.index_, self.support_.device)
        if len(passages) != vectors.shape[0]:
            raise InputError(f"candidates of {len(passages)} queries for {vectors.shape[0]} query vectors")
        real = passages >= 0
        values = self._pair_features(features, passages)
        flat = np.nonzero(real)[0], passages[real], None if values is None else values[real.ravel()]
        scores = np.full(passages.shape, nothing)
        scores[real] = self._of_pairs(vectors, *flat, work, bag_weights)
        return to_device(scores, asked_from)

    def _of_pairs(
        self,
        vectors: Matrix,
        query: Ints,
        passage: Ints,
        features: Floats | None,
        work: Callable[[Pairs, Any], Any],
        bag_weights: NDArray[np.float64] | None = None,
    ) -> NDArray[Any]:
        """(n,) what ``work`` makes of pairs, which are sorted by query: ``query`` rows of the vectors, and passages.

        On the CPU all at once; on a device as many as may bring their vectors.
        """
        where = self.support_.device

        def part_of(tile: slice) -> NDArray[Any]:
            rows = slice(int(query[tile.start]), int(query[tile.stop - 1]) + 1)
            values = None if features is None else features[tile]
            pairs = self._pairs(vectors[rows], query[tile] - rows.start, passage[tile], values)
            found: NDArray[Any] = to_numpy(work(pairs, None if bag_weights is None else bag_weights[rows]))
            return found

        size: float = len(query)
        if not where.is_cpu:
            size = batch_size_for_memory(
                where.half_of_memory() / 4, 8 * (int(vectors.shape[1]) + 3 * self.support_.n_bags)
            )
        with where.current():
            return np.concatenate([np.zeros(0), *iter_chunks(len(query), size, part_of, what="pairs")])

    def _pairs(self, vectors: Matrix, query: Ints, passage: Ints, features: Floats | None) -> Pairs:
        """Scaled pairs, where the support is."""
        distinct, place = np.unique(passage, return_inverse=True)
        there = rows_of(self.index_.vectors, distinct, self.support_.device)
        scaled = None if self.features_ is None or features is None else np.asarray(self.features_(features))
        return Pairs(self.spaces_.queries([vectors]), self.spaces_.passages([there]), query, place, scaled)

    def save(self, folder: Path | str) -> None:
        """Write the model to a new folder: safetensors, Parquet and JSON, whole or not at all. Not the index."""
        check_is_fitted(self, "support_")
        facts = {name: getattr(self, name) for name in _FACTS}
        ids = {"queries": self.support_query_ids_, "passages": self.support_passage_ids_}
        scalings = {} if self.features_ is None else {"features": self.features_}
        parts = self.get_params(), self.support_, self.spaces_
        save_model(Path(folder), "SVREnsemble", *parts, facts=facts, ids=ids, scalings=scalings)

    @classmethod
    def load(cls, folder: Path | str, index: PassageIndex, *, device: str | None = None) -> Self:
        """A saved model; executes nothing, needs no solver.

        Parameters
        ----------
        folder : Path or str
            :class:`FileFormatError` for files that are missing, changed, or of another kind or version.
        index : PassageIndex
            Of the same width as the one it was trained on.
        device : str, optional
            None: where the index's vectors are, wherever the model was trained.
        """
        model, saved = load_model(Path(folder), "SVREnsemble", cls, ids=("queries", "passages"))
        expected, found = ", ".join(each.described for each in saved.spaces.passage), described(index.vectors)
        if expected != found:
            raise VectorError(f"the model was trained on vectors of width {expected}, those of the index have {found}")
        model.device, model.index_, model.spaces_ = device, index, saved.spaces
        model.support_ = saved.support.to(home_of(device, [index.vectors]))
        model.features_ = saved.scalings.get("features")
        model.support_query_ids_, model.support_passage_ids_ = saved.ids["queries"], saved.ids["passages"]
        model.__dict__.update({name: saved.facts.get(name) for name in _FACTS})
        return model

    def on(self, index: PassageIndex) -> Self:
        """The same model with another index of its space: documents were added since, or it is limited to some."""
        expected, found = described(self.index_.vectors), described(index.vectors)
        if expected != found:
            raise VectorError(f"expected an index of {expected}, found {found}")
        other = copy.copy(self)
        other.index_ = index
        return other


def _checked(query_vectors: Any, index: PassageIndex, where: Device) -> Matrix:
    """Query vectors on a device, of the width of the passages, and sparse where they are."""
    return check_spaces(query_vectors, "query_vectors", like=[index.vectors], where=where)[0]


def _checked_features(features: Any, passages: Ints) -> Floats:
    """(m·k, f) features of the candidates (m, k), finite where there is one."""
    values: Floats = reals(to_numpy(features), "features", np.float32)
    if values.ndim != 3 or values.shape[:2] != passages.shape:
        raise InputError(f"features: expected shape {passages.shape} and a number of features, found {values.shape}")
    if not np.isfinite(values[passages >= 0]).all():
        raise InputError("features: NaN or infinity among them")
    return values.reshape(-1, values.shape[2])
