"""The files of a saved index of passages.

    manifest.json          format, version, kind, and the SHA-256 of every other file
    vectors.safetensors    the vectors; a sparse matrix by its rows and, for the inverted index, by its columns
    passages.parquet       the id of each passage
    documents.parquet      the id of each document, and how many passages it has

They do not say on which device the index was, nor which backend searched it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from haybale.device import to_numpy
from haybale.errors import FileFormatError
from haybale.manifest import Tensors, check_files, mapped_tensors, read_manifest, write_manifest, write_tensors
from haybale.retrieval.passages import TABLE_FILES, Columns
from haybale.vectors import Matrix

FORMAT, VERSION = "haybale index", 1
_VECTORS = "vectors.safetensors"
FILES = (_VECTORS, "documents.parquet")  # by which the folder is known where the manifest is lost
_HEAD = {"format": FORMAT, "version": VERSION, "kind": "PassageIndex"}
_PARTS = ("data", "indices", "indptr")


class IndexParts(NamedTuple):
    """What an index is made of: vectors (n, d) as they lie in the file, columns, and the terms' passages if sparse."""

    vectors: Matrix
    columns: Columns
    postings: sparse.csc_matrix | None


def write_index(folder: Path, parts: IndexParts) -> None:
    """Write an index into a folder that is there and empty."""
    if parts.postings is None:
        tensors: Tensors = {"vectors": to_numpy(parts.vectors)}
    else:
        tensors = _arrays("rows", parts.vectors) | _arrays("columns", parts.postings)
    write_tensors(folder / _VECTORS, tensors)
    parts.columns.write(folder)
    write_manifest(folder, _HEAD)


def read_index(folder: Path, *, verify: bool) -> IndexParts:
    """The parts of a saved index; vectors are mapped, not read.

    ``verify``: compute every file's digest, and look whether the numbers of terms and passages lie within the matrix.
    """
    manifest = read_manifest(folder, "index", _HEAD)
    check_files(folder, manifest, (_VECTORS, *TABLE_FILES), verify=verify)
    columns, path = Columns.read(folder), folder / _VECTORS
    tensors = mapped_tensors(path)
    n = len(columns.passage_ids)
    if set(tensors) == {"vectors"}:
        vectors = tensors["vectors"]
        if vectors.ndim != 2 or len(vectors) != n or vectors.dtype not in (np.float32, np.float16):
            message = f"expected {n} vectors of float32 or float16, found {vectors.shape} of {vectors.dtype}"
            raise FileFormatError(path, None, message)
        return IndexParts(vectors, columns, None)
    if set(tensors) != {f"{side}.{part}" for side in ("rows", "columns") for part in _PARTS}:
        raise FileFormatError(path, None, f"expected vectors, or rows and columns of a matrix; found {sorted(tensors)}")
    rows, terms = (tuple(tensors[f"{side}.{part}"] for part in _PARTS) for side in ("rows", "columns"))
    shape = (n, len(terms[2]) - 1)
    fits = _fits(rows, *shape, verify) and _fits(terms, *shape[::-1], verify)
    if not fits or len(rows[0]) != len(terms[0]):
        raise FileFormatError(path, None, f"the parts of a sparse matrix of {n} rows do not fit each other")
    return IndexParts(_matrix(sparse.csr_matrix, rows, shape), columns, _matrix(sparse.csc_matrix, terms, shape))


def _arrays(side: str, matrix: Any) -> Tensors:
    return {f"{side}.{part}": getattr(matrix, part) for part in _PARTS}


def _fits(parts: tuple[Any, ...], n: int, width: int, verify: bool) -> bool:
    """Whether these are the arrays of a matrix of n rows (or columns) with numbers below ``width`` in them."""
    data, indices, indptr = parts
    kinds = data.dtype == np.float32 and indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64)
    flat = data.ndim == indices.ndim == indptr.ndim == 1 and len(data) == len(indices) and len(indptr) == n + 1
    if not kinds or not flat or n < 1 or width < 1 or indptr[0] != 0 or indptr[-1] != len(data):
        return False
    if (np.diff(indptr) < 0).any():
        return False
    return not verify or not len(indices) or bool(indices.min() >= 0 and indices.max() < width)


def _matrix(kind: Any, parts: tuple[Any, ...], shape: tuple[int, int]) -> Any:
    """The matrix of arrays that were found to be in order, which are not looked through again."""
    matrix = kind(shape, dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = parts
    matrix.has_canonical_format = True  # as check_sparse made it
    return matrix
