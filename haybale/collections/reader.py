"""Define the contract of readers: a class reads collections in one layout, and registers itself by its name.

A reader is found through an entry point of the group ``haybale.readers``, in which haybale declares its own, so adding
one touches its own file only.
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
    """Reads collections that have a name. For those in folders, subclass :class:`FolderReader`.

    Attributes
    ----------
    name : str
        The name of the layout, for ``open_collection(…, layout=name)`` and ``--layout``.
    expected : str
        What the reader recognises, for messages: a file, or the name of the collection.
    """

    name: ClassVar[str]
    expected: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a reader by its name; TypeError says what the class lacks."""
        super().__init_subclass__(**options)
        missing = undefined_methods(cls)
        named = "name" in cls.__dict__
        if not missing or named:
            missing += [attribute for attribute in ("name", "expected") if not hasattr(cls, attribute)]
            if missing:
                raise TypeError(f"the reader {cls.__name__} does not define {', '.join(missing)}")
        if named:
            READERS.add(cls.name, cls(), cls)

    @abstractmethod
    def recognises(self, source: str) -> bool:
        """Return whether a name or folder is a collection that this reader reads."""

    @abstractmethod
    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "refuse", warn: bool = True
    ) -> Collection:
        """Return the collection of that name or in that folder.

        Parameters
        ----------
        source : str
        queries : bool, default True
            Whether to read queries and judgements beside the documents.
        missing_judgements : {"refuse", "skip"}, default "refuse"
            Whether judgements of documents that do not exist are an error, or are skipped and counted.
        warn : bool, default True
            Whether to warn of passages and judgements that were left out.
        """


class FolderReader(Reader):
    """Reads folders, which it recognises by a file; a subclass defines :meth:`add_documents`.

    Attributes
    ----------
    expected : str
        The name of the file with the documents, which may also be gzipped.
    query_files : tuple of str
        Names of files and folders, without any of which a folder holds documents alone; default: queries are always
        read.
    """

    query_files: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        """Add all documents with their passages."""

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        """Add queries and judgements; a reader of documents alone does not define it."""

    def recognises(self, source: str) -> bool:
        return find_file(Path(source), self.expected) is not None

    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "refuse", warn: bool = True
    ) -> Collection:
        folder = Path(source)
        builder = CollectionBuilder(folder.name, missing_judgements=missing_judgements)
        with reading(folder):
            if not folder.is_dir():
                raise InputError(f"{folder}: no such folder")
            self.add_documents(builder, folder)
            found = [name for name in self.query_files if find_file(folder, name) or (folder / name).is_dir()]
            if queries and (found or not self.query_files):
                self.add_queries(builder, folder)
        return builder.build(warn=warn)
