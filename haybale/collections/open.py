"""Opens a collection by name or folder; a folder's layout is recognised by its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from haybale.collections.beir import add_beir_documents, read_beir
from haybale.collections.builder import CollectionBuilder
from haybale.collections.coliee import add_coliee_documents, is_coliee, read_coliee
from haybale.collections.collection import Collection
from haybale.collections.frames import documents_from_frame
from haybale.collections.gerdalir import add_gerdalir_documents, read_gerdalir
from haybale.collections.ids import id_strings
from haybale.collections.ir_datasets import PREFIX, read_ir_datasets
from haybale.collections.lines import find_file
from haybale.collections.parquet import add_parquet_documents, read_parquet
from haybale.collections.pydocs import read_pydocs
from haybale.collections.sink import DocumentSink
from haybale.collections.structured import add_structured_documents, read_structured
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame

Documents: TypeAlias = "Collection | Frame | Mapping[str, str | Sequence[str]] | str | Path"


class Layout(NamedTuple):
    """``files``, in words, by which ``fits`` recognises a folder; how to read it whole, or only its documents.

    Where ``asks`` finds no queries and judgements, there are only documents.
    """

    files: str
    fits: Callable[[Path], bool]
    asks: Callable[[Path], bool]
    read: Callable[[Path], Collection]
    add_documents: Callable[[DocumentSink, Path], None]


def _has(*names: str) -> Callable[[Path], bool]:
    """Whether a folder has one of these files or folders."""
    return lambda folder: any(find_file(folder, name) is not None or (folder / name).is_dir() for name in names)


LAYOUTS: dict[str, Layout] = {
    "gerdalir": Layout(
        "collection.tsv", _has("collection.tsv"), _has("queries", "qrels"), read_gerdalir, add_gerdalir_documents
    ),
    "beir": Layout("corpus.jsonl", _has("corpus.jsonl"), _has("queries.jsonl", "qrels"), read_beir, add_beir_documents),
    "structured": Layout(
        "documents.jsonl",
        _has("documents.jsonl"),
        _has("queries.jsonl", "qrels"),
        read_structured,
        add_structured_documents,
    ),
    "parquet": Layout(
        "passages.parquet",
        lambda folder: (folder / "passages.parquet").is_file(),
        _has("queries.parquet", "qrels.parquet"),
        read_parquet,
        add_parquet_documents,
    ),
    "coliee": Layout("*labels*.json", is_coliee, lambda folder: True, read_coliee, add_coliee_documents),
}


def open_collection(name: str | Path, layout: str | None = None) -> Collection:
    """``"pydocs"``, ``"ir_datasets:<id>"``, or a folder in one of the :data:`LAYOUTS`, also of documents alone.

    Errors: a folder that does not exist, that holds the files of no layout, or of more than one (give
    ``layout`` then).
    """
    if name == "pydocs":
        return read_pydocs()
    if (dataset_id := ir_datasets_id(name)) is not None:
        return read_ir_datasets(dataset_id)
    folder = Path(name)
    found = find_layout(folder, layout)
    if found.asks(folder):
        return found.read(folder)
    builder = CollectionBuilder(folder.name)
    found.add_documents(builder, folder)
    return builder.build()


def open_documents(given: Documents) -> Collection:
    """Documents in any form, as a collection: a folder, a frame, or a mapping of ids to texts or lists of passages.

    >>> open_documents({"a": "Dogs bark.", "b": ["Taxes are due.", "In May."]})
    Collection 'documents': 2 documents, 3 passages, 0 queries ()
    """
    if isinstance(given, Collection):
        return given
    if isinstance(given, str | Path):
        return open_collection(given)
    if not isinstance(given, Mapping):
        return documents_from_frame(given)
    builder = CollectionBuilder("documents")
    for doc_id, text in zip(id_strings(given, "document").to_pylist(), given.values(), strict=True):
        passages = [text] if isinstance(text, str) else list(text) if isinstance(text, Sequence) else [text]
        if not all(isinstance(passage, str) for passage in passages):
            raise InputError(f"document {doc_id!r}: expected a text or a list of passages, found {text!r}")
        builder.add_document(doc_id, passages)
    return builder.build()


def ir_datasets_id(name: str | Path) -> str | None:
    """The id in ``"ir_datasets:<id>"``, or None.

    >>> ir_datasets_id("ir_datasets:beir/scifact/test"), ir_datasets_id("irled")
    ('beir/scifact/test', None)
    """
    return str(name).removeprefix(PREFIX) if str(name).startswith(PREFIX) else None


def source_of(name: str | Path) -> str:
    """``name`` as :func:`open_collection` takes it from any working directory: a folder by its absolute path.

    >>> source_of("pydocs"), Path(source_of("irled")).is_absolute()
    ('pydocs', True)
    """
    is_folder = name != "pydocs" and ir_datasets_id(name) is None
    return str(Path(name).absolute() if is_folder else name)


def find_layout(folder: Path, layout: str | None = None) -> Layout:
    """The layout of that name, or the one whose files the folder has."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected 'pydocs' or the folder of a collection")
    if layout is not None:
        if layout not in LAYOUTS:
            raise UnknownNameError("layout", layout, LAYOUTS)
        return LAYOUTS[layout]
    found = [name for name, known in LAYOUTS.items() if known.fits(folder)]
    if len(found) == 1:
        return LAYOUTS[found[0]]
    known = ", ".join(f"{layout.files} ({name})" for name, layout in LAYOUTS.items())
    if found:
        raise InputError(f"{folder}: fits the layouts {', '.join(found)}; say which one with layout=")
    raise InputError(f"{folder}: no layout recognised; expected one of {known}, the first three plain or .gz")
