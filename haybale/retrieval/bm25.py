"""BM25 over passages, by compiled loops; documents rank by their best passage, or as wholes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from haybale.analysis import Analyzer, Split, Terms, as_analyzer, guess_language
from haybale.collections import Collection
from haybale.collections.collection import Strings
from haybale.embeddings.counting import TermCounts, Vocabulary
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, check_files, mapped_tensors, read_manifest, write_manifest
from haybale.progress import track
from haybale.retrieval.bm25_kernels import Queries, Weighted, best, scores_within, slices
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.passages import Exclude, Ids, PassageTable
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


class BM25Index(PassageTable):
    """Lucene's BM25 (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020) over passages of documents.

    Scores are those of bm25s bit for bit: float32 weights of each term in each passage, which are added in the order of
    the query's terms, repeated ones as often as they occur.

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
    language : str, optional
        Of stop words and stemmer, one of :data:`haybale.analysis.LANGUAGES`; default: guessed from the texts.
    analyzer : Analyzer or callable, optional
        What makes terms of texts, in place of ``language``: an :class:`~haybale.analysis.Analyzer`, or a function from
        a text to its terms. An index with a function cannot be saved.

    Attributes
    ----------
    analyzer : Analyzer
    k1, b : float
    vocabulary : dict
        Term -> number, by first occurrence.

    Raises
    ------
    InputError
        For texts without a term, parameters out of range, offsets or ids that do not fit the texts.

    Notes
    -----
    Memory: 12 bytes for each pair of a term and a passage it occurs in; beside the hits, 28 bytes a passage for each
    thread that searches.

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
        language: str | None = None,
        analyzer: Analyzer | Split | None = None,
    ) -> None:
        check_parameters(k1, b)
        super().__init__(len(texts), doc_offsets, passage_ids, doc_ids)
        if analyzer is None:
            analyzer = Analyzer(language or guess_language(texts[:: max(1, len(texts) // 1000)]))
        elif language is not None:
            raise InputError("give a language or an analyzer, not both")
        self._weigh_counts(TermCounts.of(texts, as_analyzer(analyzer)), k1, b)

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
    ) -> Self:
        """The index of texts that were counted already; parameters as those of the class.

        Examples
        --------
        >>> counts = TermCounts.of(["a lead for dogs", "taxes are due", "the dog tax"], Analyzer("english"))
        >>> BM25Index.from_counts(counts.merged(np.array([0, 2, 3]))).search(["dog taxes"], k=2).passages
        array([[1, 0]])
        """
        check_parameters(k1, b)
        index = cls.__new__(cls)
        PassageTable.__init__(index, len(counts), doc_offsets, passage_ids, doc_ids)
        index._weigh_counts(counts, k1, b)
        return index

    @classmethod
    def from_collection(
        cls,
        collection: Collection,
        unit: str = "passage",
        *,
        k1: float = 1.2,
        b: float = 0.75,
        language: str | None = None,
    ) -> Self:
        """Index a collection's passages or documents; texts become strings a batch at a time.

        Parameters
        ----------
        collection : Collection
        unit : {"passage", "document"}, default "passage"
            What is a passage of the index: the collection's, or its documents as wholes.
        k1, b : float, default 1.2, 0.75
        language : str, optional
            None: the collection's own, else guessed.
        """
        if unit not in ("passage", "document"):
            raise InputError(f"unit must be 'passage' or 'document', found {unit!r}")
        passages, documents = collection.passages, collection.doc_ids
        offsets = passages.doc_offsets
        language = language or collection.language
        if language is None:
            language = _guessed(passages.texts, offsets if unit == "document" else np.arange(len(passages) + 1))
        counts = TermCounts.of(passages.texts, Analyzer(language))
        if unit == "document":
            return cls.from_counts(counts.merged(offsets), passage_ids=documents, doc_ids=documents, k1=k1, b=b)
        return cls.from_counts(counts, offsets, passage_ids=passages.ids, doc_ids=documents, k1=k1, b=b)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """An index that :meth:`save` wrote, its counts mapped into memory; only the weights are computed."""
        folder = Path(folder)
        manifest = read_manifest(folder, "BM25 index", {"format": _FORMAT, "version": _VERSION})
        check_files(folder, manifest, (_TENSORS, *_COLUMNS.values()))
        tensors = mapped_tensors(folder / _TENSORS)
        if {name: array.dtype for name, array in tensors.items()} != _ARRAYS:
            raise FileFormatError(folder / _TENSORS, None, f"expected the tensors {', '.join(_ARRAYS)}")
        terms, passage_ids, doc_ids = (_column(folder / file, name) for name, file in _COLUMNS.items())
        doc_offsets = tensors.pop("doc_offsets")
        try:
            k1, b, n_texts, n_terms = (manifest[name] for name in ("k1", "b", "n_texts", "n_terms"))
            postings = Postings(**tensors, n_texts=int(n_texts), n_terms=int(n_terms))
            analyzer, k1, b = Analyzer.from_dict(manifest.get("analyzer")), float(k1), float(b)
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"not of a BM25 index: {error!r}") from None
        index = cls.__new__(cls)
        PassageTable.__init__(index, len(postings.lengths), doc_offsets, passage_ids, doc_ids)
        index._set(postings, {term: number for number, term in enumerate(terms.to_pylist())}, analyzer, k1, b)
        return index

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, whole or not; equal indexes are written as equal bytes.

        manifest.json          format, version, k1, b, analyzer, the numbers of texts and terms, SHA-256 of the others
        tensors.safetensors    the counts, term by term: see :class:`Postings`; and where documents begin
        vocabulary.parquet     column ``term``
        passages.parquet       column ``passage_id``
        documents.parquet      column ``doc_id``

        A folder that is not empty is refused, and so is an analyzer that is a function.
        """
        postings, analyzer = self._postings, self.analyzer.to_dict()
        head = {"format": _FORMAT, "version": _VERSION, "k1": self.k1, "b": self.b, "analyzer": analyzer}
        terms = pa.chunked_array([pa.array(list(self.vocabulary), type=pa.large_string())])
        columns = {"term": terms, "passage_id": self.passage_ids, "doc_id": self.doc_ids}
        arrays = {name: getattr(self if name == "doc_offsets" else postings, name) for name in _ARRAYS}
        with whole_folder(Path(folder)) as aside:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, aside / _TENSORS)
            for name, file in _COLUMNS.items():
                # In one piece: the bytes do not depend on how the column came about.
                pq.write_table(pa.table({name: columns[name].combine_chunks()}), aside / file)
            write_manifest(aside, head | {"n_texts": postings.n_texts, "n_terms": postings.n_terms})

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {len(self):,} passages, {len(self.doc_ids):,} documents, "
            f"{len(self.vocabulary):,} terms ({self.analyzer.language}), k1 {self.k1:g}, b {self.b:g}"
        )

    # other indexes ------------------------------------------------------------------------------------

    def with_parameters(self, k1: float, b: float) -> Self:
        """The same texts with another ``k1`` and ``b``; only the weights are new, all else is shared."""
        check_parameters(k1, b)
        other = copy.copy(self)
        other._set(self._postings, self.vocabulary, self.analyzer, k1, b)
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
        other._set(postings, self.vocabulary, self.analyzer, self.k1, self.b, self._weights[chosen])
        return other

    def extended(
        self,
        texts: Sequence[str],
        doc_offsets: Ints | None = None,
        *,
        passage_ids: Ids | None = None,
        doc_ids: Ids | None = None,
    ) -> Self:
        """An index with these documents behind the present ones, as if made of all; only the new are analysed.

        Parameters
        ----------
        texts, doc_offsets, passage_ids, doc_ids
            As those of the class; ``doc_offsets`` from 0, default ids are the numbers in the new index.

        Examples
        --------
        >>> index = BM25Index(["a dog"], language="english").extended(["two dogs", "a cat"])
        >>> index.search(["dog"], k=3).passages
        array([[ 0,  1, -1]])
        """
        n, n_documents = len(self), len(self.doc_ids)
        vocabulary = dict(self.vocabulary)
        counts = TermCounts.of(texts, self.analyzer, vocabulary)
        offsets = np.arange(len(counts) + 1) if doc_offsets is None else np.asarray(doc_offsets, dtype=np.int64)
        more = PassageTable(
            len(counts),
            offsets,
            [str(n + i) for i in range(len(counts))] if passage_ids is None else passage_ids,
            [str(n_documents + i) for i in range(len(offsets) - 1)] if doc_ids is None else doc_ids,
        )
        other = type(self).__new__(type(self))
        ids = _chained(self.passage_ids, more.passage_ids), _chained(self.doc_ids, more.doc_ids)
        PassageTable.__init__(other, n + len(more), np.append(self.doc_offsets, n + more.doc_offsets[1:]), *ids)
        other._set(self._postings.extended(Postings.of(counts)), vocabulary, self.analyzer, self.k1, self.b)
        return other

    # searching ----------------------------------------------------------------------------------------

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
        terms, excluded = self._prepared(queries, exclude)
        numbers, scores = np.full((terms.m, k), NO_PASSAGE), np.full((terms.m, k), -np.inf, dtype=np.float32)
        for rows in self._batches(terms):
            counts, found, values = best(self._index, terms.part(rows), k, excluded[rows])
            there = np.arange(k) < counts[:, None]
            numbers[rows][there], scores[rows][there] = found, values
        return Hits(numbers, scores)

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
        if k < 1:
            raise InputError(f"k must be at least 1, found {k}")
        terms, excluded = self._prepared(queries, exclude)
        empty = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        parts = [empty]
        for rows in self._batches(terms):
            parts.append(best(self._index, terms.part(rows), k, excluded[rows], self._doc_of))
        counts, documents, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
        return np.repeat(np.arange(terms.m), counts), documents, scores

    def similarities(self, queries: Sequence[str] | Terms, document: int) -> Floats:
        """(m, passages of the document) scores of its passages for queries; 0 for no common term."""
        return scores_within(self._index, self._prepared(queries, None)[0], document)

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
        names, score, offsets = list(terms.vocabulary), np.float32(0), self._postings.offsets
        for name in (names[term] for term in terms.ids[0]):
            number = self.vocabulary.get(name)
            if number is None:
                continue
            first, end = offsets[number : number + 2]
            place = first + np.searchsorted(self._postings.texts[first:end], passage)
            if place < end and self._postings.texts[place] == passage:
                grown = score + self._weights[place]
                shares[name] = shares.get(name, 0.0) + (float(grown) - float(score))
                score = grown
        return shares

    # inside -------------------------------------------------------------------------------------------

    def _set(
        self,
        postings: Postings,
        vocabulary: Vocabulary,
        analyzer: Analyzer,
        k1: float,
        b: float,
        weights: Floats | None = None,
    ) -> None:
        """``weights``: if they are known."""
        self.vocabulary, self.analyzer, self.k1, self.b = vocabulary, analyzer, float(k1), float(b)
        self._postings = postings
        self._weights = postings.weights(self.k1, self.b) if weights is None else weights
        self._weights.flags.writeable = False  # as what is mapped into memory: one set of compiled loops for both

    def _weigh_counts(self, counts: TermCounts, k1: float, b: float) -> None:
        if not counts.matrix.nnz:
            raise InputError("no text holds a word that is not a stop word")
        self._set(Postings.of(counts), counts.vocabulary, counts.analyzer, k1, b)

    @property
    def _index(self) -> Weighted:
        passages = self._postings.texts.view(np.uint32)
        return Weighted(self._postings.offsets, passages, self._weights, self.doc_offsets)

    @cached_property
    def _doc_of(self) -> Any:
        return np.repeat(np.arange(len(self.doc_ids), dtype=np.uint32), np.diff(self.doc_offsets))

    def _prepared(self, queries: Sequence[str] | Terms, exclude: Exclude | None) -> tuple[Queries, Ints]:
        """Queries as numbers of terms, and the document that each leaves out."""
        terms = Queries.of((queries if isinstance(queries, Terms) else self.analysed(queries)).ids)
        if terms.terms.max(initial=-1) >= len(self.vocabulary):
            raise InputError("the queries' terms are numbered by another index: analyse them with this one")
        return terms, self.excluded(exclude, terms.m)

    def _batches(self, terms: Queries) -> Iterator[slice]:
        parts = slices(terms.m, _BATCH)
        return track(parts, "BM25", len(parts))


def check_parameters(k1: float, b: float) -> None:
    """Refuse a ``k1`` or ``b`` that BM25 has no meaning for.

    >>> check_parameters(1.2, 75)
    Traceback (most recent call last):
    haybale.errors.InputError: BM25 expects a finite k1 >= 0 and b in 0..1, found k1 1.2 and b 75
    """
    if not (0 <= k1 < np.inf and 0 <= b <= 1):
        raise InputError(f"BM25 expects a finite k1 >= 0 and b in 0..1, found k1 {k1} and b {b}")


def _guessed(texts: Strings, offsets: Ints) -> str:
    """The language of runs of texts, guessed from about a thousand of them."""
    starts = np.arange(0, len(offsets) - 1, max(1, (len(offsets) - 1) // 1000))
    return guess_language("\n".join(texts[offsets[i] : offsets[i + 1]].to_pylist()) for i in starts)


def _chained(first: Strings, more: Strings) -> Strings:
    return pa.chunked_array([*first.chunks, *more.chunks], type=first.type)


def _column(path: Path, name: str) -> Strings:
    try:
        return pq.read_table(path, columns=[name]).column(name)
    except (pa.ArrowException, KeyError) as error:
        raise FileFormatError(path, None, f"expected Parquet with a column {name!r}: {error}") from None
