"""BM25 over passages by compiled loops; documents rank by their best passage or as wholes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numba import njit

from haybale.analysis import Analyzer, Terms, Tokenize, as_analyzer, guess_language
from haybale.collections import Collection
from haybale.collections.collection import Strings, strings_of
from haybale.embeddings.counting import TermCounts, Vocabulary
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
from haybale.parameters import BM25_RANGES, COUNT, TEXT_OR_NONE, check_parameters, one_of
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.inverted import NewScorer, Scorer, Values, frozen, top_documents, top_passages
from haybale.retrieval.passages import Columns, Exclude, Ids, PassageTable
from haybale.retrieval.postings import Postings
from haybale.vectors import Floats

T = TypeVar("T", int, str)

_HEAD = {"format": "haybale BM25 index", "version": 1}
_TENSORS = "tensors.safetensors"
_NAMES = ("texts", "counts", "offsets", "lengths", "frequencies", "doc_offsets")  # of the tensors
_TABLES = {"term": "vocabulary.parquet", "passage_id": "passages.parquet", "doc_id": "documents.parquet"}
_SCHEMAS = {name: pa.schema([(name, pa.large_string())]) for name in _TABLES}
_RANGES = BM25_RANGES | {"language": TEXT_OR_NONE, "unit": one_of(["passage", "document"])}


class BM25Index(PassageTable):
    """Lucene's BM25 (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020) over passages of documents.

    The score of a passage is a sum over the terms of the query::

        score = Σ_t times(t) · idf(t) · tf / (tf + k1 · (1 - b + b · length / mean length))
        idf(t) = ln(1 + (n_texts - df + 0.5) / (df + 0.5))

    where times(t) is how often the query has t, or (k3 + 1) · n / (k3 + n) of that number n. Scores equal those of
    bm25s to the bit: float32 weights of each term in each passage, added in the order of the query's terms.

    Parameters
    ----------
    texts : (n,) sequence of str, or TermCounts
        The passages, or their term counts. A passage may be empty, but not all of them.
    doc_offsets : (n_documents + 1,) array of int, optional
        Where the passages of each document begin. By default, every passage is a document.
    passage_ids, doc_ids : (n,) and (n_documents,) str, optional
        The defaults are the numbers as strings.
    k1 : float, default 1.2
        Controls term-frequency saturation; at least 0.
    b : float, default 0.75
        Controls length normalisation, from 0 (none) to 1.
    k3 : float, optional
        Controls term-frequency saturation in the query (Robertson et al., "Okapi at TREC-3", 1994). With 0, a repeated
        term counts once; by default, it counts as often as it occurs.
    language : str, optional
        One of :data:`haybale.analysis.LANGUAGES`, for stop words and stemmer. By default, it is guessed from the texts.
    analyzer : Analyzer or callable, optional
        Replaces ``language``: an :class:`~haybale.analysis.Analyzer`, or a function from a text to its terms. An index
        with a function cannot be saved. Term counts bring their own analyzer.

    Attributes
    ----------
    analyzer : Analyzer
    k1, b, k3 : float
        ``k3`` may be None.
    vocabulary : dict
        Term -> number, in the order of first occurrence.

    Raises
    ------
    InputError
        For texts without any term, parameters out of range, and offsets or ids that do not fit the texts.

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
        super().__init__(len(texts), doc_offsets, passage_ids, doc_ids)
        if isinstance(texts, TermCounts):
            counts = texts
        else:
            if analyzer is None:
                analyzer = Analyzer(language or guess_language(texts[:: max(1, len(texts) // 1000)]))
            elif language is not None:
                raise InputError("give a language or an analyzer, not both")
            counts = TermCounts.of(texts, as_analyzer(analyzer))
        if not counts.matrix.nnz:
            raise InputError("no text holds a word that is not a stop word")
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
        """Set everything an index consists of, unchecked; ``weights`` if they are known."""
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
    ) -> Self:
        """Index a collection's passages or documents; the texts are decoded in batches.

        Parameters
        ----------
        collection : Collection
        unit : {"passage", "document"}, default "passage"
            Whether the passages of the index are the collection's passages or its whole documents.
        k1, b, k3 : float, default 1.2, 0.75, None
        language : str, optional
            The default is the language of the collection, else it is guessed.
        """
        check_parameters("BM25Index", locals(), _RANGES)
        passages, documents = collection.passages, collection.doc_ids
        some = passages.texts.take(np.arange(0, len(passages), max(1, len(passages) // 1000)))
        language = language or collection.language or guess_language(some.to_pylist())
        counts = TermCounts.of(passages.texts, Analyzer(language))
        how: dict[str, Any] = {"doc_ids": documents, "k1": k1, "b": b, "k3": k3}
        if unit == "document":
            return cls(counts.merged(passages.doc_offsets), passage_ids=documents, **how)
        return cls(counts, passages.doc_offsets, passage_ids=passages.ids, **how)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open an index that :meth:`save` wrote; its counts are memory-mapped, its weights are computed."""
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
                raise InputError(f"{n_texts} texts of {n_terms} terms are less than there are")
            parameters = manifest["k1"], manifest["b"], manifest.get("k3")  # the first files have no k3
            check_parameters("BM25Index", dict(zip(("k1", "b", "k3"), parameters, strict=True)), _RANGES)
            analyzer = Analyzer.from_dict(manifest.get("analyzer"))
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"not of a BM25 index: {error!r}") from None
        columns = Columns(doc_offsets, *ids)
        vocabulary = {term: number for number, term in enumerate(terms.to_pylist())}
        return cls.__new__(cls)._set(columns, postings, vocabulary, analyzer, parameters)

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, all of it or nothing; equal indexes give equal bytes.

        manifest.json          format, version, k1, b, k3, analyzer, numbers of texts and terms, SHA-256 of each file
        tensors.safetensors    the term counts, see :class:`Postings`; where documents begin
        vocabulary.parquet     column ``term``
        passages.parquet       column ``passage_id``
        documents.parquet      column ``doc_id``

        A folder that is not empty raises, and so does an analyzer that is a function.
        """
        postings, analyzer = self._postings, self.analyzer.to_dict()
        tables = {"term": strings_of(self.vocabulary), "passage_id": self.passage_ids, "doc_id": self.doc_ids}
        with whole_folder(Path(folder)) as aside:
            tensors = {name: getattr(self if name == "doc_offsets" else postings, name) for name in _NAMES}
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
        """Return an index of the same texts with other parameters.

        Only the weights are computed, and not even these if ``k1`` and ``b`` stay.

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

    def take(self, documents: Ints) -> Self:
        """Return the index of some documents, scored as here: idf and mean length stay those of all texts.

        Parameters
        ----------
        documents : (n,) int
            Rising document numbers. They become 0..n-1, and at least one must have a passage.
        """
        passages, columns = self.columns.take(documents)
        postings, chosen = self._postings.take(passages)
        how = self.vocabulary, self.analyzer, (self.k1, self.b, self.k3)
        return type(self).__new__(type(self))._set(columns, postings, *how, self._weights[chosen])

    def extended(self, texts: Sequence[str], doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids) -> Self:
        """Return an index with more documents after the present ones, equal to one built from all texts.

        Only the new texts are analysed.

        Parameters
        ----------
        texts, doc_offsets, passage_ids, doc_ids
            As for a new index; ``doc_offsets`` begin at 0.

        Examples
        --------
        >>> index, ids = BM25Index(["a dog"], language="english"), ["b", "c"]
        >>> index.extended(["two dogs", "a cat"], None, passage_ids=ids, doc_ids=ids).search(["dog"], k=3).passages
        array([[ 0,  1, -1]])
        """
        vocabulary = dict(self.vocabulary)
        counts = TermCounts.of(texts, self.analyzer, vocabulary)
        columns = self.columns.joined(Columns.checked(len(counts), doc_offsets, passage_ids, doc_ids))
        postings, parameters = self._postings.extended(Postings.of(counts)), (self.k1, self.b, self.k3)
        return type(self).__new__(type(self))._set(columns, postings, vocabulary, self.analyzer, parameters)

    def analysed(self, queries: Sequence[str]) -> Terms:
        """Return the terms of queries, to search with many times; terms that no text has are left out."""
        for i, query in enumerate(queries):
            if not query.strip():
                raise InputError(f"query {i} of {len(queries)} is empty")
        return self.analyzer(queries, self.vocabulary)

    def search(self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None) -> Hits:
        """Return the k best passages of each query; a passage without a term of the query is no hit.

        Parameters
        ----------
        queries : (m,) sequence of str, or Terms
            Texts, none of them empty, or the result of :meth:`analysed`.
        k : int
            From 1 to the number of passages.
        exclude : (m,) sequence, optional
            The document to leave out of each row: its id (None for none) or its number (-1 for none).

        Returns
        -------
        Hits
            (m, k), higher scores first, among equal scores the lower number.
        """
        self.check_k(k)
        scorer, excluded = self._scorer(queries, exclude)
        passages, values = top_passages(len(excluded), k, scorer, self.doc_offsets, excluded)
        return Hits(passages, np.where(passages == NO_PASSAGE, np.float32(-np.inf), values.view(np.float32)))

    def documents(
        self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Rank documents by their best passage (MaxP), over the whole collection.

        Parameters
        ----------
        queries, exclude
            As in :meth:`search`.
        k : int
            At least 1.

        Returns
        -------
        (query row, document, score), each (n_found,)
            Every document that scores at least as high as the ``k``-th best, so a :class:`Run` can break ties by id.
            Rows rise, and documents rise within a row.
        """
        check_parameters("documents", {"k": k}, {"k": COUNT})
        scorer, excluded = self._scorer(queries, exclude)
        found = top_documents(len(excluded), k, scorer, self.doc_offsets, excluded, self.doc_of)
        return found[0], found[1], found[2].view(np.float32)

    def _scorer(self, queries: Sequence[str] | Terms, exclude: Exclude | None) -> tuple[NewScorer, Ints]:
        """Return what scores all passages for a query row, and (m,) the document that each row leaves out."""
        ids = self._term_numbers(queries)
        index = frozen(self._postings.offsets), frozen(self._postings.texts.view(np.uint32)), frozen(self._weights)
        counted = [(np.array(terms, dtype=np.int64), times) for terms, times in map(self._counted, ids)]

        def new_scorer() -> Scorer:
            sums = np.empty(len(self), dtype=np.float32)

            def score(row: int) -> Values:
                _add(*index, *counted[row], sums)
                return sums.view(np.uint32)  # the bits of floats that are not negative rise with them

            return score

        return new_scorer, self.excluded(exclude, len(ids))

    def _term_numbers(self, queries: Sequence[str] | Terms) -> list[list[int]]:
        ids = (queries if isinstance(queries, Terms) else self.analysed(queries)).ids
        if max((max(each, default=0) for each in ids), default=0) >= len(self.vocabulary):
            raise InputError("the queries' terms are numbered by another index: analyse them with this one")
        return ids

    def _counted(self, terms: Sequence[T]) -> tuple[Sequence[T], Floats]:
        """Return a query's terms in the order in which weights are added, and the factor of each."""
        if self.k3 is None:
            return terms, np.ones(len(terms), dtype=np.float32)
        counts = Counter(terms)
        times = np.array(list(counts.values()), dtype=np.float64)
        return list(counts), ((self.k3 + 1) * times / (self.k3 + times)).astype(np.float32)

    def similarities(self, queries: Sequence[str] | Terms, document: int) -> Floats:
        """Return (m, passages of the document) the scores of a document's passages; 0 without a common term."""
        start, end = (int(edge) for edge in self.doc_offsets[document : document + 2])
        ids = self._term_numbers(queries)
        out = np.zeros((len(ids), end - start), dtype=np.float32)
        for row, terms in enumerate(ids):
            for term, times in zip(*self._counted(terms), strict=True):
                pairs = self._postings.pairs(term, start, end)
                out[row, self._postings.texts[pairs] - start] += times * self._weights[pairs]
        return out

    def term_shares(self, query: str, passage: int) -> dict[str, float]:
        """Return what each term of a query adds to the score of a passage; the sum rounds to the score.

        Terms that the passage does not have are left out.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
        >>> {term: round(share, 3) for term, share in index.term_shares("dog taxes and leads", 2).items()}
        {'dog': 0.214, 'tax': 0.214}
        """
        if not 0 <= passage < len(self):
            raise InputError(f"passage must be a number below {len(self)}, found {passage}")
        terms = self.analyzer([query])
        shares: dict[str, float] = {}
        names, score = list(terms.vocabulary), np.float32(0)
        known = [names[term] for term in terms.ids[0] if names[term] in self.vocabulary]
        for name, times in zip(*self._counted(known), strict=True):
            for weight in times * self._weights[self._postings.pairs(self.vocabulary[name], passage, passage + 1)]:
                shares[name] = shares.get(name, 0.0) + (float(score + weight) - float(score))
                score += weight
        return shares


@njit(nogil=True, cache=True)
def _add(
    offsets: Any, passages: Any, weights: Any, terms: Any, times: Any, sums: Any
) -> None:  # pragma: no cover - compiled
    """Compute the scores of all passages; the weights of each term are multiplied by its factor in ``times``."""
    sums[:] = 0
    for place in range(len(terms)):
        term, factor = terms[place], times[place]
        of_term, term_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for i in range(len(of_term)):
            sums[of_term[i]] += factor * term_weights[i]
