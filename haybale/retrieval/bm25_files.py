"""A BM25 index on disk: counts as safetensors, terms and ids as Parquet, the rest as JSON. Nothing can be executed.

manifest.json          format, version, k1, b, analyzer, the statistics' numbers of texts and of terms, and the SHA-256
                       of every other file
tensors.safetensors    the counts, term by term: see :class:`Postings`; and where documents begin
vocabulary.parquet     column ``term``
passages.parquet       column ``passage_id``
documents.parquet      column ``doc_id``
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from haybale.analysis import Analyzer
from haybale.collections.collection import Strings
from haybale.embeddings.counting import Vocabulary
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.retrieval.hits import Ints
from haybale.retrieval.postings import Postings
from haybale.sealed import MANIFEST, check_files, mapped_tensors, read_manifest, seal

FORMAT, VERSION = "haybale BM25 index", 1
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


class Saved(NamedTuple):
    """What a BM25 index is made of."""

    postings: Postings
    vocabulary: Vocabulary
    analyzer: Analyzer
    doc_offsets: Ints
    passage_ids: Strings
    doc_ids: Strings
    k1: float
    b: float


def save_index(folder: Path, saved: Saved) -> None:
    """Write an index to a folder, which must be new or empty."""
    postings = saved.postings
    head = {"format": FORMAT, "version": VERSION, "k1": saved.k1, "b": saved.b, "analyzer": saved.analyzer.to_dict()}
    statistics = {"n_texts": postings.n_texts, "n_terms": postings.n_terms}
    columns = {"term": pa.chunked_array([pa.array(list(saved.vocabulary), type=pa.large_string())])}
    columns |= {"passage_id": saved.passage_ids, "doc_id": saved.doc_ids}
    arrays = {name: getattr(saved if name == "doc_offsets" else postings, name) for name in _ARRAYS}
    with whole_folder(folder) as aside:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, aside / _TENSORS)
        for name, file in _COLUMNS.items():
            # In one piece: the bytes do not depend on how the column came about.
            pq.write_table(pa.table({name: columns[name].combine_chunks()}), aside / file)
        seal(aside, head | statistics)


def open_index(folder: Path) -> Saved:
    """What :func:`save_index` wrote; arrays are mapped into memory."""
    manifest = read_manifest(folder, "BM25 index", {"format": FORMAT, "version": VERSION})
    check_files(folder, manifest, (_TENSORS, *_COLUMNS.values()))
    tensors = mapped_tensors(folder / _TENSORS)
    if {name: array.dtype for name, array in tensors.items()} != _ARRAYS:
        raise FileFormatError(folder / _TENSORS, None, f"expected the tensors {', '.join(_ARRAYS)}")
    terms, passage_ids, doc_ids = (_column(folder / file, name) for name, file in _COLUMNS.items())
    doc_offsets = tensors.pop("doc_offsets")
    try:
        k1, b, n_texts, n_terms = (manifest[name] for name in ("k1", "b", "n_texts", "n_terms"))
        postings = Postings(**tensors, n_texts=int(n_texts), n_terms=int(n_terms))
        analyzer = Analyzer.from_dict(manifest.get("analyzer"))
        parameters = float(k1), float(b)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise FileFormatError(folder / MANIFEST, None, f"not of a BM25 index: {error!r}") from None
    vocabulary = {term: number for number, term in enumerate(terms.to_pylist())}
    return Saved(postings, vocabulary, analyzer, doc_offsets, passage_ids, doc_ids, *parameters)


def _column(path: Path, name: str) -> Strings:
    try:
        return pq.read_table(path, columns=[name]).column(name)
    except (pa.ArrowException, KeyError) as error:
        raise FileFormatError(path, None, f"expected Parquet with a column {name!r}: {error}") from None
