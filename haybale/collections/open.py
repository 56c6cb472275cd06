"""Open a collection by its name or folder; the layout of a folder is recognised by its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.ids import distinct_ids
from haybale.collections.reader import READERS, FolderReader, Reader
from haybale.errors import InputError
from haybale.frames import Frame
from haybale.returned_values import method_of, returned
from haybale.text_files import reading

Documents: TypeAlias = "Collection | Frame | Mapping[str, str | Sequence[str] | Mapping[str, Any]] | str | Path"


def open_collection(name: str | Path, layout: str | None = None, *, missing_judgements: str = "refuse") -> Collection:
    """Open a collection by its name or folder.

    Parameters
    ----------
    name : str or Path
        ``"pydocs"``, ``"ir_datasets:<id>"``, or a folder in the layout of one of the
        :data:`~haybale.collections.READERS`. The folder may contain documents only.
    layout : str, optional
        The name of a reader. By default the layout is recognised by the files; set it if a folder fits several.
    missing_judgements : {"refuse", "skip"}, default "refuse"
        What to do with judgements of documents that are not in the folder: raise an error, or skip them and count
        them in one warning. Judgements of ir_datasets are always skipped and counted.

    Raises
    ------
    InputError
        The folder does not exist, or it fits no layout or several.
    FileFormatError
        A file is not in the format of its layout.
    """
    reader = find_reader(name, layout)
    return _checked(reader, reader.read(str(name), missing_judgements=missing_judgements))


def read_documents(source: str | Path | Collection, layout: str | None = None, *, warn: bool = True) -> Collection:
    """Return the documents of a collection; the queries and judgements of a folder or dataset are not read."""
    if isinstance(source, Collection):
        return source
    reader = find_reader(source, layout)
    return _checked(reader, reader.read(str(source), queries=False, warn=warn))


def _checked(reader: Reader, collection: Any) -> Collection:
    return returned(collection, Collection, method_of(reader, "read"), "return builder.build()")


def open_documents(given: Documents) -> Collection:
    """Return documents in any form as a collection.

    The documents are a collection, a folder, a frame, or a mapping of ids to texts, lists of passages, or mappings with
    ``text``, optionally ``title``, and metadata.

    >>> open_documents({"a": "Dogs bark.", "b": ["Taxes are due.", "In May."], "c": {"text": "Cats.", "year": 2015}})
    Collection 'documents': 3 documents, 4 passages, 0 queries ()
    """
    from haybale.collections.readers.parquet_folder import documents_from_frame

    if isinstance(given, Collection):
        return given
    if isinstance(given, str | Path):
        return open_collection(given)
    if not isinstance(given, Mapping):
        return documents_from_frame(given)
    builder = CollectionBuilder("documents")
    for doc_id, document in zip(distinct_ids(given, "document ids"), given.values(), strict=True):
        fields: dict[str, Any] = dict(document) if isinstance(document, Mapping) else {"text": document}
        text, title = fields.pop("text", None), fields.pop("title", "")
        passages = list(text) if isinstance(text, Sequence) and not isinstance(text, str) else [text]
        if not all(isinstance(passage, str) for passage in (*passages, title)):
            raise InputError(
                f"document {doc_id!r}: expected a text, a list of passages, or these as 'text' beside metadata, found "
                f"{document!r:.80}"
            )
        builder.add_document(doc_id, passages, title, metadata=fields)
    return builder.build()


def source_of(name: str | Path) -> str:
    """Return a name that opens the same collection from any working directory; a folder becomes an absolute path."""
    return str(name) if _named_reader(name) is not None else str(Path(name).absolute())


def _named_reader(source: str | Path) -> Reader | None:
    """Return the reader of a collection that is not a folder, such as ``"pydocs"``, or None."""
    readers = [reader for _, reader in READERS.items()]
    named = (reader for reader in readers if not isinstance(reader, FolderReader) and not reader.fallback)
    return next((reader for reader in named if reader.recognises(str(source))), None)


def find_reader(source: str | Path, layout: str | None = None) -> Reader:
    """Return the reader of a collection, which is given by name or recognised by its files."""
    if (named := _named_reader(source)) is not None:
        return named
    if layout is not None:
        return READERS[layout]
    all_readers = [reader for _, reader in READERS.items()]
    readers = [reader for reader in all_readers if isinstance(reader, FolderReader)]
    folder = Path(source)
    with reading(folder):
        if not folder.exists():
            raise InputError(f"{folder}: no such folder; give 'pydocs' or a folder with documents")
        matching: list[Reader] = [reader for reader in readers if reader.recognises(str(source))]
        matching = matching or [reader for reader in all_readers if reader.fallback and reader.recognises(str(source))]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(reader.name for reader in matching)
        raise InputError(f"{folder}: expected one layout, found files of {names}; choose one with layout=")
    layouts = ", ".join(f"{reader.expected} ({reader.name})" for reader in readers)
    raise InputError(f"{folder}: found no document; add files such as .txt or .pdf, or one of {layouts}")
