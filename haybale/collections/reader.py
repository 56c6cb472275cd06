"""Define the interface of readers: each class reads collections in one layout, and registers itself by its name.

Readers are found through the entry points of the group ``haybale.readers``, so adding one needs only a new file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.errors import InputError
from haybale.registry import Registry, undefined_methods
from haybale.text_files import find_file, reading

READERS: Registry[Reader] = Registry("layout", "haybale.readers")


class Reader(ABC):
    """Base class of readers of named collections. For collections in folders, subclass :class:`FolderReader`.

    Attributes
    ----------
    name : str
        The name of the layout, for ``open_collection(…, layout=name)`` and ``--layout``.
    expected : str
        The file or the name that the reader recognises, shown in error messages.
    fallback : bool
        Whether the reader only reads what no other reader recognises. By default False.
    """

    name: ClassVar[str]
    expected: ClassVar[str]
    fallback: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a reader by its name; raise TypeError if the class lacks a method or attribute."""
        super().__init_subclass__(**options)
        missing = undefined_methods(cls)
        named = "name" in cls.__dict__
        if not missing or named:
            missing += [attribute for attribute in ("name", "expected") if not hasattr(cls, attribute)]
            if missing:
                raise TypeError(f"the reader {cls.__name__} must define {', '.join(missing)}; add them to the class")
        if named:
            READERS.add(cls.name, cls(), cls)

    @abstractmethod
    def recognises(self, source: str) -> bool:
        """Return whether this reader can read the given name or folder."""

    @abstractmethod
    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "refuse", warn: bool = True
    ) -> Collection:
        """Read the collection with the name, or in the folder, ``source``.

        ``queries=False`` reads only documents. ``missing_judgements`` is that of :func:`open_collection`.
        ``warn=False`` suppresses warnings about passages and judgements that were left out.
        """


class FolderReader(Reader):
    """Base class of readers of folders, which are recognised by a file; a subclass defines :meth:`add_documents`.

    Attributes
    ----------
    expected : str
        The name of the file with the documents; it may be gzipped.
    query_files : tuple of str
        Names of files and folders with queries. If none of them exists, only documents are read. By default empty:
        queries are always read.
    """

    query_files: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        """Add all documents with their passages to the builder."""

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        """Add queries and judgements to the builder; a reader of documents only does not need to define it."""

    def recognises(self, source: str) -> bool:
        return find_file(Path(source), self.expected) is not None

    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "refuse", warn: bool = True
    ) -> Collection:
        folder = Path(source)
        builder = CollectionBuilder(folder.name, missing_judgements=missing_judgements)
        with reading(folder):
            if not folder.is_dir():
                raise InputError(f"{folder}: no such folder; give the folder of a collection")
            self.add_documents(builder, folder)
            query_parts = [name for name in self.query_files if find_file(folder, name) or (folder / name).is_dir()]
            if queries and (query_parts or not self.query_files):
                self.add_queries(builder, folder)
        return builder.build(warn=warn)
