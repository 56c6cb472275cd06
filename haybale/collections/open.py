"""Opens a collection by name or folder; a folder's layout is recognised by its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.ids import distinct_ids
from haybale.collections.readers import beir, coliee, frames, gerdalir, ir_datasets, structured
from haybale.collections.readers.pydocs import read_pydocs
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame
from haybale.text_files import find_file, reading

Documents: TypeAlias = "Collection | Frame | Mapping[str, str | Sequence[str]] | str | Path"
Add: TypeAlias = "Callable[[CollectionBuilder, Path], None]"


class Layout(NamedTuple):
    """``documents`` is the file by which a folder is recognised; without one of ``queries`` it has documents alone."""

    documents: str
    queries: tuple[str, ...]
    add_documents: Add
    add_queries: Add


_JSONL = ("queries.jsonl", "qrels")
_LABELS = "*labels*.json"
LAYOUTS: dict[str, Layout] = {
    "gerdalir": Layout("collection.tsv", ("queries", "qrels"), gerdalir.add_documents, gerdalir.add_queries),
    "beir": Layout("corpus.jsonl", _JSONL, beir.add_documents, beir.add_queries),
    "structured": Layout("documents.jsonl", _JSONL, structured.add_documents, beir.add_queries),
    "parquet": Layout(
        "passages.parquet", ("queries.parquet", "qrels.parquet"), frames.add_documents, frames.add_queries
    ),
    "coliee": Layout(_LABELS, (_LABELS, "*.txt"), coliee.add_documents, coliee.add_queries),
}


def open_collection(name: str | Path, layout: str | None = None, *, missing_judgements: str = "refuse") -> Collection:
    """Open a collection by its name or folder.

    Parameters
    ----------
    name : str or Path
        ``"pydocs"``, ``"ir_datasets:<id>"``, or a folder in one of the :data:`LAYOUTS`, also of documents alone.
    layout : str, optional
        One of :data:`LAYOUTS`, for a folder that fits several; None: found by its files.
    missing_judgements : {"refuse", "skip"}, default "refuse"
        Whether judgements of documents that a folder does not have are an error, or are left out and counted. (What
        ir_datasets has of them is always left out and counted.)

    Raises
    ------
    InputError
        A folder that does not exist, that holds the files of no layout, or of more than one (give ``layout`` then);
        and what the readers refuse.
    """
    return _opened(name, layout, missing_judgements=missing_judgements)


def read_documents(source: str | Path | Collection, layout: str | None = None, *, warn: bool = True) -> Collection:
    """The documents of a collection; of a folder, or a dataset of ir_datasets, without queries and judgements."""
    return source if isinstance(source, Collection) else _opened(source, layout, queries=False, warn=warn)


def _opened(
    name: str | Path,
    layout: str | None,
    queries: bool = True,
    warn: bool = True,
    missing_judgements: str = "refuse",
) -> Collection:
    if name == "pydocs":
        return read_pydocs()
    if str(name).startswith(ir_datasets.PREFIX):
        dataset_id = str(name).removeprefix(ir_datasets.PREFIX)
        builder = CollectionBuilder(dataset_id)
        with ir_datasets.asking(dataset_id):
            ir_datasets.add_documents(builder, dataset_id)
            if queries:
                ir_datasets.add_queries(builder, dataset_id)
        return builder.build(warn=warn)
    folder = Path(name)
    with reading(folder):
        found = _find_layout(folder, layout)
        builder = CollectionBuilder(folder.name, missing_judgements=missing_judgements)
        found.add_documents(builder, folder)
        if queries and any(_has(folder, file) for file in found.queries):
            found.add_queries(builder, folder)
    return builder.build(warn=warn)


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
        return frames.documents_from_frame(given)
    builder = CollectionBuilder("documents")
    for doc_id, text in zip(distinct_ids(given, "document ids"), given.values(), strict=True):
        passages = list(text) if isinstance(text, Sequence) and not isinstance(text, str) else [text]
        if not all(isinstance(passage, str) for passage in passages):
            raise InputError(f"document {doc_id!r}: expected a text or a list of passages, found {text!r}")
        builder.add_document(doc_id, passages)
    return builder.build()


def source_of(name: str | Path) -> str:
    """``name`` as :func:`open_collection` takes it from any working directory: a folder by its absolute path."""
    is_folder = name != "pydocs" and not str(name).startswith(ir_datasets.PREFIX)
    return str(Path(name).absolute() if is_folder else name)


def _has(folder: Path, name: str) -> bool:
    """Whether there is such a file, plain or ``.gz``, or folder, or (for a pattern) file in it or its folders."""
    if "*" in name:
        return bool(coliee.files_in(folder, name))
    return find_file(folder, name) is not None or (folder / name).is_dir()


def _find_layout(folder: Path, layout: str | None) -> Layout:
    """The layout of that name, or the one whose files the folder has."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected 'pydocs' or the folder of a collection")
    if layout is not None:
        if layout not in LAYOUTS:
            raise UnknownNameError("layout", layout, LAYOUTS)
        return LAYOUTS[layout]
    found = [name for name, known in LAYOUTS.items() if _has(folder, known.documents)]
    if len(found) == 1:
        return LAYOUTS[found[0]]
    if found:
        raise InputError(f"{folder}: fits the layouts {', '.join(found)}; say which one with layout=")
    known = ", ".join(f"{layout.documents} ({name})" for name, layout in LAYOUTS.items())
    raise InputError(f"{folder}: no layout recognised; expected one of {known}, the first three plain or .gz")
