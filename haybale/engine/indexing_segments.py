"""Index the documents of an engine in segments, each by tasks of its own, with the statistics of all.

A segment is a range of the documents, with an index of each kind in ``0/parts/N``. It is built in two rounds of tasks,
which joblib or a cluster runs (:func:`~haybale.cluster.spread`):

1. Count the terms of each segment, and write the counts to ``0/parts/N/counts``. This process sums them:
   ``0/statistics`` has the number of passages and of documents with each term. Terms are in the order of first
   occurrence, as if all texts had been counted one after the other. The encoder is fitted on these numbers.
2. Write the indexes of each segment, with the statistics of all, and delete its counts.

Where compounds are split, a round before these splits the texts into words, of which the splitter is learned, and
writes the words to ``0/parts/N/words``, so that the next round need not split the texts again. A task reads its texts
from the collection in the folder, which every worker must reach, and writes whole folders or none. After an
interruption, tasks whose folders exist are not done again, and the result has the same bytes.
"""

from __future__ import annotations

import shutil
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from scipy import sparse

from haybale.analysis import NO_LANGUAGE, Analyzer
from haybale.cluster import spread
from haybale.collections import Collection
from haybale.collections.collection import Ints, indptr_from_counts, ragged_take, strings_of, take_strings
from haybale.collections.saved import load_documents
from haybale.embeddings import EmbeddingStore, embed, encode_texts
from haybale.embeddings.counting import TermCounts, strings
from haybale.embeddings.encoder import load_fitted
from haybale.engine.document_vectors import (
    document_encoder,
    documents_as_passages,
    documents_with_passages,
    index_documents,
)
from haybale.engine.storage import remove_unfinished
from haybale.engine.texts import Texts
from haybale.errors import HaybaleError, InputError, OutputExistsError, StoreError
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
from haybale.retrieval import BM25Index, PassageIndex
from haybale.retrieval.index_segments import IndexSegment, IndexSegments, TermStatistics
from haybale.retrieval.passages import Columns
from haybale.retrieval.postings import Postings
from haybale.retrieval.segmented_indexes import SegmentedBM25, SegmentedPassages
from haybale.timing import timed
from haybale.vectors import Matrix

UNITS = ("passage", "document")
INDEXES = ("bm25-passage", "bm25-document", "passages", "documents")
# Folders of a segment that are only needed to make its indexes, and are deleted afterwards.
_BUILD_FOLDERS = ("words", "counts", "passage-vectors", "document-vectors")
_STATISTICS_FORMAT, _COUNTS_FORMAT, _WORDS_FORMAT = "haybale term statistics", "haybale term counts", "haybale words"
_STATISTICS_SCHEMA = pa.schema([("term", pa.large_string()), *((unit, pa.int64()) for unit in UNITS)])
_VOCABULARY_SCHEMA = pa.schema([("term", pa.large_string())])


class Range(NamedTuple):
    """The documents ``first:end`` of the collection, or of its pieces, in the folder of the first segment."""

    root: str  # the folder of the engine's first documents
    source: str  # "collection", or "pieces" if passages are cut
    number: int
    first: int
    end: int

    @property
    def folder(self) -> Path:
        return Path(self.root) / "parts" / str(self.number)

    def read(self, source: str | None = None) -> Collection:
        """Return the documents; StoreError if this machine does not find them."""
        folder = Path(self.root) / (source or self.source)
        if not folder.is_dir():
            raise StoreError(f"{folder}: a worker does not find this folder; put the engine where all workers reach it")
        return load_documents(folder, self.first, self.end)


def ranges(texts: Texts) -> list[Range]:
    """Return the ranges of documents that are indexed as segments, with about equally many passages each."""
    edges = range_edges(texts.indexed.passages.doc_offsets, texts.n_segments)
    where = str((texts.root / "0").absolute()), "collection" if texts.chunking is None else "pieces"
    return [Range(*where, number, *edges[number : number + 2]) for number in range(texts.n_segments)]


