"""The SVR ensemble: bagged RBF support vector regressors over [query ; passage].

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR
Ensembles", LIRAI 2024, with rankings evaluated end to end.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from haybale.ensemble.bags import Bags, make_bags, thinned
from haybale.ensemble.out_of_bag import seen_by
from haybale.ensemble.out_of_bag_scorer import OutOfBagScorer
from haybale.ensemble.rows import CandidateRows, Ints, candidate_rows
from haybale.ensemble.solvers import find_solver
from haybale.ensemble.spaces import check_homes, check_spaces, fit_features, fit_spaces, home_of, on_host, rows_of
from haybale.ensemble.training import TrainingSet, gathered, solve_bags
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.passages import Exclude
from haybale.vectors import Floats, Matrix


class SVREnsemble(OutOfBagScorer):
    """Learns from judged queries which passages answer which queries, and ranks by it.

    A query's k nearest passages are its candidates; each is a row [q ; p], labelled by the relevance of its
    document. Overlapping bags of rows train one RBF ε-SVR each; their mean prediction ranks.

    The defaults are for L2-normalised vectors and were chosen on the dev queries of two collections;
    :meth:`as_published` has the paper's.

    Parameters:
        n_bags, overlap: the paper's s = 35 and 0.6; a bag holds (1 + overlap)/n_bags of the training set.
        strategy: ``"queries"`` (a query's candidates stay together), ``"rows"`` or ``"regions"`` (neighbouring
            queries together); see :func:`~haybale.ensemble.bags.make_bags`.
        routes: with ``"regions"``, a query is scored by the mean of so many nearest bags; None: of all.
        k: candidates of a query taken from the index, when none are given.
        C, epsilon, tol, max_iter: of the ε-SVR; -1 steps are as many as it takes.
        gamma: ``"scale"``, a number, a pair (query half, passage half), or a list with one of these a space.
        standardize: z-score every feature over the candidate rows.
        eta: weight of the kernel over pair features, which is added: K = Kq·Kp + eta·Ks; 0 leaves it out.
        feature_gamma: of Ks, whose features are z-scored; ``"scale"`` is 1 / number of features.
        positive_weight: how much heavier an error on a relevant row weighs (they are about 2 % of the rows).
        rows_per_bag: train each bag on at most so many rows: all its positives and a sample of its negatives.
        protocol: ``"end-to-end"``, or ``"injected"`` to repeat the paper's table; see :func:`candidate_rows`.
        threshold, proof: :meth:`relevant` says yes where at least ``proof`` bags predict over ``threshold``.
        oob_score: also score every training query by the bags that did not see it.
        blend: also learn from ``features`` how much evidence to add to the memory, by out-of-bag scores; see
            :mod:`haybale.ensemble.blending`.
        blend_queries: of so many training queries, drawn at random; None: of all.
        solver: ``"auto"`` (see :func:`~haybale.ensemble.solvers.solve_auto`), ``"product"``, ``"working-set"``,
            ``"cuml"``, ``"sklearn"``, ``"sklearn-features"``, or a callable from :class:`Problem` to :class:`Dual`.
        memory_budget: bytes of kernel values held while training, None: half of the machine's memory, or of what is
            free on the device; beyond it, rows of them are computed as they are needed. With joblib's Dask backend: of
            each task (None: half of a worker's memory, by its threads).
        device: where vectors and kernels are while training and scoring: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or
            ``"auto"``; None: where the index's vectors are. A saved model does not remember it.
        n_jobs: bags trained at once, through joblib (so ``joblib.parallel_config`` has its say).
        random_state: of the bags.

    Fitted: ``support_`` (:class:`Support`), ``spaces_`` (scalings and γ), ``index_``, ``n_rows_`` (candidate rows),
    ``bag_sizes_`` (rows each bag was trained on), ``gamma_`` (the pair used, of the first space), ``n_iter_`` (steps
    of each bag), ``centroids_`` (of regions, else None), ``seen_`` (n_training_queries, n_bags; whether a bag was
    trained on any row of a query; not saved); with ``oob_score``, ``oob_prediction_`` (n_rows,; NaN where
    every bag saw the query), ``oob_score_`` (R² of it), ``oob_mrr_`` (MRR@10 of the training queries: their documents
    ranked by the best row that a search found, so a query whose relevant documents no search found counts 0); with
    ``blend``, ``blend_`` (:class:`~haybale.ensemble.blending.Blend`).

    On a device the halves of ``support_`` are CuPy arrays; every other fitted attribute is what it is on the CPU. Query
    vectors may be NumPy or on the same device, and scores come back as the query vectors were given. Only vectors,
    kernels and their products are there: bags are made, blends learned and candidates sorted on the CPU.

    >>> rng = np.random.default_rng(0)
    >>> index = PassageIndex(rng.normal(size=(40, 4)))
    >>> queries = index.vectors[:20] + 0.1
    >>> relevant = [[str(i)] for i in range(20)]
    >>> ensemble = SVREnsemble(n_bags=4, k=10).fit(index, queries, relevant)
    >>> ensemble.rank(queries[:2], ["q0", "q1"], k=10)
    Run of 2 queries, 20 ranked documents
    """

    @classmethod
    def as_published(cls, **changes: Any) -> SVREnsemble:
        """The paper's settings: bootstrapped rows, z-scores, one γ = 1/(n_features · Var X), no weights."""
        published: dict[str, Any] = {"strategy": "rows", "gamma": "scale", "standardize": True, "positive_weight": 1.0}
        return cls(**(published | changes))

    def fit(
        self,
        index: PassageIndex,
        query_vectors: Matrix | Sequence[Matrix],
        relevant: Sequence[Sequence[str]],
        *,
        candidates: Hits | None = None,
        exclude: Exclude | None = None,
        spaces: Sequence[Matrix] = (),
        features: Floats | None = None,
        query_ids: Sequence[str] | None = None,
    ) -> SVREnsemble:
        """Train on judged queries.

        ``index`` over the passages; ``query_vectors`` (m, d) in the index's space; ``relevant`` the ids of each
        query's relevant documents; ``candidates`` (m, c) the passages to learn from (default: the k nearest);
        ``exclude`` (m,) each query's own document, by id or number.

        ``spaces`` are further spaces' passage vectors (n_passages, ·), dense or sparse; ``query_vectors`` is then a
        list with one matrix a space, the index's first. ``features`` (m, c, f) are numbers of each candidate, for
        ``eta`` and ``blend``; see :func:`pair_features`. A relevant passage that was no candidate has none, and
        shares no evidence with any row. ``query_ids`` (default: the numbers) are what explanations name.

        Errors: other widths or NaN, an unknown document id, no relevant document at all, more bags than queries, a
        device that is not there, vectors on another than the ensemble's. Bags without a relevant row are trained, with
        a warning.
        """
        self._validate_params()
        self._check_settings()
        vectors = self._query_vectors(query_vectors, index, spaces)
        m = vectors[0].shape[0]
        if len(relevant) != m:
            raise InputError(f"{len(relevant)} lists of relevant documents for {m} query vectors")
        if candidates is None:
            if features is not None:
                raise InputError("features belong to candidates, which must be given with them")
            candidates = index.search(on_host(vectors[0]), min(self.k, len(index)), exclude=exclude)
        elif len(candidates) != m:
            raise InputError(f"candidates of {len(candidates)} queries for {m} query vectors")
        candidates = candidates.to_numpy()
        pairs = _pairs(index, relevant, index.excluded(exclude, m))
        if not len(pairs[0]):
            raise InputError("no query has a relevant document: there is nothing to learn")
        rows = candidate_rows(self.protocol, candidates, pairs, index, on_host(vectors[0]))
        flat = self._checked_features(features, candidates)
        data, bags = self._fit(rows, vectors, index, spaces, flat, query_ids)
        self._look_out_of_bag(data, bags, rows, pairs, flat)
        return self

    def fit_rows(
        self,
        index: PassageIndex,
        query_vectors: Matrix | Sequence[Matrix],
        rows: CandidateRows,
        *,
        spaces: Sequence[Matrix] = (),
        query_ids: Sequence[str] | None = None,
    ) -> SVREnsemble:
        """Train on candidate rows of one's own making; the rest as in :meth:`fit`."""
        self._validate_params()
        self._check_settings()
        vectors = self._query_vectors(query_vectors, index, spaces)
        if not len(rows) or not rows.label.any():
            raise InputError("no candidate row is relevant: there is nothing to learn")
        for name, numbers, size in (("query", rows.query, vectors[0].shape[0]), ("passage", rows.passage, len(index))):
            if numbers.min() < 0 or numbers.max() >= size:
                raise InputError(f"candidate rows: {name} numbers must lie in 0..{size - 1}")
        if self.eta or self.blend:
            raise InputError("eta and blend need features of candidates: use fit")
        data, bags = self._fit(rows, vectors, index, spaces, None, query_ids)
        relevant = rows.label > 0
        pairs = rows.query[relevant].astype(np.int64), index.doc_of[rows.passage[relevant]]
        self._look_out_of_bag(data, bags, rows, pairs, None)
        return self

    def _check_settings(self) -> None:
        if self.routes is not None and (self.strategy != "regions" or self.routes > self.n_bags):
            raise InputError(f"routes asks for strategy 'regions' and at most n_bags, found {self.routes}")

    def _query_vectors(self, vectors: Any, index: PassageIndex, spaces: Sequence[Matrix]) -> list[Matrix]:
        for number, matrix in enumerate(spaces, start=1):
            if matrix.shape[0] != len(index):
                raise InputError(f"space {number}: expected {len(index)} rows, one a passage, found {matrix.shape[0]}")
        where = home_of(self.device, [index.vectors])
        check_homes([index.vectors, *spaces], where)
        return check_spaces(vectors, "query_vectors", like=[index.vectors, *spaces], where=where)

    def _checked_features(self, features: Floats | None, candidates: Hits) -> Floats | None:
        if self.eta == 0 and not self.blend:
            return None
        if features is None:
            raise InputError("eta > 0 and blend ask for features of the candidates")
        return self._flat_features(features, candidates.passages)

    def _fit(
        self,
        rows: CandidateRows,
        vectors: list[Matrix],
        index: PassageIndex,
        spaces: Sequence[Matrix],
        features: Floats | None,
        query_ids: Sequence[str] | None,
    ) -> tuple[TrainingSet, Bags]:
        m = int(vectors[0].shape[0])
        ids = [str(i) for i in range(m)] if query_ids is None else list(query_ids)
        if len(ids) != m:
            raise InputError(f"{len(ids)} query ids for {m} query vectors")
        # Only vectors that some row uses are scaled: the collection may be far larger.
        used_q, query = np.unique(rows.query, return_inverse=True)
        used_p, passage = np.unique(rows.passage, return_inverse=True)
        self.more_spaces_ = check_spaces(list(spaces), "spaces") if spaces else []
        where = home_of(self.device, [index.vectors])
        halves = (
            [rows_of(matrix, used_q, where) for matrix in vectors],
            [rows_of(matrix, used_p, where) for matrix in (index.vectors, *self.more_spaces_)],
        )
        self.spaces_ = fit_spaces(query, passage, *halves, self.gamma, self.standardize)
        label = rows.label.astype(np.float64)
        data = TrainingSet(
            queries=self.spaces_.queries(halves[0]),
            passages=self.spaces_.passages(halves[1]),
            query=query,
            passage=passage,
            label=label,
            weight=np.where(label > 0, self.positive_weight, 1.0),
            **self._evidence(rows, features),
        )
        bags = self._bags(rows, on_host(vectors[0]))
        names = ("C", "epsilon", "tol", "max_iter")
        settings = {name: getattr(self, name) for name in names}
        duals = solve_bags(data, bags.rows, find_solver(self.solver), self.n_jobs, self.memory_budget, settings)
        self.support_, support_q, support_p = gathered(data, bags.rows, duals, self.eta)
        self.support_query_ids_ = [ids[i] for i in used_q[support_q]]
        self.support_passage_ids_ = index.passage_ids.take(used_p[support_p]).to_pylist()
        self.index_ = index
        self.centroids_ = bags.centroids
        self.gamma_ = self.spaces_.gamma[0]
        self.n_rows_ = len(rows)
        self.bag_sizes_ = [len(bag) for bag in bags.rows]
        self.n_iter_ = [dual.n_iter for dual in duals]
        self.seen_ = seen_by(rows.query, bags.rows, m)
        return data, bags

    def _evidence(self, rows: CandidateRows, features: Floats | None) -> dict[str, Any]:
        self.features_ = None
        if features is None or self.eta == 0:
            return {}
        assert rows.place is not None  # features come with candidates
        found = rows.place >= 0
        self.features_ = fit_features(features[rows.place[found]], self.feature_gamma)
        evidence = np.zeros((len(rows), features.shape[1]), dtype=np.float32)
        evidence[found] = self.features_(features[rows.place[found]])
        return {"features": evidence, "features_root": np.where(found, np.sqrt(self.eta), 0).astype(np.float32)}

    def _bags(self, rows: CandidateRows, vectors: Matrix) -> Bags:
        seeds = np.random.SeedSequence(self.random_state).spawn(self.n_bags + 1)
        bags = make_bags(rows, self.strategy, self.n_bags, self.overlap, np.random.default_rng(seeds[0]), vectors)
        barren = sum(not rows.label[bag].any() for bag in bags.rows)
        if barren:
            message = f"{barren} of {self.n_bags} bags have no relevant row; they are trained and predict about 0"
            warnings.warn(message, stacklevel=4)
        generators = [np.random.default_rng(seed) for seed in seeds[1:]]
        limit = self.rows_per_bag
        return Bags(
            [thinned(rows, bag, limit, g) for bag, g in zip(bags.rows, generators, strict=True)], bags.centroids
        )


def _pairs(index: PassageIndex, relevant: Sequence[Sequence[str]], own: Ints) -> tuple[Ints, Ints]:
    """``(query rows, document numbers)`` of the relevant documents but the excluded ones, each pair once."""
    rows = np.repeat(np.arange(len(relevant)), [len(set(ids)) for ids in relevant])
    documents = index.document_numbers([doc for ids in relevant for doc in dict.fromkeys(ids)])
    kept = documents != own[rows]
    return rows[kept], documents[kept]
