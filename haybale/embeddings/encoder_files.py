"""Lexical encoders on disk: numbers as safetensors, terms as Parquet, the rest as JSON. Nothing can be executed.

manifest.json          format, version, class, parameters, fingerprint, width, and the SHA-256 of every other file
tensors.safetensors    weights, and what is built on them
vocabulary.parquet     columns ``term`` and ``kind`` ("word" or "ngram"), a row a column of the counts
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from haybale.counting import Vocabulary
from haybale.errors import FileFormatError
from haybale.folders import whole_folder, write_json

FORMAT, VERSION = "haybale encoder", 1
_MANIFEST, _TENSORS, _TERMS = "manifest.json", "tensors.safetensors", "vocabulary.parquet"

Tensors = dict[str, NDArray[Any]]
T = TypeVar("T")


def save_encoder(
    folder: Path, described: dict[str, Any], tensors: Tensors, vocabularies: dict[str, Vocabulary]
) -> None:
    """Write an encoder; the folder must be new or empty. ``described`` is what its ``describe`` says."""
    from haybale import __version__

    terms = [term for vocabulary in vocabularies.values() for term in vocabulary]
    kinds = [kind for kind, vocabulary in vocabularies.items() for _ in vocabulary]
    table = pa.table({"term": pa.array(terms, type=pa.large_string()), "kind": pa.array(kinds, type=pa.string())})
    head = {"format": FORMAT, "version": VERSION, "haybale": __version__}
    with whole_folder(folder) as aside:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, aside / _TENSORS)
        pq.write_table(table, aside / _TERMS)
        files = {name: _digest(aside / name) for name in (_TENSORS, _TERMS)}
        write_json(aside / _MANIFEST, head | described | {"files": files})


def load_encoder(
    folder: Path, kind: str, names: tuple[str, ...]
) -> tuple[dict[str, Any], Tensors, dict[str, Vocabulary]]:
    """Manifest, tensors and vocabularies of a saved encoder of class ``kind``, whose tensors are ``names``."""
    manifest = _manifest(folder, kind)
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file():
            raise FileFormatError(folder / name, None, "not found, the manifest lists it")
        if _digest(folder / name) != digest:
            raise FileFormatError(folder / name, None, "its content is not what was saved: the SHA-256 differs")
    try:
        tensors = load_file(folder / _TENSORS)
    except SafetensorError as error:
        raise FileFormatError(folder / _TENSORS, None, f"expected safetensors: {error}") from None
    if set(tensors) != set(names) or not all(np.isfinite(value).all() for value in tensors.values()):
        raise FileFormatError(folder / _TENSORS, None, f"expected finite tensors {', '.join(names)}")
    try:
        table = pq.read_table(folder / _TERMS, columns=["term", "kind"])
    except (pa.ArrowException, KeyError) as error:
        raise FileFormatError(folder / _TERMS, None, f"expected Parquet with 'term' and 'kind': {error}") from None
    vocabularies: dict[str, Vocabulary] = {}
    for term, kind_of_term in zip(table.column("term").to_pylist(), table.column("kind").to_pylist(), strict=True):
        vocabulary = vocabularies.setdefault(kind_of_term, {})
        vocabulary[term] = len(vocabulary)
    return manifest, tensors, vocabularies


def restored(cls: type[T], folder: Path, manifest: dict[str, Any]) -> T:
    """An encoder that is not yet fitted, with the saved parameters."""
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in manifest["parameters"].items()}
    try:
        return cls(**parameters)
    except TypeError as error:
        raise FileFormatError(folder / _MANIFEST, None, f"parameters: {error}") from None


def _manifest(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / _MANIFEST
    if not path.is_file():
        raise FileFormatError(path, None, f"not found: {folder} is no saved encoder")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(path, None, f"expected JSON: {error}") from None
    expected = {"format": FORMAT, "version": VERSION, "class": kind}
    for name, value in expected.items():
        found = manifest.get(name) if isinstance(manifest, dict) else None
        if found != value:
            raise FileFormatError(path, None, f"expected {name} {value!r}, found {found!r}")
    if not isinstance(manifest.get("parameters"), dict) or set(manifest.get("files") or ()) != {_TENSORS, _TERMS}:
        raise FileFormatError(path, None, f"expected 'parameters', and 'files' {_TENSORS} and {_TERMS}")
    return dict(manifest)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
