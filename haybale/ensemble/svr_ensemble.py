"""The SVR ensemble: bagged RBF support vector regressors over [query ; passage].

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR
Ensembles", LIRAI 2024, with rankings evaluated end to end.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from haybale.collections.collection import numbers_of
from haybale.ensemble.bags import STRATEGIES, make_bags, thinned
from haybale.ensemble.kernel import Gamma, fit_scaling, resolve_gamma
from haybale.ensemble.rows import PROTOCOLS, CandidateRows, Ints, candidate_rows
from haybale.ensemble.solver import Dual, Problem, Solver, find_solver
from haybale.ensemble.support import Support
from haybale.errors import InputError
from haybale.progress import track
from haybale.retrieval import Hits, PassageIndex, Run, rank_documents
from haybale.retrieval.passages import Exclude
from haybale.vectors import Floats, check_vectors


class SVREnsemble(BaseEstimator):  # type: ignore[misc]
    """Learns from judged queries which passages answer which queries, and ranks by it.

    A query's k nearest passages are its candidates; each is a row [q ; p], labelled by the relevance of its
    document. Overlapping bags of rows train one RBF ε-SVR each; their mean prediction ranks.

    The defaults are for L2-normalised vectors and were chosen on the dev queries of two collections;
    :meth:`as_published` has the paper's.

    Parameters:
        n_bags, overlap: the paper's s = 35 and 0.6; a bag holds (1 + overlap)/n_bags of the training set.
        strategy: ``"queries"`` (a query's candidates stay together) or ``"rows"``; see :func:`make_bags`.
        k: candidates of a query taken from the index, when none are given.
        C, epsilon, tol: of the ε-SVR.
        gamma: ``"scale"``, a number, or a pair (query half, passage half).
        standardize: z-score every feature over the candidate rows.
        positive_weight: how much heavier an error on a relevant row weighs (they are about 2 % of the rows).
        rows_per_bag: train each bag on at most so many rows: all its positives and a sample of its negatives.
        protocol: ``"end-to-end"``, or ``"injected"`` to repeat the paper's table; see :func:`candidate_rows`.
        threshold, proof: :meth:`relevant` says yes where at least ``proof`` bags predict over ``threshold``.
        solver: ``"sklearn"``, ``"sklearn-features"``, or a callable from :class:`Problem` to :class:`Dual`.
        n_jobs: bags trained at once, through joblib (so ``joblib.parallel_config`` has its say).
        random_state: of the bags.

    Fitted: ``support_`` (:class:`Support`), ``index_``, ``n_rows_`` (candidate rows), ``bag_sizes_`` (rows each
    bag was trained on), ``gamma_`` (the pair used).

    >>> rng = np.random.default_rng(0)
    >>> index = PassageIndex(rng.normal(size=(40, 4)))
    >>> queries = index.vectors[:20] + 0.1
    >>> relevant = [[str(i)] for i in range(20)]
    >>> ensemble = SVREnsemble(n_bags=4, k=10).fit(index, queries, relevant)
    >>> ensemble.rank(queries[:2], ["q0", "q1"], k=10)
    Run of 2 queries, 20 ranked documents
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_bags": [Interval(Integral, 1, None, closed="left")],
        "overlap": [Interval(Real, 0, None, closed="left")],
        "strategy": [StrOptions(set(STRATEGIES))],
        "k": [Interval(Integral, 1, None, closed="left")],
        "C": [Interval(Real, 0, None, closed="neither")],
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "gamma": [StrOptions({"scale"}), Interval(Real, 0, None, closed="neither"), tuple],
        "standardize": ["boolean"],
        "positive_weight": [Interval(Real, 0, None, closed="neither")],
        "rows_per_bag": [Interval(Integral, 2, None, closed="left"), None],
        "protocol": [StrOptions(set(PROTOCOLS))],
        "threshold": [Interval(Real, None, None, closed="neither")],
        "proof": [Interval(Integral, 1, None, closed="left")],
        "solver": [str, callable],
        "n_jobs": [Integral, None],
        "random_state": [Integral, None],
    }

    def __init__(
        self,
        n_bags: int = 35,
        *,
        overlap: float = 0.6,
        strategy: str = "queries",
        k: int = 50,
        C: float = 1.0,
        epsilon: float = 0.1,
        tol: float = 1e-3,
        gamma: Gamma = (3.0, 2.5),
        standardize: bool = False,
        positive_weight: float = 3.0,
        rows_per_bag: int | None = None,
        protocol: str = "end-to-end",
        threshold: float = 0.5,
        proof: int = 1,
        solver: str | Solver = "sklearn",
        n_jobs: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_bags = n_bags
        self.overlap = overlap
        self.strategy = strategy
        self.k = k
        self.C = C
        self.epsilon = epsilon
        self.tol = tol
        self.gamma = gamma
        self.standardize = standardize
        self.positive_weight = positive_weight
        self.rows_per_bag = rows_per_bag
        self.protocol = protocol
        self.threshold = threshold
        self.proof = proof
        self.solver = solver
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def as_published(cls, **changes: Any) -> SVREnsemble:
        """The paper's settings: bootstrapped rows, z-scores, one γ = 1/(n_features · Var X), no weights."""
        published: dict[str, Any] = {"strategy": "rows", "gamma": "scale", "standardize": True, "positive_weight": 1.0}
        return cls(**(published | changes))

    # learning -----------------------------------------------------------------------------------------

    def fit(
        self,
        index: PassageIndex,
        query_vectors: Floats,
        relevant: Sequence[Sequence[str]],
        *,
        candidates: Hits | None = None,
        exclude: Exclude | None = None,
    ) -> SVREnsemble:
        """Train on judged queries.

        ``index`` over the passages; ``query_vectors`` (m, d) in the index's space; ``relevant`` the ids of each
        query's relevant documents; ``candidates`` (m, ·) the passages to learn from (default: the k nearest);
        ``exclude`` (m,) each query's own document, by id or number.

        Errors: other widths or NaN, an unknown document id, no relevant document at all, more bags than
        queries. Bags without a relevant row are trained, with a warning.
        """
        self._validate_params()
        queries = check_vectors(query_vectors, "query_vectors", index.width)
        if len(relevant) != len(queries):
            raise InputError(f"{len(relevant)} lists of relevant documents for {len(queries)} query vectors")
        if candidates is None:
            candidates = index.search(queries, min(self.k, len(index)), exclude=exclude)
        elif len(candidates) != len(queries):
            raise InputError(f"candidates of {len(candidates)} queries for {len(queries)} query vectors")
        pairs = _pairs(index, relevant, index.excluded(exclude, len(queries)))
        if not len(pairs[0]):
            raise InputError("no query has a relevant document: there is nothing to learn")
        rows = candidate_rows(self.protocol, candidates, pairs, index, queries)
        scaling = fit_scaling(rows, queries, index.vectors, self.standardize)
        # Only vectors that some row uses are scaled: the collection may be far larger.
        used_q, row_q = np.unique(rows.query, return_inverse=True)
        used_p, row_p = np.unique(rows.passage, return_inverse=True)
        scaled_q, scaled_p = scaling.queries(queries[used_q]), scaling.passages(index.vectors[used_p])
        rows = CandidateRows(row_q.astype(np.int32), row_p.astype(np.int32), rows.label)
        gamma = resolve_gamma(self.gamma, rows, scaled_q, scaled_p)
        bags = self._bags(rows)
        solver = find_solver(self.solver)
        tasks = (delayed(self._solve_bag)(solver, rows.take(bag), scaled_q, scaled_p, gamma) for bag in bags)
        # Threads: libsvm and BLAS release the interpreter, and the vectors are shared.
        solved = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")(tasks)
        duals = list(track(solved, "training bags", len(bags)))
        self.support_ = _gathered(rows, bags, duals, scaled_q, scaled_p, gamma, scaling)
        self.index_ = index
        self.gamma_ = gamma
        self.n_rows_ = len(rows)
        self.bag_sizes_ = [len(bag) for bag in bags]
        return self

    def _bags(self, rows: CandidateRows) -> list[Ints]:
        seeds = np.random.SeedSequence(self.random_state).spawn(self.n_bags + 1)
        bags = make_bags(rows, self.strategy, self.n_bags, self.overlap, np.random.default_rng(seeds[0]))
        barren = sum(not rows.label[bag].any() for bag in bags)
        if barren:
            message = f"{barren} of {self.n_bags} bags have no relevant row; they are trained and predict about 0"
            warnings.warn(message, stacklevel=3)
        return [
            thinned(rows, bag, self.rows_per_bag, np.random.default_rng(seed))
            for bag, seed in zip(bags, seeds[1:], strict=True)
        ]

    def _solve_bag(
        self,
        solver: Solver,
        rows: CandidateRows,
        queries: Floats,
        passages: Floats,
        gamma: tuple[float, float],
    ) -> Dual:
        used_q, query = np.unique(rows.query, return_inverse=True)
        used_p, passage = np.unique(rows.passage, return_inverse=True)
        label = rows.label.astype(np.float64)
        return solver(
            Problem(
                queries=queries[used_q],
                passages=passages[used_p],
                query=query,
                passage=passage,
                label=label,
                weight=np.where(label > 0, self.positive_weight, 1.0),
                gamma=gamma,
                C=self.C,
                epsilon=self.epsilon,
                tol=self.tol,
            )
        )

    # scoring ------------------------------------------------------------------------------------------

    def score(self, query_vectors: Floats, passage_ids: Sequence[Sequence[str]]) -> list[Floats]:
        """Score any passages for each query: (m, d) vectors and m lists of passage ids to m float32 arrays.

        The score is the mean prediction of the bags. They learned 1 for relevant and 0 for not, but a bag that
        saw nothing near predicts about 0, so the mean ranks; :meth:`relevant` decides. Unknown ids raise.
        """
        check_is_fitted(self, "support_")
        if len(passage_ids) != len(query_vectors):
            raise InputError(f"{len(passage_ids)} lists of passage ids for {len(query_vectors)} query vectors")
        lengths = np.array([len(ids) for ids in passage_ids], dtype=np.int64)
        padded = np.full((len(lengths), int(lengths.max(initial=0))), -1, dtype=np.int64)
        filled = np.arange(padded.shape[1]) < lengths[:, None]
        padded[filled] = self.index_.numbers([passage for ids in passage_ids for passage in ids])
        scores = self.score_candidates(query_vectors, padded)
        return [row[:length] for row, length in zip(scores, lengths, strict=True)]

    def score_candidates(self, query_vectors: Floats, passages: Ints) -> Floats:
        """The same by number: ``passages`` (m, k), -1 for none, to (m, k) float32 with -inf there."""
        check_is_fitted(self, "support_")
        queries = check_vectors(query_vectors, "query_vectors", self.index_.width)
        scores = self.support_.mean(queries, passages, self.index_.vectors)
        return np.where(passages < 0, np.float32(-np.inf), scores)

    def votes(self, query_vectors: Floats, passages: Ints) -> Ints:
        """(m, k) how many of the bags predict more than ``threshold``."""
        check_is_fitted(self, "support_")
        queries = check_vectors(query_vectors, "query_vectors", self.index_.width)
        return self.support_.votes(queries, passages, self.index_.vectors, self.threshold)

    def relevant(self, query_vectors: Floats, passages: Ints) -> np.ndarray:
        """(m, k) the paper's decision: at least ``proof`` bags vote for the passage."""
        return self.votes(query_vectors, passages) >= self.proof

    def rank(
        self,
        query_vectors: Floats,
        query_ids: Sequence[str],
        *,
        k: int = 100,
        candidates: Hits | None = None,
        exclude: Exclude | None = None,
    ) -> Run:
        """Rank documents by their best-scored candidate.

        ``candidates`` (m, ·) are re-ranked; without them, the k nearest passages are. Documents that no
        candidate belongs to are not in the run. Refused for ``protocol="injected"``, whose candidates would
        have to be chosen by the labels.
        """
        check_is_fitted(self, "support_")
        if self.protocol == "injected":
            raise InputError("protocol 'injected' does not rank: its candidates depend on the labels of the query")
        if len(query_ids) != len(query_vectors):
            raise InputError(f"{len(query_ids)} query ids for {len(query_vectors)} query vectors")
        if candidates is None:
            candidates = self.index_.search(query_vectors, min(k, len(self.index_)), exclude=exclude)
        scores = self.score_candidates(query_vectors, candidates.passages)
        return rank_documents(self.index_, Hits(candidates.passages, scores), query_ids)


def _pairs(index: PassageIndex, relevant: Sequence[Sequence[str]], own: Ints) -> tuple[Ints, Ints]:
    """``(query rows, document numbers)`` of the relevant documents but the excluded ones, each pair once."""
    rows = np.repeat(np.arange(len(relevant)), [len(set(ids)) for ids in relevant])
    documents = numbers_of(index.doc_ids, [doc for ids in relevant for doc in dict.fromkeys(ids)], "document")
    kept = documents != own[rows]
    return rows[kept], documents[kept]


def _gathered(
    rows: CandidateRows,
    bags: list[Ints],
    duals: list[Dual],
    queries: Floats,
    passages: Floats,
    gamma: tuple[float, float],
    scaling: Any,
) -> Support:
    """Support rows of all bags over the vectors they share."""
    kept = [bag[dual.coef != 0] for bag, dual in zip(bags, duals, strict=True)]
    together = np.concatenate(kept)
    used_q, query = np.unique(rows.query[together], return_inverse=True)
    used_p, passage = np.unique(rows.passage[together], return_inverse=True)
    return Support(
        queries=queries[used_q],
        passages=passages[used_p],
        query=query,
        passage=passage,
        coef=np.concatenate([dual.coef[dual.coef != 0] for dual in duals]),
        offsets=np.concatenate(([0], np.cumsum([len(part) for part in kept]))),
        intercept=np.array([dual.intercept for dual in duals]),
        gamma=gamma,
        scaling=scaling,
    )
