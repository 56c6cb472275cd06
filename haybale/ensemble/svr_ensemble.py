"""The SVR ensemble: bagged RBF support vector regressors over [query ; passage].

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR
Ensembles", LIRAI 2024.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from haybale.device import device_of, find_device, to_device, to_numpy
from haybale.ensemble.bagging import solve_bags
from haybale.ensemble.bags import STRATEGIES, make_bags, out_of_bag_weights, seen_by
from haybale.ensemble.expansion import BagWeights
from haybale.ensemble.kernel import Pairs, Points
from haybale.ensemble.model_files import load_model, save_model
from haybale.ensemble.pair_explanation import PairExplanation, explain_pair
from haybale.ensemble.pair_features import check_features
from haybale.ensemble.pair_scores import PairScores, Predict
from haybale.ensemble.problem import Solver
from haybale.ensemble.rows import PROTOCOLS, CandidateRows, Ints, candidate_rows
from haybale.ensemble.scaled_rows import scale_rows
from haybale.ensemble.solvers import find_solver
from haybale.ensemble.spaces import take_rows
from haybale.ensemble.support import Support
from haybale.errors import InputError, NotFittedError
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
from haybale.retrieval import AnyPassageIndex, Hits, Run, rank_documents
from haybale.retrieval.exact import SLACK
from haybale.retrieval.hits import select
from haybale.retrieval.passages import Exclude
from haybale.vectors import Floats, Matrix, check_like

_REPORTED_ATTRIBUTES = ("n_rows_", "bag_sizes_", "n_iter_")  # attributes that are saved in the manifest
_NO_SCORE = np.float32(-np.inf)


@dataclass(eq=False)
class SVREnsemble:
    """Learn from judged queries which passages answer which queries, and rank passages by the learned score.

    The k nearest passages of a query are its candidates. Each candidate is a row x = [q ; p], with label y = 1 if its
    document is relevant and y = 0 if not. One RBF ε-SVR is trained on each of B overlapping bags of rows, and passages
    are ranked by the mean prediction:

        f(q, p) = 1/B Σ_b f_b(q, p),   f_b(q, p) = Σ_r coef_r Kq(q, q_r) Kp(p, p_r) + intercept_b

    The defaults are for L2-normalised vectors and were chosen on the dev queries of two collections.
    :meth:`as_published` has the settings of the paper. Query vectors may be NumPy arrays or on a device, and must be
    dense or sparse like the passages. Scores are returned in the array library of the query vectors.

    Kernels are float32. If rounding changes predictions by more than ``tol``, :meth:`fit` issues a
    :class:`~haybale.ensemble.problem.PrecisionWarning`; this happens with vectors that are long compared to 1/√γ, and
    with the coefficients of a large C.

    The model and its scores are the same bit for bit for any number of threads or processes, on processors and
    libraries of one kind and with the same ``memory_budget``. If the queries or the passages of the support have more
    than 65,536 numbers, a score may differ by about 1e-6 in a call with other queries or passages, or on another number
    of cores.

    Parameters
    ----------
    n_bags, overlap : int, default 35; float, default 0.6
        Number of bags. Each holds (1 + overlap)/n_bags of the training set, as in the paper. More overlap trains each
        bag on more rows, which takes longer.
    strategy : {"queries", "rows", "regions"}, default "queries"
        How rows are distributed over bags; see :func:`~haybale.ensemble.bags.make_bags`.
    k : int, default 50
        Number of candidates of each query, if :meth:`fit` is called without candidates.
    C, epsilon, tol : float, default 1, 0.1, 1e-3
        Regularisation, width of the ε-tube and stopping tolerance of each ε-SVR.
    gamma : "scale", float or pair, default (3, 2.5)
        γ of the kernel: one value, or a pair (queries, passages). ``"scale"`` is 1 / (n_features · Var X).
    standardize : bool, default False
        Whether to z-score every feature over the candidate rows. Needs dense vectors.
    eta : float, default 0
        Weight of a linear kernel over f z-scored pair features z: K = Kq·Kp + eta/f · z zᵀ. With 0, features are not
        used.
    positive_weight : float, default 3
        Factor of C for relevant rows, which are about 2 % of all rows.
    rows_per_bag : int, optional
        Maximum number of rows of a bag: all its positives and a sample of its negatives. Set it if training takes too
        long or too much memory.
    protocol : {"end-to-end", "injected"}, default "end-to-end"
        ``"injected"`` reproduces the table of the paper; see :func:`candidate_rows`.
    threshold, min_votes : float, default 0.5; int, default 1
        :meth:`relevant` is true if at least ``min_votes`` bags predict more than ``threshold``. The paper calls
        ``min_votes`` *proof*.
    solver : str or callable, default "auto"
        A name in ``SOLVERS``, or a function from ``Problem`` to ``Dual``, all in :mod:`haybale.ensemble`. ``"auto"`` is
        ``"working-set"`` on the CPU and ``"smo"`` on a CUDA device, which trains as many bags at once as it has
        multiprocessors.
    memory_budget : float, optional
        Bytes of kernel values held during training; on a Dask cluster, bytes per task. On the CPU, kernel rows that do
        not fit are computed again when they are needed. On a CUDA device, it limits the number of bags that are trained
        at once; with ``solver="auto"``, the working-set solver trains bags that do not fit alone, and the log says so.
        Default: half of the memory, or on a CUDA device nine tenths of its free memory.
    device : str, optional
        Device of vectors and kernels: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``. Default: the device of the
        index's vectors.
    n_jobs : int, optional
        Number of bags trained at the same time with joblib; ``joblib.parallel_config`` applies. It does not matter for
        bags that are trained at once on a CUDA device, unless ``joblib.parallel_config`` names processes or Dask.
    random_state : int, default 0
        Seed of the distribution over bags.

    Attributes
    ----------
    support_, spaces_ : Support, Spaces
        Support rows of all bags; scalings and γ, which is also ``gamma_``.
    n_rows_, bag_sizes_, n_iter_ : int, list of int, list of int
        Number of candidate rows; number of rows of each bag; number of solver steps of each bag.
    seen_ : (n_training_queries, n_bags) bool
        Whether each bag has a row of the query or of its group; not saved.

    Examples
    --------
    >>> from haybale import PassageIndex
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
        "min_votes": COUNT,
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
    min_votes: int = 1
    solver: str | Solver = "auto"
    memory_budget: float | None = None
    device: str | None = None
    n_jobs: int | None = None
    random_state: int | None = 0

    @classmethod
    def as_published(cls, **changes: Any) -> SVREnsemble:
        """Return an ensemble with the settings of the paper: bootstrapped rows, z-scores, γ = "scale", equal weights.

        ``changes`` are parameters that differ from these settings.
        """
        published: dict[str, Any] = {"strategy": "rows", "gamma": "scale", "standardize": True, "positive_weight": 1.0}
        return cls(**(published | changes))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def gamma_(self) -> tuple[float, float]:
        """γ of the queries and of the passages."""
        return self.spaces_.gamma[0]

    # training -------------------------------------------------------------------------------------------------

    def fit(
        self,
        index: AnyPassageIndex,
        query_vectors: Matrix,
        relevant: Sequence[Sequence[str]],
        *,
        candidates: Hits | None = None,
        exclude: Exclude | None = None,
        features: Floats | None = None,
        query_ids: Sequence[str] | None = None,
        groups: Ints | None = None,
        out_of_bag: bool = False,
    ) -> Self:
        """Train on judged queries.

        Parameters
        ----------
        index : PassageIndex
        query_vectors : (m, d)
        relevant : list of list of str
            The ids of each query's relevant documents.
        candidates : Hits (m, c), optional
            The passages to train on. Default: the k nearest passages of each query.
        exclude : (m,), optional
            Id or number of each query's own document, which is never a candidate or a positive.
        features : (m, c, f), optional
            :func:`~haybale.ensemble.pair_features` of the candidates, for ``eta``. Passages that are added because
            they are relevant have no features.
        query_ids : sequence of str, optional
            Names of the queries in explanations. Default: their numbers.
        groups : (m,) int, optional
            Group of each query, such as the document from which queries are taken. The strategy ``"queries"``
            distributes whole groups over bags, and the out-of-bag score of a query comes from bags without a query of
            its group.
        out_of_bag : bool, default False
            Whether :meth:`out_of_bag_scores` will be needed. A query in every bag is then refused before training.

        Raises
        ------
        InputError
            Parameters or data cannot be used, or no candidate row is relevant.
        """
        vectors = _checked(query_vectors, index)
        m = int(vectors.shape[0])
        _check_length("relevant", relevant, m)
        check_parameters("SVREnsemble", self.get_params(), self._parameter_constraints)
        if candidates is None:
            if features is not None:
                raise InputError("fit(features=…) needs candidates, the passages that the features describe; give both")
            candidates = index.search(vectors, min(self.k, len(index)), exclude=exclude)
        _check_length("candidates", candidates, m)
        candidates = candidates.to_numpy()
        rows = candidate_rows(self.protocol, candidates, relevant, index, vectors, exclude)
        values = None if features is None else check_features(features, candidates.passages)
        return self.fit_rows(
            index, vectors, rows, features=values, query_ids=query_ids, groups=groups, out_of_bag=out_of_bag
        )

    def fit_rows(
        self,
        index: AnyPassageIndex,
        query_vectors: Matrix,
        rows: CandidateRows,
        *,
        features: Floats | None = None,
        query_ids: Sequence[str] | None = None,
        groups: Ints | None = None,
        out_of_bag: bool = False,
    ) -> Self:
        """Train on given candidate rows; :meth:`fit` makes them from candidates and judgements.

        Parameters
        ----------
        index, query_vectors, query_ids, groups, out_of_bag
            As in :meth:`fit`, which raises the same errors.
        rows : CandidateRows
        features : (m·c, f), optional
            Pair features of the flattened candidates, to which ``rows.place`` refers.
        """
        check_parameters("SVREnsemble", self.get_params(), self._parameter_constraints)
        vectors = _checked(query_vectors, index)
        m = int(vectors.shape[0])
        ids = [str(i) for i in range(m)] if query_ids is None else list(query_ids)
        _check_length("query_ids", ids, m)
        groups = np.arange(m) if groups is None else np.asarray(groups)
        if groups.shape != (m,):
            raise InputError(f"groups must have shape ({m},), found {groups.shape}")
        scaled = scale_rows(
            rows,
            vectors,
            index.vectors,
            features,
            find_device(index.device if self.device is None else self.device),
            gamma=self.gamma,
            standardize=self.standardize,
            eta=self.eta,
        )
        self.spaces_, self.features_ = scaled.spaces, scaled.features
        problem = scaled.problem(self.positive_weight, C=self.C, epsilon=self.epsilon, tol=self.tol)
        sizes = self.n_bags, self.overlap, self.random_state
        bags = make_bags(rows, self.strategy, *sizes, vectors, groups, self.rows_per_bag)
        seen = seen_by(rows.query, bags, groups)
        if out_of_bag:
            out_of_bag_weights(seen, np.arange(m), m)
        duals = solve_bags(problem, bags, find_solver(self.solver), self.n_jobs, self.memory_budget)
        self.support_, support_q, support_p = Support.of(problem, bags, duals)
        self.support_.check_precision(problem, duals)
        self.support_query_ids_ = [ids[i] for i in scaled.queries[support_q]]
        self.support_passage_ids_ = index.passage_ids.take(scaled.passages[support_p]).to_pylist()
        self.index_, self.n_rows_ = index, len(rows)
        self.bag_sizes_, self.n_iter_ = [len(bag) for bag in bags], [dual.n_iter for dual in duals]
        self.seen_ = seen
        return self

    # scoring candidates ---------------------------------------------------------------------------------------

    def score_candidates(
        self,
        query_vectors: Matrix,
        passages: Any,
        features: Any | None = None,
        *,
        intercept: bool = True,
    ) -> Any:
        """Return the mean prediction of the bags for any passages, (m, k) float32.

        The mean is a score for ranking and not an estimate of the label: a bag predicts about 0 for a pair without
        training rows near it. :meth:`relevant` classifies passages.

        Parameters
        ----------
        query_vectors : (m, d)
        passages : (m, k) int
            Numbers in the index. -1 means no passage; its score is -inf.
        features : (m, k, f), optional
            Pair features, required if the ensemble was trained with them.
        intercept : bool, default True
            Whether to add the intercept, which is the same for all passages of a query. Without it, float32 keeps the
            order of very small sums, which are common with a large γ.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.
        InputError
            The arrays do not fit together.
        """
        self._check_fitted()
        mean = partial(self.support_.mean, intercept=intercept)
        return self._scored(query_vectors, passages, features, mean)

    def out_of_bag_scores(
        self,
        query_numbers: Ints,
        query_vectors: Matrix,
        passages: Any,
        features: Any | None = None,
        *,
        intercept: bool = True,
    ) -> Any:
        """Return the mean prediction of the bags that were not trained on the query, (m, k) float32.

        Raises :class:`InputError` for a loaded model, because ``seen_`` is not saved, and for a query in every bag.

        Parameters
        ----------
        query_numbers : (m,) int
            The position of each query in the queries of :meth:`fit`; -1 for a new query, scored by all bags.
        query_vectors, passages, features, intercept
            As in :meth:`score_candidates`.
        """
        weights = self.bag_weights(query_numbers, len(passages))
        mean = partial(self.support_.mean, intercept=intercept)
        return self._scored(query_vectors, passages, features, mean, weights)

    def bag_weights(self, query_numbers: Any, m: int) -> BagWeights:
        """Return the weight (m, n_bags) of each bag in the :meth:`out_of_bag_scores` of ``m`` queries."""
        self._check_fitted()
        if not hasattr(self, "seen_"):
            raise InputError("out-of-bag scores need 'seen_', which is not saved with a model; fit the model again")
        return out_of_bag_weights(self.seen_, np.asarray(to_numpy(query_numbers)), m)

    def votes(self, query_vectors: Matrix, passages: Any, features: Any | None = None) -> Any:
        """Return the number of bags that predict more than ``threshold``, (m, k) int."""

        def count(pairs: Pairs, _: Any) -> Any:
            return (self.support_.bags(pairs) > self.threshold).sum(axis=1)

        return self._scored(query_vectors, passages, features, count, padding=np.int64(0))

    def relevant(self, query_vectors: Matrix, passages: Any, features: Any | None = None) -> Any:
        """Return whether at least ``min_votes`` bags vote for the passage, (m, k) bool; the decision of the paper."""
        votes = self.votes(query_vectors, passages, features)
        with device_of(votes).current():
            return votes >= self.min_votes

    def explain(
        self, query_vector: Matrix, passage_id: str, *, features: Floats | None = None, top: int = 10
    ) -> PairExplanation:
        """Explain the score of a passage by the training pairs that contribute to it, with their exact shares.

        The ``top`` pairs with the largest absolute shares are listed; the other shares are summed. ``features`` (f,)
        are required if the ensemble was trained with pair features. Raises :class:`InputError` for an unknown passage.
        """
        check_parameters("SVREnsemble.explain", {"top": top}, {"top": COUNT})
        self._check_fitted()
        vectors = _checked(query_vector, self.index_)
        if vectors.shape[0] != 1:
            raise InputError(f"explain needs one query vector, found {vectors.shape[0]}")
        passage = self.index_.numbers([passage_id])
        batch = None if features is None else to_numpy(features)[None, None]
        values = self.pair_scores.checked_features(batch, passage[None])
        pair = self.pair_scores.pairs(vectors, np.zeros(1, dtype=np.int64), passage, values)
        ids = self.support_query_ids_, self.support_passage_ids_
        return explain_pair(self.support_, pair, *ids, self.threshold, top)

    def _scored(
        self,
        query_vectors: Any,
        passages: Any,
        features: Any,
        predict: Predict,
        bag_weights: BagWeights | None = None,
        padding: Any = _NO_SCORE,
    ) -> Any:
        """Return the predictions (m, k) for candidates, and ``padding`` where there is no candidate."""
        self._check_fitted()
        vectors, passages = _checked(query_vectors, self.index_), to_numpy(passages)
        _check_length("passages", passages, vectors.shape[0])
        model, real = self.pair_scores, passages >= 0
        values = model.checked_features(features, passages)
        scores = np.full(passages.shape, padding)
        scores[real] = model.predicted(vectors, np.nonzero(real)[0], passages[real], values, predict, bag_weights)
        return to_device(scores, device_of(query_vectors))

    @property
    def pair_scores(self) -> PairScores:
        """What scores pairs: the support, the scalings and the index."""
        return PairScores(self.support_, self.spaces_, self.features_, self.index_)

    # searching and ranking ------------------------------------------------------------------------------------

    def search(
        self,
        query_vectors: Matrix,
        k: int,
        *,
        exclude: Exclude | None = None,
        query_numbers: Ints | None = None,
        intercept: bool = True,
    ) -> Hits:
        """Return the k passages with the highest scores for each query, Hits (m, k), among all passages of the index.

        Every query is scored with every passage, in tiles: memory grows with m and k, but not with the index. Scores
        are those of :meth:`score_candidates`. Rounding to float32 may decide which of almost equal passages is last.
        An ensemble with ``eta`` searches with Kq·Kp only, because passages that no other search found have no pair
        features.

        Parameters
        ----------
        query_vectors, k, exclude : (m, d); int; (m,), optional
            As in :meth:`PassageIndex.search`. If k is larger than the index, all passages are returned.
        query_numbers, intercept : (m,) int, optional; bool, default True
            As in :meth:`out_of_bag_scores`, which raises the same errors. With the intercept, very small sums are ties.
        """
        check_parameters("SVREnsemble.search", {"k": k}, {"k": COUNT})
        self._check_fitted()
        index, where = self.index_, self.support_.device
        vectors = _checked(query_vectors, index)
        m, n = int(vectors.shape[0]), len(index)
        weights = None if query_numbers is None else self.bag_weights(query_numbers, m)
        excluded = index.excluded(exclude, m)
        sizes = np.append(np.diff(index.doc_offsets), 0)  # the last size is for -1, no document
        n_excluded = int(sizes[excluded].max(initial=0))

        def passages(tile: slice) -> Points:
            return self.spaces_.passages([take_rows(index.vectors, np.arange(tile.start, tile.stop), where)])

        queries, depth = self.spaces_.queries([to_device(vectors, where)]), min(n, min(k, n) + n_excluded + SLACK)
        near = to_numpy(self.support_.highest(queries, n, passages, depth, weights, intercept=intercept))
        left = index.doc_of[near] != excluded[:, None]
        scores = np.full(near.shape, _NO_SCORE)
        pairs = np.nonzero(left)[0], near[left]
        mean = partial(self.support_.mean, intercept=intercept)
        scores[left] = self.pair_scores.predicted(vectors, *pairs, None, mean, weights)
        best = select(scores, min(k, n), near, index.columns.order)
        return Hits(*(to_device(column, device_of(query_vectors)) for column in best))

    def rank(
        self, query_vectors: Matrix, query_ids: Sequence[str], *, k: int = 100, exclude: Exclude | None = None
    ) -> Run:
        """Rank the documents of the ``k`` nearest passages of each query; a document scores by its best passage.

        ``exclude`` (m,) has the id or number of each query's own document, which is not ranked. Raises
        :class:`InputError` for ``protocol="injected"``, whose candidates depend on the labels.
        """
        check_parameters("SVREnsemble.rank", {"k": k}, {"k": COUNT})
        self._check_fitted()
        if self.protocol == "injected":
            raise InputError("protocol='injected' cannot rank: its candidates depend on the labels; use 'end-to-end'")
        vectors = _checked(query_vectors, self.index_)
        near = self.index_.search(vectors, min(k, len(self.index_)), exclude=exclude).passages
        return rank_documents(self.index_, Hits(near, self.score_candidates(vectors, near)), query_ids)

    # files ----------------------------------------------------------------------------------------------------

    def save(self, folder: Path | str) -> None:
        """Write the model, without the index, to a new or empty folder; the folder appears when it is complete."""
        self._check_fitted()
        report = {name: getattr(self, name) for name in _REPORTED_ATTRIBUTES}
        ids = {"queries": self.support_query_ids_, "passages": self.support_passage_ids_}
        scalings = {} if self.features_ is None else {"features": self.features_}
        saved: dict[str, Any] = {"report": report, "ids": ids, "scalings": scalings}
        save_model(Path(folder), "SVREnsemble", self.get_params(), self.support_, self.spaces_, **saved)

    @classmethod
    def load(cls, folder: Path | str, index: AnyPassageIndex, *, device: str | None = None) -> Self:
        """Load a saved model for an index whose vectors have the same width as in training.

        ``device`` is by default the device of the index. Raises :class:`FileFormatError` for missing or
        changed files, or another kind or version, and :class:`VectorError` for vectors of another width.
        """
        model, saved = load_model(Path(folder), "SVREnsemble", cls, ids=("queries", "passages"))
        saved.spaces.check_passages(index.vectors)
        model.device, model.index_, model.spaces_ = device, index, saved.spaces
        model.support_ = saved.support.to(find_device(index.device if device is None else device))
        model.features_ = saved.scalings.get("features")
        model.support_query_ids_, model.support_passage_ids_ = saved.ids["queries"], saved.ids["passages"]
        model.__dict__.update({name: saved.report.get(name) for name in _REPORTED_ATTRIBUTES})
        return model

    def on(self, index: AnyPassageIndex) -> Self:
        """Return the model with another index of the same space, such as an index with added documents."""
        self.spaces_.check_passages(index.vectors)
        other = copy.copy(self)
        other.index_ = index
        return other

    def _check_fitted(self) -> None:
        if not hasattr(self, "support_"):
            raise NotFittedError("SVREnsemble is not fitted: call fit(index, query_vectors, relevant) first")


def _checked(query_vectors: Any, index: AnyPassageIndex) -> Matrix:
    """Return query vectors on the CPU; raise unless they have the width of the passages and are sparse like them."""
    checked: Matrix = to_numpy(check_like(query_vectors, "query_vectors", index.vectors))
    return checked


def _check_length(name: str, rows: Any, m: int) -> None:
    if len(rows) != m:
        raise InputError(f"{name} must have one entry for each of the {m} query vectors, found {len(rows)}")