def range_edges(doc_offsets: Ints, n: int) -> list[int]:
    """Return the first document of each of n ranges with at least one passage, then the number of documents.

    >>> range_edges(np.array([0, 2, 2, 4, 9]), 3)
    [0, 1, 3, 4]
    """
    with_passages = np.flatnonzero(np.diff(doc_offsets))
    if n > len(with_passages):
        documents = f"{len(with_passages)} documents with a passage"
        raise InputError(f"segments must be at most the number of documents; found {n} segments and {documents}")
    ends, last, edges = doc_offsets[with_passages + 1], -1, [0]
    for number in range(1, n):
        nearest = int(np.searchsorted(ends, int(doc_offsets[-1]) * number // n))
        last = min(max(nearest, last + 1), len(ends) - (n - number) - 1)  # later ranges need documents, too
        edges.append(int(with_passages[last]) + 1)
    return [*edges, len(doc_offsets) - 1]


@contextmanager
def disks_named(folder: Path) -> Iterator[None]:
    """Raise an OSError of a task, such as that of a full disk, as a StoreError that says what to do."""
    try:
        yield
    except HaybaleError:
        raise
    except OSError as error:
        why = (error.strerror or str(error)) + (f" at {error.filename}" if error.filename else "")
        message = f"{folder}: a segment could not be written ({why}); free space there, and build it again to continue"
        raise StoreError(message) from error


# round 0: words --------------------------------------------------------------------------------------------------


def learned_analyzer(texts: Texts, language: str) -> Analyzer:
    """Return the analyzer that splits compounds, learned from the words of all segments."""
    words: Counter[str] = Counter()
    segments = ranges(texts)
    with disks_named(texts.root), timed("learn compounds"):
        for counts in spread(count_words, [(segment,) for segment in segments], None, "learning compounds"):
            words.update(counts)
        return Analyzer.of_words(language, words)


def count_words(segment: Range) -> Counter[str]:
    """Return how often each word occurs in a segment; write which words each passage has, in their order."""
    vocabulary: dict[str, int] = {}
    words, ends, texts = array("i"), array("q", [0]), segment.read("collection").passages.texts
    for numbers in Analyzer(NO_LANGUAGE).numbered(strings(texts), vocabulary, grow=True):
        words.extend(numbers)
        ends.append(len(words))
    tensors: dict[str, Any] = {"words": np.array(words, dtype=np.int32), "offsets": np.array(ends, dtype=np.int64)}
    if segment.source == "collection" and not (segment.folder / "counts").exists():
        _save_tensors(segment.folder / "words", _WORDS_FORMAT, tensors, vocabulary, {})
    counts = np.bincount(tensors["words"], minlength=len(vocabulary)).tolist()
    return Counter(dict(zip(vocabulary, counts, strict=True)))


# round 1: terms --------------------------------------------------------------------------------------------------


def count_all(texts: Texts) -> None:
    """Count the terms of all segments, and write their statistics, unless they are there."""
    folder, segments, analyzer = texts.root / "0" / "statistics", ranges(texts), texts.analyzer
    if folder.exists():
        return
    with disks_named(texts.root), timed("count terms"):
        missing = [segment for segment in segments if not (segment.folder / "counts").exists()]
        for _ in spread(count_segment, [(segment, analyzer) for segment in missing], None, "counting terms"):
            pass
    with timed("sum term statistics"):
        numbers: dict[str, int] = {}
        frequencies = {unit: np.zeros(0, dtype=np.int64) for unit in UNITS}
        totals = {f"n_{name}": 0 for name in ("passages", "documents", "passage_terms", "document_terms")}
        for segment in segments:
            terms, tensors, manifest = _read_tensors(segment.folder / "counts", _COUNTS_FORMAT)
            term_numbers = np.array([numbers.setdefault(term, len(numbers)) for term in terms], dtype=np.int64)
            for unit in UNITS:
                grown = np.zeros(len(numbers), dtype=np.int64)
                grown[: len(frequencies[unit])] = frequencies[unit]
                grown[term_numbers] += tensors[f"{unit}.frequencies"]
                frequencies[unit] = grown
            for name in totals:
                totals[name] += manifest[name]
        if not any(frequencies["passage"]):
            language = analyzer.language
            raise InputError(f"the texts hold no term besides stop words (language {language!r}); change the language")
        with whole_folder(folder) as aside:
            table = pa.table([strings_of(numbers), *frequencies.values()], schema=_STATISTICS_SCHEMA)
            write_table(aside / "terms.parquet", table)
            write_manifest(aside, {"format": _STATISTICS_FORMAT, "version": 1} | totals)


def count_segment(segment: Range, analyzer: Analyzer) -> None:
    """Count the terms of the passages and of the documents of a segment."""
    passages = segment.read()
    counts = _counted(segment, passages, analyzer)
    if segment.source == "collection":
        documents = counts.merged(passages.passages.doc_offsets)
    else:  # the pieces of a passage may overlap, so the texts of documents are counted, with the same vocabulary
        documents = TermCounts.of(segment.read("collection").document_texts(), analyzer, counts.vocabulary)
    tensors: dict[str, Any] = {}
    about: dict[str, int] = {}
    for unit, unit_counts in zip(UNITS, (counts, documents), strict=True):
        matrix = unit_counts.matrix
        matrix.resize(matrix.shape[0], len(counts.vocabulary))
        tensors |= {f"{unit}.{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
        tensors[f"{unit}.frequencies"] = np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.int64)
        about |= {f"n_{unit}s": len(unit_counts), f"n_{unit}_terms": int(unit_counts.lengths.sum())}
    _save_tensors(segment.folder / "counts", _COUNTS_FORMAT, tensors, counts.vocabulary, about)
    shutil.rmtree(segment.folder / "words", ignore_errors=True)


def _counted(segment: Range, documents: Collection, analyzer: Analyzer) -> TermCounts:
    """Return the term counts of the passages of a segment, from their words if these were written."""
    if not (segment.folder / "words").exists():
        return TermCounts.of(documents.passages.texts, analyzer)
    words, tensors, _ = _read_tensors(segment.folder / "words", _WORDS_FORMAT)
    vocabulary: dict[str, int] = {}
    terms_of = list(analyzer.numbered_words(words, vocabulary))
    terms = np.array([term for word_terms in terms_of for term in word_terms], dtype=np.int32)
    positions, ends = ragged_take(indptr_from_counts([len(word_terms) for word_terms in terms_of]), tensors["words"])
    return TermCounts.of_numbers(terms[positions], ends[tensors["offsets"]], vocabulary, analyzer)


def _save_tensors(
    folder: Path, kind: str, tensors: dict[str, Any], vocabulary: dict[str, int], about: dict[str, int]
) -> None:
    def save(folder: Path) -> None:
        with whole_folder(folder) as aside:
            write_tensors(aside / "tensors.safetensors", tensors)
            write_table(aside / "vocabulary.parquet", pa.table([strings_of(vocabulary)], schema=_VOCABULARY_SCHEMA))
            write_manifest(aside, {"format": kind, "version": 1} | about)

    _save_once(save, folder)


def _save_once(save: Callable[[Path], object], folder: Path) -> None:
    """Save to a folder, unless another worker has done so after this one was given up."""
    try:
        save(folder)
    except OutputExistsError:
        if not (folder / MANIFEST).exists():
            raise


def _read_tensors(folder: Path, kind: str) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Return the vocabulary, the arrays and the manifest of the counts, or of the words, of a segment."""
    manifest = read_manifest(folder, "term counts", {"format": kind, "version": 1})
    check_files(folder, manifest, ("tensors.safetensors", "vocabulary.parquet"))
    terms = read_table(folder / "vocabulary.parquet", _VOCABULARY_SCHEMA).column("term").to_pylist()
    return terms, mapped_tensors(folder / "tensors.safetensors"), manifest


@lru_cache(maxsize=1)
def _statistics_of_call(root: str, call: str) -> dict[str, TermStatistics]:
    """Return the statistics in a folder; the tasks of one call of :func:`index_all` share them."""
    return read_statistics(Path(root))


def read_statistics(root: Path) -> dict[str, TermStatistics]:
    """Return the statistics of passages and of documents; terms are in the order of first occurrence.

    ``root`` is the folder of the engine's first documents.
    """
    folder = root / "statistics"
    manifest = read_manifest(folder, "term statistics", {"format": _STATISTICS_FORMAT, "version": 1})
    check_files(folder, manifest, ("terms.parquet",))
    table = read_table(folder / "terms.parquet", _STATISTICS_SCHEMA)
    terms = table.column("term").to_pylist()
    statistics = {}
    for unit in UNITS:
        frequencies = dict(zip(terms, table.column(unit).to_pylist(), strict=True))
        statistics[unit] = TermStatistics(frequencies, manifest[f"n_{unit}s"], manifest[f"n_{unit}_terms"])
    return statistics


# round 2: indexes ------------------------------------------------------------------------------------------------


def index_all(texts: Texts, source: Any) -> None:
    """Write the indexes of all segments that lack one; ``source`` is the engine's :class:`EncoderSource`."""
    segments, call, from_counts = ranges(texts), uuid4().hex, texts.has_counts_for(source.encoder)
    with disks_named(texts.root), timed("index segments"):
        encoder = source.portable
        tasks = [(segment, texts.analyzer, encoder, call, from_counts) for segment in segments if _missing(segment)]
        for _ in spread(index_segment, tasks, None, "indexing segments"):
            pass
    for segment in segments:
        for name in _BUILD_FOLDERS:
            shutil.rmtree(segment.folder / name, ignore_errors=True)
        remove_unfinished(segment.folder)


def _missing(segment: Range) -> list[str]:
    return [name for name in INDEXES if not (segment.folder / name / MANIFEST).exists()]


def index_segment(segment: Range, analyzer: Analyzer, encoder: Any, call: str, from_counts: bool) -> None:
    """Write the indexes of a segment that it lacks.

    ``encoder`` is an encoder, a function that makes one, or None for the encoder in the folder of the engine. With
    ``from_counts``, it is a TF-IDF encoder of the terms that were counted. ``call`` is a unique id
    of the call of :func:`index_all`.
    """
    missing, passages = _missing(segment), segment.read()
    whole = passages if segment.source == "collection" else segment.read("collection")
    terms, tensors, _ = _read_tensors(segment.folder / "counts", _COUNTS_FORMAT)
    statistics = _statistics_of_call(segment.root, call)
    vocabulary = {term: number for number, term in enumerate(terms)}
    saved = Path(segment.root).parent / "encoder"
    encoder = _encoder_of_thread(partial(load_fitted, saved) if encoder is None else encoder, call)

    def counts(unit: str) -> TermCounts:
        matrix = tuple(tensors[f"{unit}.{name}"] for name in ("data", "indices", "indptr"))
        return TermCounts(sparse.csr_matrix(matrix, (len(matrix[2]) - 1, len(terms))), vocabulary, analyzer)

    def bm25(unit: str, texts: Collection) -> BM25Index:
        whole = statistics[unit]
        frequencies = np.array([whole.frequencies[term] for term in terms], dtype=np.int64)
        of_all: dict[str, Any] = {"frequencies": frequencies, "n_texts": whole.n_texts, "n_terms": whole.n_terms}
        postings = replace(Postings.of(counts(unit)), **of_all)
        return BM25Index.of_postings(columns_of(f"bm25-{unit}", texts), postings, vocabulary, analyzer)

    def vectors(unit: str, texts: Collection) -> PassageIndex:
        with_text = documents_with_passages(texts)
        if from_counts:
            rows: Matrix = encoder.tfidf_rows(counts(unit))
            rows = rows if unit == "passage" else rows[with_text]
        else:
            source = texts if unit == "passage" else documents_as_passages(texts)
            coder = encoder
            if unit == "document":  # passages are indexed first
                coder = document_encoder(encoder, passages, lambda: PassageIndex.open(segment.folder / "passages"))
            rows = _encoded(source, coder, segment.folder / f"{unit}-vectors")
        if unit == "document":
            return index_documents(rows, texts, None)
        return PassageIndex.from_collection(texts, rows)

    for unit, texts in zip(UNITS, (passages, whole), strict=True):
        for name, make in ((f"bm25-{unit}", bm25), (f"{unit}s", vectors)):
            if name in missing:
                _save_once(make(unit, texts).save, segment.folder / name)


_thread = threading.local()  # threads do not share an encoder


def _encoder_of_thread(encoder: Any, call: str) -> Any:
    """Return the encoder, or make it with its function, once for each call of :func:`index_all` in this thread."""
    if hasattr(encoder, "encode"):
        return encoder
    if getattr(_thread, "call", None) != call:
        _thread.encoder, _thread.call = encoder(), call
    return _thread.encoder


def _encoded(source: Collection, encoder: Any, folder: Path) -> Matrix:
    """Return the vectors of texts; dense ones are first written to an embedding store, which resumes."""
    if getattr(encoder, "is_sparse", False):
        return encode_texts(encoder, source.passages.texts.to_pylist())
    embed(source, encoder, folder)
    return EmbeddingStore(folder).vectors_of(source)


# open ------------------------------------------------------------------------------------------------------------


def open_segments(name: str, texts: Texts) -> SegmentedBM25 | SegmentedPassages:
    """Return an index of all segments; each segment is opened when it is first searched."""
    ranges_ = ranges(texts)
    columns = columns_of(name, texts.indexed if name in ("bm25-passage", "passages") else texts.whole)
    firsts = np.array([segment.first for segment in ranges_])
    counts = np.array([segment.end - segment.first for segment in ranges_])
    root, address = texts.root, texts.storage.address

    def segment_in(range_: Range) -> IndexSegment:
        folder = range_.folder / name
        return IndexSegment.in_folder(folder, address and f"{address}/{folder.relative_to(root.absolute()).as_posix()}")

    segments = IndexSegments(list(map(segment_in, ranges_)), columns.doc_offsets, firsts, counts)
    if not name.startswith("bm25"):
        return SegmentedPassages(segments, columns)
    unit = name.removeprefix("bm25-")

    def statistics() -> TermStatistics:
        with texts.storage.unchanged():
            return read_statistics(texts.root / "0")[unit]

    return SegmentedBM25(segments, columns, texts.analyzer, statistics)


def columns_of(name: str, documents: Collection) -> Columns:
    """Return the documents and the ids that an index of all these documents has."""
    passages, ids = documents.passages, documents.doc_ids
    if name in ("bm25-passage", "passages"):
        return Columns(passages.doc_offsets, passages.ids, ids)
    if name == "bm25-document":
        return Columns(np.arange(len(ids) + 1), ids, ids)
    with_text = documents_with_passages(documents)
    offsets = indptr_from_counts((np.diff(passages.doc_offsets) > 0).astype(np.int64))
    return Columns(offsets, strings_of(take_strings(ids, with_text)), ids)
