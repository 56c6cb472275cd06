"""BM25 by compiled loops, over passages (a document scores by its best passage) or over whole documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from haybale.analysis import Analyzer, Terms, Tokenize, as_analyzer, guess_language, refuse_single_text
from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import Strings, indptr_from_counts, strings_of
from haybale.embeddings.counting import TermCounts, Vocabulary, strings
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.manifest import (
    MANIFEST,
    check_files,
    mapped_tensors,
    read_manifest,
    read_table,
    write_manifest,
    write_table,
    write_tensors,
)
from haybale.parameters import BM25_RANGES, BOOLEAN, COUNT, TEXT_OR_NONE, check_parameters, one_of
from haybale.retrieval.exclusion import Exclusion
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.inverted import Query, TermLists, top_documents, top_passages
from haybale.retrieval.passages import Columns, Exclude, Ids, PassageTable
from haybale.retrieval.postings import Postings
from haybale.retrieval.score_values import ZERO
from haybale.vectors import Floats

T = TypeVar("T", int, str)  # a term, by number or by name

_LOWEST_HIT_VALUE = np.uint32(ZERO + 1)  # the value (see ``range_search``) of the lowest score above 0
_WEIGHTS_PER_STEP = 2**22  # weights that :meth:`BM25Index.similarities` adds at once for one query
_HEAD = {"format": "haybale BM25 index", "version": 1}
_TENSORS = "tensors.safetensors"
_TENSOR_NAMES = ("texts", "counts", "offsets", "lengths", "frequencies", "doc_offsets")
_TABLES = {"term": "vocabulary.parquet", "passage_id": "passages.parquet", "doc_id": "documents.parquet"}
_SCHEMAS = {name: pa.schema([(name, pa.large_string())]) for name in _TABLES}
_RANGES = BM25_RANGES | {
    "language": TEXT_OR_NONE,
    "unit": one_of(["passage", "document"]),
    "compounds": [*BOOLEAN, None],
}


class BM25Index(PassageTable):
    """Lucene's BM25 (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020) over passages of documents.

    The score of a passage is a sum over the terms of the query::

        score = Σ_t times(t) · idf(t) · tf / (tf + k1 · (1 - b + b · length / mean length))
        idf(t) = ln(1 + (n_texts - df + 0.5) / (df + 0.5))

    where tf and length are of the passage, and df is the number of passages with the term. times(t) is the number n of
    occurrences of t in the query or, with k3, (k3 + 1) · n / (k3 + n). The float32 scores are bit-identical to those of
    bm25s.

    Parameters
    ----------
    texts : (n,) sequence of str, or TermCounts
        The passages, or their term counts. Passages may be empty, but not all of them.
    doc_offsets : (n_documents + 1,) array of int, optional
        Passages ``doc_offsets[i]:doc_offsets[i + 1]`` belong to document i. By default, every passage is a document.
    passage_ids, doc_ids : (n,) and (n_documents,) str, optional
        Distinct ids. The defaults are the numbers as strings.
    k1 : float, default 1.2
        Controls term-frequency saturation; at least 0. With 0, only the presence of a term counts.
    b : float, default 0.75
        Controls length normalisation, from 0 (none) to 1.
    k3 : float, optional
        Controls term-frequency saturation in the query (Robertson et al., "Okapi at TREC-3", 1994); at least 0. With 0,
        a repeated term counts once. By default, it counts as often as it occurs.
    language : str, optional
        Selects stop words and stemmer: one of :data:`haybale.analysis.LANGUAGES`. By default, the language is guessed
        from the texts.
    analyzer : Analyzer or callable, optional
        Splits texts into terms, in place of ``language``: an :class:`~haybale.analysis.Analyzer`, or a function from a
        text to its terms. An index with a function cannot be saved. Term counts have an analyzer of their own.

    Attributes
    ----------
    vocabulary : dict
        The number of each term, in the order of first occurrence.

    Raises
    ------
    InputError
        If no text has a term, a parameter is out of range, or offsets or ids do not fit the texts.

    Examples
    --------
    >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
    >>> index
    BM25Index: 3 passages, 3 documents, 4 terms (english), k1 1.2, b 0.75
    >>> index.search(["dog taxes"], k=3).passages
    array([[2, 0, 1]])
    """

    def __init__(
        self,
        texts: Sequence[str] | Strings | TermCounts,
        doc_offsets: Ints | None = None,
        *,
        passage_ids: Ids | None = None,
        doc_ids: Ids | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        k3: float | None = None,
        language: str | None = None,
        analyzer: Analyzer | Tokenize | None = None,
    ) -> None:
        check_parameters("BM25Index", locals(), _RANGES)
        refuse_single_text(texts)
        super().__init__(len(texts), doc_offsets, passage_ids, doc_ids)
        if isinstance(texts, TermCounts):
            counts = texts
        else:
            if analyzer is None:
                analyzer = Analyzer(language or language_of_sample(texts))
            elif language is not None:
                raise InputError("give 'language' or 'analyzer', not both")
            counts = TermCounts.of(texts, as_analyzer(analyzer))
        if not counts.matrix.nnz:
            language = counts.analyzer.language
            raise InputError(f"the texts hold no term besides stop words (language {language!r}); change the language")
        self._set(self.columns, Postings.of(counts), counts.vocabulary, counts.analyzer, (k1, b, k3))

    def _set(
        self,
        columns: Columns,
        postings: Postings,
        vocabulary: Vocabulary,
        analyzer: Analyzer,
        parameters: tuple[float, float, float | None],
        weights: Floats | None = None,
    ) -> Self:
        """Set all attributes, without checks; compute the weights unless they are given."""
        k1, b, k3 = parameters
        self.columns, self._postings, self.vocabulary, self.analyzer = columns, postings, vocabulary, analyzer
        self.k1, self.b, self.k3 = float(k1), float(b), None if k3 is None else float(k3)
        self._weights = postings.weights(self.k1, self.b) if weights is None else weights
        return self

    @classmethod
    def from_collection(
        cls,
        collection: Collection,
        unit: str = "passage",
        *,
        k1: float = 1.2,
        b: float = 0.75,
        k3: float | None = None,
        language: str | None = None,
        compounds: bool | None = None,
    ) -> Self:
        """Index the passages or the whole documents of a collection.

        Parameters
        ----------
        collection : Collection
        unit : {"passage", "document"}, default "passage"
            What is indexed and scored: each passage, or each document as one text.
        k1, b, k3, language
            As in the class; the default language is that of the collection, if it has one.
        compounds : bool, optional
            Whether the parts of compounds are terms, too, as in :class:`~haybale.Engine`. By default, in German.
        """
        check_parameters("BM25Index", locals(), _RANGES)
        passages, documents = collection.passages, collection.doc_ids
        language = language or collection.language or language_of_sample(passages.texts)
        analyzer = Analyzer.learned(language, strings(passages.texts), compounds)
        counts = TermCounts.of(passages.texts, analyzer)
        how: dict[str, Any] = {"doc_ids": documents, "k1": k1, "b": b, "k3": k3}
        if unit == "document":
            return cls(counts.merged(passages.doc_offsets), passage_ids=documents, **how)
        return cls(counts, passages.doc_offsets, passage_ids=passages.ids, **how)

    @classmethod
    def of_postings(cls, columns: Columns, postings: Postings, vocabulary: Vocabulary, analyzer: Analyzer) -> Self:
        """Make an index of postings, whose statistics may be those of more texts, with the default parameters."""
        return cls.__new__(cls)._set(columns, postings, vocabulary, analyzer, (1.2, 0.75, None))

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a saved index: memory-map its term counts, and compute its weights.

        Raises :class:`FileFormatError` if the folder is no BM25 index, or if a file is missing or damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "BM25 index", _HEAD)
        check_files(folder, manifest, (_TENSORS, *_TABLES.values()))
        tensors = mapped_tensors(folder / _TENSORS)
        terms, *ids = (read_table(folder / _TABLES[name], _SCHEMAS[name]).column(name) for name in _TABLES)
        doc_offsets = tensors.pop("doc_offsets")
        try:
            n_texts, n_terms = int(manifest["n_texts"]), int(manifest["n_terms"])
            postings = Postings(**tensors, n_texts=n_texts, n_terms=n_terms)
            if n_texts < len(postings.lengths) or n_terms < postings.lengths.sum():
                raise InputError(f"expected larger n_texts and n_terms, found {n_texts} and {n_terms}")
            parameters = manifest["k1"], manifest["b"], manifest.get("k3")  # the first indexes have no k3
            check_parameters("BM25Index", dict(zip(("k1", "b", "k3"), parameters, strict=True)), _RANGES)
            analyzer = Analyzer.from_dict(manifest.get("analyzer"))
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"not a BM25 index ({error!r}); build it again") from None
        columns = Columns(doc_offsets, *ids)
        vocabulary = {term: number for number, term in enumerate(terms.to_pylist())}
        return cls.__new__(cls)._set(columns, postings, vocabulary, analyzer, parameters)

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, atomically. Equal indexes give equal bytes.

        manifest.json          format, version, k1, b, k3, analyzer, numbers of texts and terms, SHA-256 of each file
        tensors.safetensors    the term counts (:class:`Postings`) and the document offsets
        vocabulary.parquet     column ``term``
        passages.parquet       column ``passage_id``
        documents.parquet      column ``doc_id``

        Raises :class:`OutputExistsError` if the folder is not empty, and :class:`InputError` if the analyzer is a
        function.
        """
        postings, analyzer = self._postings, self.analyzer.to_dict()
        tables = {"term": strings_of(self.vocabulary), "passage_id": self.passage_ids, "doc_id": self.doc_ids}
        with whole_folder(Path(folder)) as aside:
            tensors = {name: getattr(self if name == "doc_offsets" else postings, name) for name in _TENSOR_NAMES}
            write_tensors(aside / _TENSORS, tensors)
            for name, column in tables.items():
                write_table(aside / _TABLES[name], pa.table([column], schema=_SCHEMAS[name]))
            about = {"k1": self.k1, "b": self.b, "k3": self.k3, "analyzer": analyzer}
            counts = {"n_texts": postings.n_texts, "n_terms": postings.n_terms}
            write_manifest(aside, _HEAD | about | counts)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {len(self):,} passages, {len(self.doc_ids):,} documents, "
            f"{len(self.vocabulary):,} terms ({self.analyzer.language}), k1 {self.k1:g}, b {self.b:g}"
            + ("" if self.k3 is None else f", k3 {self.k3:g}")
        )

    def with_parameters(self, k1: float, b: float, k3: float | None = None) -> Self:
        """Return an index of the same texts with other parameters, which shares the term counts.

        The weights are computed again only if ``k1`` or ``b`` differs.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "a dog, a dog tax"], language="english")
        >>> index.with_parameters(1.2, 0.75, k3=0).search(["dog lead dog"], k=2).scores.round(2)
        array([[0.43, 0.11]], dtype=float32)
        >>> index.search(["dog lead dog"], k=2).scores.round(2)
        array([[0.52, 0.22]], dtype=float32)
        """
        check_parameters("BM25Index", {"k1": k1, "b": b, "k3": k3}, _RANGES)
        weights = self._weights if (k1, b) == (self.k1, self.b) else None
        same = self.columns, self._postings, self.vocabulary, self.analyzer
        return type(self).__new__(type(self))._set(*same, (k1, b, k3), weights)

    def with_later(self, frequencies: Mapping[str, int], n_texts: int, n_terms: int) -> Self:
        """Return an index of the same texts whose statistics are also those of later texts.

        ``frequencies`` has the number of later texts with each term; ``n_texts`` is the number of later texts, and
        ``n_terms`` that of their terms.
        """
        frequencies_of_all = self._postings.frequencies.copy()
        for term, n in frequencies.items():
            if term in self.vocabulary:
                frequencies_of_all[self.vocabulary[term]] += n
        n_texts, n_terms = self._postings.n_texts + n_texts, self._postings.n_terms + n_terms
        postings = replace(self._postings, frequencies=frequencies_of_all, n_texts=n_texts, n_terms=n_terms)
        parameters = self.k1, self.b, self.k3
        return type(self).__new__(type(self))._set(self.columns, postings, self.vocabulary, self.analyzer, parameters)

    @property
    def nbytes(self) -> int:
        """The bytes of term counts and weights."""
        return int(
            self._weights.nbytes + sum(part.nbytes for part in vars(self._postings).values() if hasattr(part, "nbytes"))
        )

    def take(self, documents: Ints) -> Self:
        """Return the index of some documents, with unchanged scores: idf and mean length stay those of all texts.

        Parameters
        ----------
        documents : (n,) int
            Rising document numbers; at least one of the documents must have a passage. They become 0..n-1.
        """
        passages, columns = self.columns.take(documents)
        postings, chosen = self._postings.take(passages)
        how = self.vocabulary, self.analyzer, (self.k1, self.b, self.k3)
        return type(self).__new__(type(self))._set(columns, postings, *how, self._weights[chosen])

    def extended(
        self, texts: Sequence[str], doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids, distinct: bool = True
    ) -> Self:
        """Return an index with more documents, equal to one built from all texts; only the new ones are analysed.

        Parameters
        ----------
        texts, doc_offsets, passage_ids, doc_ids
            The new documents, as in the class; ``doc_offsets`` begin at 0. InputError is raised for an existing id.
        distinct : bool, default True
            With False, existing ids are accepted: :meth:`take` one document with each id before looking ids up.

        Examples
        --------
        >>> index, ids = BM25Index(["a dog"], language="english"), ["b", "c"]
        >>> index.extended(["two dogs", "a cat"], None, passage_ids=ids, doc_ids=ids).search(["dog"], k=3).passages
        array([[ 0,  1, -1]])
        """
        vocabulary = dict(self.vocabulary)
        counts = TermCounts.of(texts, self.analyzer, vocabulary)
        new = Columns.validated(len(counts), doc_offsets, passage_ids, doc_ids, distinct=distinct)
        columns = self.columns.joined(new, distinct=distinct)
        postings, parameters = self._postings.extended(Postings.of(counts)), (self.k1, self.b, self.k3)
        return type(self).__new__(type(self))._set(columns, postings, vocabulary, self.analyzer, parameters)

    def analysed(self, queries: Sequence[str]) -> Terms:
        """Return the terms of queries, for repeated searches; terms that no text has are dropped."""
        check_queries(queries)
        return self.analyzer(queries, self.vocabulary)

    def weighted(self, terms: Sequence[Sequence[str]], factors: Sequence[Floats]) -> Terms:
        """Return queries for searches in which each term counts as often as its factor says, in place of k3.

        Parameters
        ----------
        terms : (m,) sequence of sequences of str
            The distinct terms of each query; terms that no text has are dropped.
        factors : (m,) sequence of (n,) float32
            The factor of each term, above 0.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> index.search(index.weighted([["dog", "tax"]], [np.array([1, 3], dtype=np.float32)]), k=3).passages
        array([[2, 1, 0]])
        """
        return weighted_terms(self.vocabulary, terms, factors)

    def text_frequencies(self, terms: Sequence[str]) -> Ints:
        """Return the number of texts (n,) that have each term."""
        numbers = _numbers(self.vocabulary, terms)
        return np.where(numbers < 0, 0, self._postings.frequencies[numbers])

    def share_table(self, terms: Sequence[str], passages: Ints) -> Floats:
        """Return what each distinct term adds to the score of each passage at factor 1, (n_terms, n_passages) float32.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> index.share_table(["dog", "lead", "cat"], np.array([0, 2])).round(2)
        array([[0.21, 0.21],
               [0.45, 0.  ],
               [0.  , 0.  ]], dtype=float32)
        """
        return self._postings.values_at(_numbers(self.vocabulary, terms), passages, self._weights)

    def search(self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None) -> Hits:
        """Return the k best passages of each query; a passage must share a term with the query.

        Parameters
        ----------
        queries : (m,) sequence of str, or Terms
            Non-empty texts, or the result of :meth:`analysed` or :meth:`weighted`.
        k : int
            Number of passages for each query, from 1 to the number of passages of the index.
        exclude : (m,) sequence, optional
            The document that each query must not find: its id (None for none) or its number (-1 for none).

        Returns
        -------
        Hits
            (m, k), by falling score, then by document id, then by position in the document.
        """
        self.check_k(k)
        query_of, excluded = self._queries(queries, exclude)
        return Hits(*top_passages(self._lists, query_of, k, excluded, self.columns.order))

    def documents(
        self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None, top: int = 1
    ) -> tuple[Ints, Ints, Floats]:
        """Rank all documents by their best passage (MaxP), or by the sum of the best ones.

        Parameters
        ----------
        queries, exclude
            As in :meth:`search`.
        k : int
            Number of documents for each query, at least 1.
        top : int, default 1
            Number of passages whose scores are summed, the best ones of each document.

        Returns
        -------
        (query row, document, score), each (n_found,)
            All documents that score at least as high as the ``k``-th best, sorted by row, then by document.
        """
        check_parameters("documents", {"k": k, "top": top}, {"k": COUNT, "top": COUNT})
        query_of, excluded = self._queries(queries, exclude)
        return top_documents(self._lists, query_of, k, excluded, self.doc_of, top)

    @cached_property
    def _lists(self) -> TermLists:
        postings = self._postings.offsets, self._postings.texts, self._weights
        return TermLists(*postings, self.doc_offsets, np.float32, _LOWEST_HIT_VALUE)

    def _queries(
        self, queries: Sequence[str] | Terms, exclude: Exclude | None
    ) -> tuple[Callable[[int], Query], Exclusion]:
        """Return a function that returns the terms and factors of a query, and what queries exclude."""
        ids = self._term_numbers(queries)
        factors_of_queries = queries.factors if isinstance(queries, Terms) else None

        def query_of(row: int) -> Query:
            if factors_of_queries is None:
                terms, factors = counted_terms(ids[row], self.k3)
            else:
                terms, factors = ids[row], factors_of_queries[row]
            return np.array(terms, dtype=np.int64), factors

        return query_of, self.excluded(exclude, len(ids))

    def _term_numbers(self, queries: Sequence[str] | Terms) -> list[list[int]]:
        ids = (queries if isinstance(queries, Terms) else self.analysed(queries)).ids
        largest, n = max((max(numbers, default=-1) for numbers in ids), default=-1), len(self.vocabulary)
        if largest >= n:
            raise InputError(f"queries: expected terms below {n}, found {largest}; call analysed() of this index")
        return ids

    def factors(self, counts: Ints) -> Floats:
        """Return the factors (n,) float32 of terms that occur ``counts`` times in a query, (n,); see ``k3``."""
        return query_factors(counts, self.k3)

    def similarities(self, queries: Sequence[str] | Terms, document: int) -> Floats:
        """Return the scores of a document's passages, (m, n_passages); 0 without a common term."""
        start, end = (int(edge) for edge in self.doc_offsets[document : document + 2])
        query_of, excluded = self._queries(queries, None)
        out = np.zeros((len(excluded), end - start), dtype=np.float32)
        n_at_once = max(1, _WEIGHTS_PER_STEP // max(1, end - start))
        for row in range(len(out)):
            numbers, factors = query_of(row)
            distinct, term_rows = np.unique(numbers, return_inverse=True)  # a long query has its terms many times
            edges = np.array(self._postings.pairs(distinct, start, end), dtype=np.int64).reshape(-1, 2)
            for first in range(0, len(term_rows), n_at_once):
                begins, ends = edges[term_rows[first : first + n_at_once]].T
                offsets = indptr_from_counts(ends - begins)
                pairs = np.repeat(begins - offsets[:-1], ends - begins) + np.arange(offsets[-1])
                added = np.repeat(factors[first : first + n_at_once], ends - begins) * self._weights[pairs]
                np.add.at(out[row], self._postings.texts[pairs] - start, added)  # term by term, as a search adds them
        return out

    def passages_with_all(self, terms: Iterable[str]) -> Ints:
        """Return the rising numbers of the passages that have all of some terms, as :meth:`Analyzer.terms` gives them.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> index.passages_with_all(["dog", "tax"])
        array([2])
        """
        passages: Ints | None = None
        for term in set(terms):
            number = self.vocabulary.get(term)
            ((first, last),) = [(0, 0)] if number is None else self._postings.pairs([number], 0, len(self))
            has_term = self._postings.texts[first:last].astype(np.int64)
            passages = has_term if passages is None else np.intersect1d(passages, has_term, assume_unique=True)
        return np.arange(len(self)) if passages is None else passages

    def passages_with_any(self, terms: Iterable[str]) -> Ints:
        """Return the rising numbers of the passages that have at least one of some terms.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> index.passages_with_any(["dog", "lead", "cat"])
        array([0, 2])
        """
        indexed_terms = {self.vocabulary[term] for term in terms if term in self.vocabulary}
        has_term = np.zeros(len(self), dtype=bool)
        for first, last in self._postings.pairs(sorted(indexed_terms), 0, len(self)):
            has_term[self._postings.texts[first:last]] = True
        return np.flatnonzero(has_term)

    def term_counts(self, terms: Iterable[str], start: int, end: int) -> list[Counter[str]]:
        """Return how often each of the passages ``start`` to ``end`` − 1 has each of some terms.

        Terms are those of :meth:`Analyzer.terms`; a counter has only the terms that its passage has.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> index.term_counts(["dog", "tax"], 0, 2)
        [Counter({'dog': 1}), Counter({'tax': 1})]
        """
        counters: list[Counter[str]] = [Counter() for _ in range(start, end)]
        indexed_terms = list(set(terms) & self.vocabulary.keys())
        pair_ranges = self._postings.pairs([self.vocabulary[term] for term in indexed_terms], start, end)
        for term, (first, last) in zip(indexed_terms, pair_ranges, strict=True):
            if first < last:
                passages, counts = self._postings.texts[first:last].tolist(), self._postings.counts[first:last].tolist()
                for passage, count in zip(passages, counts, strict=True):
                    counters[passage - start][term] = count
        return counters

    def term_shares(self, query: str, passage: int) -> dict[str, float]:
        """Return the share of each query term in the score of a passage; their sum rounds to the score.

        Terms that the passage does not have are omitted.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> {term: round(share, 3) for term, share in index.term_shares("dog taxes and leads", 2).items()}
        {'dog': 0.214, 'tax': 0.214}
        """
        self.check_passage(passage)
        return self.shares_of_terms(self.counted_terms(query), passage)

    def counted_terms(self, query: str) -> list[tuple[str, np.float32]]:
        """Return the query terms that the index has, each with its factor, for :meth:`shares_of_terms`."""
        indexed_terms = [term for term in self.analyzer.terms(query) if term in self.vocabulary]
        return list(zip(*counted_terms(indexed_terms, self.k3), strict=True))

    def shares_of_terms(self, counted: Sequence[tuple[str, np.float32]], passage: int) -> dict[str, float]:
        """Return what :meth:`term_shares` does, for the terms of a query that several passages have in common."""
        shares: dict[str, float] = {}
        score = np.float32(0)
        pair_ranges = self._postings.pairs([self.vocabulary[name] for name, _ in counted], passage, passage + 1)
        for (name, times), (first, last) in zip(counted, pair_ranges, strict=True):
            if first < last:
                weight = times * self._weights[first]
                shares[name] = shares.get(name, 0.0) + (float(score + weight) - float(score))
                score += weight
        return shares


def weighted_terms(vocabulary: Vocabulary, terms: Sequence[Sequence[str]], factors: Sequence[Floats]) -> Terms:
    """Return what :meth:`BM25Index.weighted` does, with the term numbers of a vocabulary."""
    numbers = [_numbers(vocabulary, query_terms) for query_terms in terms]
    kept_factors = [
        np.asarray(query_factors, dtype=np.float32)[query_numbers >= 0]
        for query_factors, query_numbers in zip(factors, numbers, strict=True)
    ]
    return Terms([query_numbers[query_numbers >= 0].tolist() for query_numbers in numbers], vocabulary, kept_factors)


def counted_terms(terms: Sequence[T], k3: float | None) -> tuple[Sequence[T], Floats]:
    """Return the terms of a query in the order in which their weights are added, and the factor of each term."""
    if k3 is None:
        return terms, np.ones(len(terms), dtype=np.float32)
    counts = Counter(terms)
    return list(counts), query_factors(np.array(list(counts.values())), k3)


def query_factors(counts: Ints, k3: float | None) -> Floats:
    """Return the factors (n,) float32 of terms that occur ``counts`` times in a query, (n,)."""
    return (counts if k3 is None else (k3 + 1) * counts / (k3 + counts)).astype(np.float32)


def _numbers(vocabulary: Mapping[str, int], terms: Sequence[str]) -> Ints:
    """Return the number (n,) of each term, -1 for a term that is not in the vocabulary."""
    return np.array([vocabulary.get(term, -1) for term in terms], dtype=np.int64)


def check_queries(queries: Sequence[str]) -> None:
    """Raise :class:`InputError` for a single text, and for an empty query."""
    refuse_single_text(queries)
    for i, query in enumerate(queries):
        if not query.strip():
            raise InputError(f"query {i} of {len(queries)} is empty; give it at least one word")


def language_of_sample(texts: Sequence[str] | Strings) -> str:
    """Guess the language of texts from about 1,000 of them."""
    chosen = range(0, len(texts), max(1, len(texts) // 1000))
    if isinstance(texts, pa.ChunkedArray):
        return guess_language([texts[number].as_py() for number in chosen])  # a slice with a step would copy all texts
    return guess_language([texts[number] for number in chosen])
