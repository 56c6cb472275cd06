"""Opens a collection by name or folder; a folder's layout is recognised by its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.ids import id_strings
from haybale.collections.lines import find_file
from haybale.collections.readers.beir import add_beir_documents, read_beir
from haybale.collections.readers.coliee import add_coliee_documents, files_in, read_coliee
from haybale.collections.readers.frames import add_parquet_documents, documents_from_frame, read_parquet
from haybale.collections.readers.gerdalir import add_gerdalir_documents, read_gerdalir
from haybale.collections.readers.ir_datasets import PREFIX, read_ir_datasets
from haybale.collections.readers.pydocs import read_pydocs
from haybale.collections.readers.structured import add_structured_documents, read_structured
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame

Documents: TypeAlias = "Collection | Frame | Mapping[str, str | Sequence[str]] | str | Path"


class Layout(NamedTuple):
    """``documents`` is the file by which a folder is recognised; without one of ``queries`` it has documents alone."""

    documents: str
    queries: tuple[str, ...]
    read: Callable[[Path], Collection]
    add_documents: Callable[[CollectionBuilder, Path], None]

    def fits(self, folder: Path) -> bool:
        return _has(folder, self.documents)

    def asks(self, folder: Path) -> bool:
        return any(_has(folder, name) for name in self.queries)


def _has(folder: Path, name: str) -> bool:
    """Whether there is such a file, plain or ``.gz``, or folder, or (for a pattern) file in it or its folders."""
    if "*" in name:
        return bool(files_in(folder, name))
    return find_file(folder, name) is not None or (folder / name).is_dir()


_JSONL = ("queries.jsonl", "qrels")
_LABELS = "*labels*.json"
LAYOUTS: dict[str, Layout] = {
    "gerdalir": Layout("collection.tsv", ("queries", "qrels"), read_gerdalir, add_gerdalir_documents),
    "beir": Layout("corpus.jsonl", _JSONL, read_beir, add_beir_documents),
    "structured": Layout("documents.jsonl", _JSONL, read_structured, add_structured_documents),
    "parquet": Layout("passages.parquet", ("queries.parquet", "qrels.parquet"), read_parquet, add_parquet_documents),
    "coliee": Layout(_LABELS, (_LABELS, "*.txt"), read_coliee, add_coliee_documents),
}


def open_collection(name: str | Path, layout: str | None = None) -> Collection:
    """Open a collection by its name or folder.

    Parameters
    ----------
    name : str or Path
        ``"pydocs"``, ``"ir_datasets:<id>"``, or a folder in one of the :data:`LAYOUTS`, also of documents alone.
    layout : str, optional
        One of :data:`LAYOUTS`, for a folder that fits several; None: found by its files.

    Raises
    ------
    InputError
        A folder that does not exist, that holds the files of no layout, or of more than one (give ``layout`` then);
        and what the readers refuse.
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
        passages = list(text) if isinstance(text, Sequence) and not isinstance(text, str) else [text]
        if not all(isinstance(passage, str) for passage in passages):
            raise InputError(f"document {doc_id!r}: expected a text or a list of passages, found {text!r}")
        builder.add_document(doc_id, passages)
    return builder.build()


def ir_datasets_id(name: str | Path) -> str | None:
    """The id in ``"ir_datasets:<id>"``, or None."""
    return str(name).removeprefix(PREFIX) if str(name).startswith(PREFIX) else None


def source_of(name: str | Path) -> str:
    """``name`` as :func:`open_collection` takes it from any working directory: a folder by its absolute path."""
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
    if found:
        raise InputError(f"{folder}: fits the layouts {', '.join(found)}; say which one with layout=")
    known = ", ".join(f"{layout.documents} ({name})" for name, layout in LAYOUTS.items())
    raise InputError(f"{folder}: no layout recognised; expected one of {known}, the first three plain or .gz")
