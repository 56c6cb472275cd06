"""BM25 over passages, by compiled loops; documents rank by their best passage, or as wholes."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numba import njit

from haybale.analysis import Analyzer, Terms, Tokenize, as_analyzer, guess_language
from haybale.collections import Collection
from haybale.collections.collection import strings_of
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
from haybale.progress import track
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.inverted import Values, frozen, to_columns, to_hits, top_k
from haybale.retrieval.passages import Columns, Exclude, Ids, PassageTable
from haybale.retrieval.postings import Postings
from haybale.vectors import Floats

_BATCH = 1024  # queries between two steps of the progress bar
_FORMAT, _VERSION = "haybale BM25 index", 1
_TENSORS = "tensors.safetensors"
_COLUMNS = {"term": "vocabulary.parquet", "passage_id": "passages.parquet", "doc_id": "documents.parquet"}
_ARRAYS = {
    "texts": np.int32,
    "counts": np.int32,
    "offsets": np.int64,
    "lengths": np.int64,
    "frequencies": np.int64,
    "doc_offsets": np.int64,
}
T = TypeVar("T", int, str)
_RANGES = BM25_RANGES | {"language": TEXT_OR_NONE, "unit": one_of(["passage", "document"])}


class BM25Index(PassageTable):
    """Lucene's BM25 (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020) over passages of documents.

    Scores are those of bm25s bit for bit: float32 weights of each term in each passage, which are added in the order of
    the query's terms, repeated ones as often as they occur, unless ``k3`` says otherwise.

    Parameters
    ----------
    texts : (n,) sequence of str
        The passages; one may be empty, not all.
    doc_offsets : (n_documents + 1,) array of int, optional
        Where documents begin; default: every text its own document.
    passage_ids, doc_ids : (n,) and (n_documents,) str, optional
        Default: the numbers as strings.
    k1 : float, default 1.2
        How slowly repetitions of a term saturate, at least 0.
    b : float, default 0.75
        How much long passages lose, 0 to 1.
    k3 : float, optional
        A term that a query has t times counts (k3 + 1) · t / (k3 + t) times (Robertson et al., "Okapi at TREC-3",
        1994): once with 0, and nearly t times where k3 is large; default: t times.
    language : str, optional
        Of stop words and stemmer, one of :data:`haybale.analysis.LANGUAGES`; default: guessed from the texts.
    analyzer : Analyzer or callable, optional
        What makes terms of texts, in place of ``language``: an :class:`~haybale.analysis.Analyzer`, or a function from
        a text to its terms. An index with a function cannot be saved.

    Attributes
    ----------
    analyzer : Analyzer
    k1, b, k3 : float
        ``k3`` may be None.
    vocabulary : dict
        Term -> number, by first occurrence.

    Raises
    ------
    InputError
        For texts without a term, parameters out of range, offsets or ids that do not fit the texts.

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
        texts: Sequence[str],
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
        if analyzer is None:
            analyzer = Analyzer(language or guess_language(texts[:: max(1, len(texts) // 1000)]))
        elif language is not None:
            raise InputError("give a language or an analyzer, not both")
        self._weigh_counts(TermCounts.of(texts, as_analyzer(analyzer)), k1, b, k3)

    @classmethod
    def from_counts(
        cls,
        counts: TermCounts,
        doc_offsets: Ints | None = None,
        *,
        passage_ids: Ids | None = None,
        doc_ids: Ids | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        k3: float | None = None,
    ) -> Self:
        """The index of texts that were counted already; parameters as those of the class.

        Examples
        --------
        >>> counts = TermCounts.of(["a lead for dogs", "taxes are due", "the dog tax"], Analyzer("english"))
        >>> BM25Index.from_counts(counts.merged(np.array([0, 2, 3]))).search(["dog taxes"], k=2).passages
        array([[1, 0]])
        """
        check_parameters("BM25Index", {"k1": k1, "b": b, "k3": k3}, _RANGES)
        index = cls.__new__(cls)
        PassageTable.__init__(index, len(counts), doc_offsets, passage_ids, doc_ids)
        index._weigh_counts(counts, k1, b, k3)
        return index

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
        """Index a collection's passages or documents; texts become strings a batch at a time.

        Parameters
        ----------
        collection : Collection
        unit : {"passage", "document"}, default "passage"
            What is a passage of the index: the collection's, or its documents as wholes.
        k1, b, k3 : float, default 1.2, 0.75, None
        language : str, optional
            None: the collection's own, else guessed.
        """
        check_parameters("BM25Index", locals(), _RANGES)
        passages, documents = collection.passages, collection.doc_ids
        offsets = passages.doc_offsets
        some = passages.texts.take(np.arange(0, len(passages), max(1, len(passages) // 1000)))
        language = language or collection.language or guess_language(some.to_pylist())
        counts = TermCounts.of(passages.texts, Analyzer(language))
        how: dict[str, Any] = {"doc_ids": documents, "k1": k1, "b": b, "k3": k3}
        if unit == "document":
            return cls.from_counts(counts.merged(offsets), passage_ids=documents, **how)
        return cls.from_counts(counts, offsets, passage_ids=passages.ids, **how)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """An index that :meth:`save` wrote, its counts mapped into memory; only the weights are computed."""
        folder = Path(folder)
        manifest = read_manifest(folder, "BM25 index", {"format": _FORMAT, "version": _VERSION})
        check_files(folder, manifest, (_TENSORS, *_COLUMNS.values()))
        tensors = mapped_tensors(folder / _TENSORS)
        if {name: array.dtype for name, array in tensors.items()} != _ARRAYS:
            raise FileFormatError(folder / _TENSORS, None, f"expected the tensors {', '.join(_ARRAYS)}")
        tables = (read_table(folder / file, _schema(name)).column(name) for name, file in _COLUMNS.items())
        terms, passage_ids, doc_ids = tables
        doc_offsets = tensors.pop("doc_offsets")
        try:
            k1, b, n_texts, n_terms = (manifest[name] for name in ("k1", "b", "n_texts", "n_terms"))
            postings = Postings(**tensors, n_texts=int(n_texts), n_terms=int(n_terms))
            if postings.n_texts < len(postings.lengths) or postings.n_terms < postings.lengths.sum():
                raise InputError(f"{n_texts} texts of {n_terms} terms are less than there are")
            k3 = manifest.get("k3")  # which the first files do not have
            check_parameters("BM25Index", {"k1": k1, "b": b, "k3": k3}, _RANGES)
            analyzer = Analyzer.from_dict(manifest.get("analyzer"))
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"not of a BM25 index: {error!r}") from None
        index = cls.__new__(cls)
        PassageTable.__init__(index, len(postings.lengths), doc_offsets, passage_ids, doc_ids)
        index._set(postings, {term: number for number, term in enumerate(terms.to_pylist())}, analyzer, k1, b, k3)
        return index

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, whole or not; equal indexes are written as equal bytes.

        manifest.json          format, version, k1, b, k3, analyzer, how many texts and terms, SHA-256 of the others
        tensors.safetensors    the counts, term by term: see :class:`Postings`; and where documents begin
        vocabulary.parquet     column ``term``
        passages.parquet       column ``passage_id``
        documents.parquet      column ``doc_id``

        A folder that is not empty is refused, and so is an analyzer that is a function.
        """
        postings, analyzer = self._postings, self.analyzer.to_dict()
        head = {"format": _FORMAT, "version": _VERSION, "k1": self.k1, "b": self.b, "k3": self.k3, "analyzer": analyzer}
        columns = {"term": strings_of(self.vocabulary), "passage_id": self.passage_ids, "doc_id": self.doc_ids}
        with whole_folder(Path(folder)) as aside:
            arrays = {name: getattr(self if name == "doc_offsets" else postings, name) for name in _ARRAYS}
            write_tensors(aside / _TENSORS, arrays)
            for name, file in _COLUMNS.items():
                write_table(aside / file, pa.table([columns[name]], schema=_schema(name)))
            write_manifest(aside, head | {"n_texts": postings.n_texts, "n_terms": postings.n_terms})

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {len(self):,} passages, {len(self.doc_ids):,} documents, "
            f"{len(self.vocabulary):,} terms ({self.analyzer.language}), k1 {self.k1:g}, b {self.b:g}"
            + ("" if self.k3 is None else f", k3 {self.k3:g}")
        )

    def with_parameters(self, k1: float, b: float, k3: float | None = None) -> Self:
        """The same texts with other parameters; only the weights are new, all else is shared.

        With the ``k1`` and ``b`` that the index has, the weights are shared, too: another ``k3`` costs nothing.

        Examples
        --------
        >>> index = BM25Index(["a lead for dogs", "a dog, a dog tax"], language="english")
        >>> index.with_parameters(1.2, 0.75, k3=0).search(["dog lead dog"], k=2).scores.round(2)
        array([[0.43, 0.11]], dtype=float32)
        >>> index.search(["dog lead dog"], k=2).scores.round(2)
        array([[0.52, 0.22]], dtype=float32)
        """
        check_parameters("BM25Index", {"k1": k1, "b": b, "k3": k3}, _RANGES)
        other = copy.copy(self)
        weights = self._weights if (k1, b) == (self.k1, self.b) else None
        other._set(self._postings, self.vocabulary, self.analyzer, k1, b, k3, weights)
        return other

    def take(self, documents: Ints) -> Self:
        """Some documents alone, scored as they are here: idf and mean length stay those of the whole.

        Parameters
        ----------
        documents : (n,) int
            Rising document numbers, with a passage among them; they are 0..n-1 there.
        """
        passages, columns = self._columns.take(documents)
        other = type(self).__new__(type(self))
        other._adopt(columns)
        postings, chosen = self._postings.take(passages)
        other._set(postings, self.vocabulary, self.analyzer, self.k1, self.b, self.k3, self._weights[chosen])
        return other

    def extended(self, texts: Sequence[str], doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids) -> Self:
        """An index with these documents behind the present ones, as if made of all; only the new are analysed.

        Parameters
        ----------
        texts, doc_offsets, passage_ids, doc_ids
            As those of the class; ``doc_offsets`` from 0.

        Examples
        --------
        >>> index, ids = BM25Index(["a dog"], language="english"), ["b", "c"]
        >>> index.extended(["two dogs", "a cat"], None, passage_ids=ids, doc_ids=ids).search(["dog"], k=3).passages
        array([[ 0,  1, -1]])
        """
        vocabulary = dict(self.vocabulary)
        counts = TermCounts.of(texts, self.analyzer, vocabulary)
        other = type(self).__new__(type(self))
        other._adopt(self._columns.joined(Columns.checked(len(counts), doc_offsets, passage_ids, doc_ids)))
        postings = self._postings.extended(Postings.of(counts))
        other._set(postings, vocabulary, self.analyzer, self.k1, self.b, self.k3)
        return other

    def analysed(self, queries: Sequence[str]) -> Terms:
        """The terms of queries, to be given in their place many times; terms that no text has are left out."""
        for i, query in enumerate(queries):
            if not query.strip():
                raise InputError(f"query {i} of {len(queries)} is empty")
        return self.analyzer(queries, self.vocabulary)

    def search(self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None) -> Hits:
        """The k best passages of each query; those without a common term are no hits.

        Parameters
        ----------
        queries : (m,) sequence of str, or Terms
            Texts, or what :meth:`analysed` made of them; empty ones are refused.
        k : int
            1 to the number of passages.
        exclude : (m,) sequence, optional
            A document to leave out of each row: its id (None for none) or its number (-1).

        Returns
        -------
        Hits
            (m, k), higher scores first, among equal ones the lower number.
        """
        self._check_k(k)
        return Hits(*to_hits(self._best(queries, k, exclude), k, _floats))

    def documents(
        self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Documents by their best passage (MaxP over the whole collection, not over a cut-off list).

        Parameters
        ----------
        queries, exclude
            As in :meth:`search`.
        k : int
            At least 1.

        Returns
        -------
        (query row, document, score), flat, each (n_found,)
            Of each query, every document that scores at least as high as its ``k``-th best, so that ties at the end
            are for the :class:`Run` to break; documents rise within a row.
        """
        check_parameters("documents", {"k": k}, {"k": COUNT})
        return to_columns(self._best(queries, k, exclude, self.doc_of), _floats)

    def _best(
        self, queries: Sequence[str] | Terms, k: int, exclude: Exclude | None, doc_of: Ints | None = None
    ) -> list[tuple[Values, Values]]:
        """What :func:`~.inverted.best` finds, in batches."""
        ids = self._term_numbers(queries)
        excluded = self.excluded(exclude, len(ids))
        index = frozen(self._postings.offsets), frozen(self._postings.texts.view(np.uint32)), frozen(self._weights)
        found: list[tuple[Values, Values]] = []
        starts = range(0, len(ids), _BATCH)
        for start in track(starts, "BM25", len(starts)):
            counted = [self._counted(each) for each in ids[start : start + _BATCH]]
            terms = [(np.array(each, dtype=np.int64), times) for each, times in counted]

            def scorer(terms: list[tuple[Ints, Floats]] = terms) -> Callable[[int], Values]:
                sums = np.empty(len(self), dtype=np.float32)

                def values_of(row: int) -> Values:
                    _add(*index, *terms[row], sums)
                    return sums.view(np.uint32)  # numbers that are not negative rise as these do

                return values_of

            found += top_k(len(terms), k, self.doc_offsets, excluded[start:], scorer, doc_of)
        return found

    def _term_numbers(self, queries: Sequence[str] | Terms) -> list[list[int]]:
        ids = (queries if isinstance(queries, Terms) else self.analysed(queries)).ids
        if max((max(each, default=0) for each in ids), default=0) >= len(self.vocabulary):
            raise InputError("the queries' terms are numbered by another index: analyse them with this one")
        return ids

    def _counted(self, terms: Sequence[T]) -> tuple[Sequence[T], Floats]:
        """A query's terms in the order in which their weights are added, and how often each counts."""
        if self.k3 is None:
            return terms, np.ones(len(terms), dtype=np.float32)
        counts = Counter(terms)
        times = np.array(list(counts.values()), dtype=np.float64)
        return list(counts), ((self.k3 + 1) * times / (self.k3 + times)).astype(np.float32)

    def similarities(self, queries: Sequence[str] | Terms, document: int) -> Floats:
        """(m, passages of the document) scores of its passages for queries; 0 for no common term."""
        start, end = (int(edge) for edge in self.doc_offsets[document : document + 2])
        ids = self._term_numbers(queries)
        out = np.zeros((len(ids), end - start), dtype=np.float32)
        for row, terms in enumerate(ids):
            for term, times in zip(*self._counted(terms), strict=True):
                pairs = self._pairs(term, start, end)
                out[row, self._postings.texts[pairs] - start] += times * self._weights[pairs]
        return out

    def term_shares(self, query: str, passage: int) -> dict[str, float]:
        """What each term of a query that a passage has, by number, adds to its score; their sum rounds to it.

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
            for weight in times * self._weights[self._pairs(self.vocabulary[name], passage, passage + 1)]:
                shares[name] = shares.get(name, 0.0) + (float(score + weight) - float(score))
                score += weight
        return shares

    def _pairs(self, term: int, start: int, end: int) -> slice:
        """Where the pairs are of a term and the passages ``start:end``."""
        first, last = self._postings.offsets[term : term + 2]
        return slice(*(first + np.searchsorted(self._postings.texts[first:last], (start, end))))

    def _set(
        self,
        postings: Postings,
        vocabulary: Vocabulary,
        analyzer: Analyzer,
        k1: float,
        b: float,
        k3: float | None,
        weights: Floats | None = None,
    ) -> None:
        """``weights``: if they are known."""
        self.vocabulary, self.analyzer, self._postings = vocabulary, analyzer, postings
        self.k1, self.b, self.k3 = float(k1), float(b), None if k3 is None else float(k3)
        self._weights = postings.weights(self.k1, self.b) if weights is None else weights

    def _weigh_counts(self, counts: TermCounts, k1: float, b: float, k3: float | None) -> None:
        if not counts.matrix.nnz:
            raise InputError("no text holds a word that is not a stop word")
        self._set(Postings.of(counts), counts.vocabulary, counts.analyzer, k1, b, k3)


def _floats(values: Values) -> Floats:
    return values.view(np.float32)


def _schema(column: str) -> pa.Schema:
    return pa.schema([(column, pa.large_string())])


@njit(nogil=True, cache=True)
def _add(
    offsets: Any, passages: Any, weights: Any, terms: Any, times: Any, sums: Any
) -> None:  # pragma: no cover - compiled
    """The scores of all passages: weights are added in the order of the terms, each ``times`` as much."""
    sums[:] = 0
    for place in range(len(terms)):
        term, factor = terms[place], times[place]
        of_term, term_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for i in range(len(of_term)):
            sums[of_term[i]] += factor * term_weights[i]
