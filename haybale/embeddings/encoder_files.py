"""Lexical encoders on disk: numbers as safetensors, terms as Parquet, the rest as JSON. Nothing can be executed.

manifest.json          format, version, class, parameters, fingerprint, width, the analyzer where its language was
                       guessed, and the SHA-256 of every other file
tensors.safetensors    weights, and what is built on them
vocabulary.parquet     columns ``term`` and ``kind`` ("word" or "ngram"), a row a column of the counts
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save_file

from haybale.analysis import Analyzer
from haybale.embeddings.counting import Vocabulary
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, check_files, read_manifest, read_tensors, write_manifest

FORMAT, VERSION = "haybale encoder", 1
_TENSORS, _TERMS = "tensors.safetensors", "vocabulary.parquet"

Tensors = dict[str, NDArray[Any]]
T = TypeVar("T")


def described(encoder: Any, analyzer: Analyzer, fitted: str) -> dict[str, Any]:
    """Plain values that tell a fitted encoder from any other; ``fitted`` is the SHA-256 of what it learned."""
    parameters = encoder.get_params()
    own = {} if parameters.pop("analyzer") is None else {"analyzer": analyzer.describe()}
    guessed = {"analyzer": analyzer.describe()} if not own and parameters["language"] is None else {}
    head = {"class": type(encoder).__name__, "parameters": {**own, **parameters}}
    return {**head, "fitted": fitted, "width": encoder.width, **guessed}


def save_encoder(
    folder: Path, described: dict[str, Any], tensors: Tensors, vocabularies: dict[str, Vocabulary]
) -> None:
    """Write an encoder; the folder must be new or empty. ``described`` is what its ``describe`` says."""
    terms = [term for vocabulary in vocabularies.values() for term in vocabulary]
    kinds = [kind for kind, vocabulary in vocabularies.items() for _ in vocabulary]
    table = pa.table({"term": pa.array(terms, type=pa.large_string()), "kind": pa.array(kinds, type=pa.string())})
    head = {"format": FORMAT, "version": VERSION}
    with whole_folder(folder) as aside:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, aside / _TENSORS)
        pq.write_table(table, aside / _TERMS)
        write_manifest(aside, head | described)


def load_encoder(
    folder: Path, kind: str, names: tuple[str, ...]
) -> tuple[dict[str, Any], Tensors, dict[str, Vocabulary]]:
    """Manifest, tensors and vocabularies of a saved encoder of class ``kind``, whose tensors are ``names``."""
    manifest = read_manifest(folder, "encoder", {"format": FORMAT, "version": VERSION, "class": kind})
    if not isinstance(manifest.get("parameters"), dict):
        raise FileFormatError(folder / MANIFEST, None, "'parameters' is missing or of another type")
    check_files(folder, manifest, (_TENSORS, _TERMS))
    tensors = read_tensors(folder / _TENSORS)
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
        if "analyzer" in parameters:
            parameters["analyzer"] = Analyzer.from_dict(parameters["analyzer"])
        return cls(**parameters)
    except (TypeError, InputError) as error:
        raise FileFormatError(folder / MANIFEST, None, f"parameters: {error}") from None


def restored_analyzer(encoder: Any, folder: Path, manifest: dict[str, Any]) -> Analyzer:
    """The analyzer of a restored encoder: a parameter, of its language, or what was guessed."""
    if encoder.analyzer is not None:
        return encoder.analyzer  # type: ignore[no-any-return]
    try:
        if encoder.language is not None:
            return Analyzer(encoder.language)
        return Analyzer.from_dict(manifest.get("analyzer"))
    except InputError as error:
        raise FileFormatError(folder / MANIFEST, None, str(error)) from None
