"""BM25 whose query terms have weights that are learned on judged queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from haybale.engine import Engine
from haybale.errors import FileFormatError
from haybale.manifest import read_table, read_tensors, write_table, write_tensors
from haybale.parameters import BM25_RANGES, COUNT, NOT_NEGATIVE, RANDOM_STATE
from haybale.progress import track
from haybale.rankers.models.term_features import KINDS, QueryTerms, TermFeatures
from haybale.rankers.models.term_weights import TermPools, term_weights
from haybale.ranking.out_of_fold import OutOfFold
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import AnyBM25, Run
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.search.explanation import Explanation, Share, by_size
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Floats

if TYPE_CHECKING:
    import pandas as pd

_N_FOLDS = 5
_MAX_TRAINING_WORDS = 2**22  # words of the queries that are learned from, so that their features fit into memory
_FEATURES_FILE, _WEIGHTS_FILE = "term_features.parquet", "term_weights.safetensors"
_SCHEMA = pa.schema([("kind", pa.large_string()), ("word", pa.large_string()), ("value", pa.int64())])

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class WeightedBM25(OutOfFold, Ranker):
    """Rank whole documents by BM25, with weights of the query's terms that are learned on judged queries.

    score(d) = Σ over distinct terms t of the query of n(t) · exp(x(t) · θ) · s(t, d), where s(t, d) is the share of one
    occurrence of t in BM25's score, n(t) is how often t counts by k3, and x(t) are features of the term in this query:
    the term itself, the two words before and after it, its distance from the most frequent words of the queries, its
    place, and how rare it is (:class:`~haybale.rankers.models.term_features.TermFeatures`). θ makes the relevant
    documents of training queries likely among the first candidates of BM25, with a penalty on its square
    (:mod:`~haybale.rankers.models.term_weights`). A document that is relevant to n training queries counts 1/√n in
    each, so that the weights are not those of a few documents. With θ = 0, this is :class:`~haybale.BM25`.

    Weights belong to features of terms, not to documents. So documents without judgements gain as others do, and unseen
    queries gain, too. Long queries gain most. Out of fold, a training query is ranked with weights learned on other
    folds.

    Zheng & Callan, "Learning to Reweight Terms with Distributed Representations", SIGIR 2015, learn weights of query
    terms from word vectors.

    Parameters
    ----------
    k1, b, k3 : optional
        As in :class:`~haybale.BM25`. Values for ``bm25-doc`` are set here, too.
    l2 : float, default 30
        Strength of the penalty, compared with the sum of the losses of all training queries. It was chosen on the dev
        splits of six collections. With 10, all of them rank about as well; with 100, one ranks clearly worse.
    min_count : int, default 5
        A feature that fewer terms of the training queries have is not used.
    n_candidates : int, default 50
        Candidates of a training query, beside its relevant documents: the first of BM25.
    random_state : int, default 0
        Seed of the folds, and of the sample of queries if they have more than four million words.
    """

    name = "bm25-weighted"
    variants: ClassVar = {"bm25-weighted": {}}
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = {
        **BM25_RANGES,
        "l2": NOT_NEGATIVE,
        "min_count": COUNT,
        "n_candidates": COUNT,
        "random_state": RANDOM_STATE,
    }

    _: KW_ONLY
    k1: float = 1.2
    b: float = 0.75
    k3: float | None = None
    l2: float = 30.0
    min_count: int = 5
    n_candidates: int = 50
    random_state: int | None = 0

    @property
    def uses_vectors(self) -> bool:
        """False: BM25 counts terms."""
        return False

    def _answers_to(self, name: str, parameter: str) -> bool:
        """Return whether the parameter is one that BM25 over documents has, too."""
        return name == "bm25-doc" and parameter in BM25_RANGES

    def fit_batch(self, training: Training) -> None:
        batch, index = training.batch, self._index(training.batch.engine)
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(_N_FOLDS, self.random_state)
        rows = self._sampled(training)
        queries, fold_of = batch.take(rows), self.fold_of_[rows]
        with batch.timed("learn weights of terms"):
            source = [index.analyzer.tokens(text) for text in queries.texts], index.analyzer, index.text_frequencies
            self.features_ = TermFeatures.learn(*source, len(index), self.min_count)
            terms = self.features_.of(*source)
            pools = self._pools(queries, [training.relevant[row] for row in rows], terms)
            everything, zero = np.ones(len(rows), dtype=bool), np.zeros(1 + len(self.features_))
            self.theta_ = pools.fit(self.l2, everything, zero)
            folds = range(int(self.fold_of_.max()) + 1)
            self.fold_thetas_: Array = np.array([pools.fit(self.l2, fold_of != fold, zero) for fold in folds])
            unweighted = sum(pools.loss(zero, fold_of == fold)[0] for fold in folds)
            out_of_fold = sum(pools.loss(self.fold_thetas_[fold], fold_of == fold)[0] for fold in folds)
            n = max(1, len(rows))
            self.losses_ = {"loss without weights": unweighted / n, "loss out of fold": out_of_fold / n}

    def _sampled(self, training: Training) -> Ints:
        """Return the rows of the judged queries to learn from, ascending; sampled up to ``_MAX_TRAINING_WORDS``."""
        rows = np.flatnonzero(list(map(bool, training.relevant)))
        order = np.random.default_rng(self.random_state).permutation(len(rows))
        texts = training.batch.texts
        n_words = np.array([texts[row].count(" ") + 1 for row in rows[order].tolist()], dtype=np.int64)
        return np.sort(rows[order[np.cumsum(n_words) - n_words < _MAX_TRAINING_WORDS]])

    def _pools(self, batch: QueryBatch, relevant: Sequence[Sequence[str]], terms: QueryTerms) -> TermPools:
        """Return the first candidates of BM25 for each query and its relevant documents."""
        index, collection = self._index(batch.engine), batch.engine.collection
        counts = index.factors(terms.counts)
        weighted = index.weighted(terms.terms, _by_query(counts, terms))
        hits = index.search(weighted, min(self.n_candidates, len(index)), exclude=batch.exclude)
        tables: list[Floats] = []
        columns: list[Ints] = []
        documents: list[Ints] = []
        for row in track(range(len(batch)), "reading candidates"):
            numbers = np.unique(collection.document_numbers(list(relevant[row])))
            starts, ends = index.doc_offsets[numbers], index.doc_offsets[numbers + 1]
            has_text = (starts < ends) & ~batch.exclude.hides(np.full(len(numbers), row), numbers)
            candidates = np.union1d(hits.passages[row][hits.passages[row] != NO_PASSAGE], starts[has_text])
            tables.append(index.share_table(terms.terms[row], candidates))
            columns.append(np.searchsorted(candidates, starts[has_text]))
            documents.append(numbers[has_text])
        return TermPools.of(terms.features, counts, terms.offsets, tables, columns, documents)

    def _index(self, engine: Engine) -> AnyBM25:
        return engine.bm25("document", self.k1, self.b, self.k3)

    def _weighted(self, batch: QueryBatch, folds: Ints) -> tuple[list[list[str]], list[Floats]]:
        """Return the terms of each query with their weights; ``folds`` (m,) are those left out, -1 for none."""
        index = self._index(batch.engine)
        tokens = [index.analyzer.tokens(text) for text in batch.texts]
        terms = self.features_.of(tokens, index.analyzer, index.text_frequencies)
        counts, fold = index.factors(terms.counts), np.repeat(folds, np.diff(terms.offsets))
        weights = np.empty(len(counts), dtype=np.float32)
        for number in np.unique(fold).tolist():
            rows, theta = fold == number, self.theta_ if number < 0 else self.fold_thetas_[number]
            weights[rows] = term_weights(terms.features[rows], counts[rows], theta)
        return terms.terms, _by_query(weights, terms)

    def _ranked(self, batch: QueryBatch, depth: int, folds: Ints) -> Run:
        index = self._index(batch.engine)
        with batch.timed(f"search {self.name}"):
            weighted = index.weighted(*self._weighted(batch, folds))
            rows, documents, scores = index.documents(weighted, depth, exclude=batch.exclude)
            return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, np.full(len(batch), -1))

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank training queries with weights of the other folds, and other queries with weights of all queries."""
        return self._ranked(batch, depth, self.folds_of(batch.ids))

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        index = self._index(batch.engine)

        def weighted() -> dict[str, np.float32]:
            (terms,), (weights,) = self._weighted(batch, np.array([-1]))
            occurs = index.text_frequencies(terms) > 0
            return {term: weight for term, weight, is_used in zip(terms, weights, occurs, strict=True) if is_used}

        weights = batch.once(("weighted terms", self._cache_key()), weighted)
        term_shares = index.shares_of_terms(list(weights.items()), int(index.doc_offsets[document])).items()
        shares = [Share(f"term {term} (weight {weights[term]:.2f})", share, term=term) for term, share in term_shares]
        return replace(base, shares=by_size(shares), matcher=index.analyzer)

    @property
    def feature_weights_(self) -> pd.DataFrame:
        """The weight θ of each feature, the largest first: columns ``kind``, ``word``, ``value`` and ``weight``."""
        import pandas as pd

        columns = {"kind": self._kinds(), "word": self.features_.words, "value": self.features_.values}
        table = pd.DataFrame(columns | {"weight": self.theta_[1:]})
        return table.sort_values("weight", ascending=False, kind="stable", ignore_index=True)

    def _kinds(self) -> list[str]:
        return [KINDS[kind] for kind in self.features_.kinds.tolist()]

    @property
    def fit_report_(self) -> dict[str, Any]:
        counts = {"training queries": len(self.query_ids_), "features": len(self.features_)}
        return counts | self.losses_ | self.twins_.report

    def save_state(self, folder: Path) -> dict[str, Any]:
        """Write the features, their weights, and the folds of the training queries."""
        self.write_folds(folder)
        columns = self._kinds(), self.features_.words, self.features_.values
        write_table(folder / _FEATURES_FILE, pa.table(list(columns), schema=_SCHEMA))
        write_tensors(folder / _WEIGHTS_FILE, {"theta": self.theta_, "folds": self.fold_thetas_})
        return {"n_texts": self.features_.n_texts, "losses": self.losses_}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        table, tensors = read_table(folder / _FEATURES_FILE, _SCHEMA), read_tensors(folder / _WEIGHTS_FILE)
        kinds, words, values = (table.column(name).to_pylist() for name in _SCHEMA.names)
        self.theta_, self.fold_thetas_ = tensors["theta"], tensors["folds"]
        if not set(kinds) <= set(KINDS) or len(self.theta_) != 1 + len(kinds):
            message = f"expected the features of {len(self.theta_) - 1} weights, found others; fit the ranker again"
            raise FileFormatError(folder / _FEATURES_FILE, None, message)
        numbers = np.array([KINDS.index(kind) for kind in kinds], dtype=np.int64)
        self.features_ = TermFeatures(numbers, words, np.array(values, dtype=np.int64), int(state["n_texts"]))
        self.losses_ = dict(state["losses"])


def _by_query(values: Floats, terms: QueryTerms) -> list[Floats]:
    """Return the values of the terms of each query."""
    return np.split(values, terms.offsets[1:-1])[: len(terms.terms)]
