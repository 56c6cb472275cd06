"""Define the interface of file readers: each class reads the files of one format, and registers itself by its name.

File readers are found through the entry points of the group ``haybale.file_readers``, so adding a format needs only a
new file.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.record_keys import with_record_keys
from haybale.collections.unread import UnreadPart
from haybale.errors import MissingExtraError, UnknownNameError
from haybale.extras import import_optional
from haybale.registry import Registry, undefined_methods
from haybale.returned_values import method_of, wrong_value

FILE_READERS: Registry[FileReader] = Registry("file format", "haybale.file_readers")
EXTRA = "documents"  # the extra that installs the packages of file readers
# The options of readers, with the values that they may have; None for any text.
OPTIONS: dict[str, tuple[str, ...] | None] = {
    "text": None,
    "id": None,
    "title": None,
    "html": ("all-text", "main-text"),
    "ocr": ("never", "missing", "all"),
    "ocr_languages": None,
}


class Unreadable(Exception):
    """A file that cannot be read, or not to its end; the message is the reason, which is listed."""


class _WrongItem(Exception):
    """A reader, not the file, is wrong: it yielded or returned an object of another type."""

    def __init__(self, item: object) -> None:
        super().__init__()
        self.item = item


def check_options(options: Mapping[str, str]) -> None:
    """Raise UnknownNameError for an option that no reader has, or a value that it cannot have."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise UnknownNameError("option of file readers", name, OPTIONS)
        values = OPTIONS[name]
        if values is not None and value not in values:
            raise UnknownNameError(f"value of {name}", value, values)


class FileReader(ABC):
    """Base class of readers of files.

    Attributes
    ----------
    name : str
        The name of the format.
    suffixes : tuple of str
        The ends of the names of its files, in lower case: ``(".pdf",)``.
    packages : tuple of str
        The modules that reading needs, which the extra ``documents`` installs. By default none.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    packages: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a reader by its name; raise TypeError if the class lacks a method or attribute."""
        super().__init_subclass__(**options)
        missing = undefined_methods(cls) + [name for name in ("name", "suffixes") if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"the file reader {cls.__name__} must define {', '.join(missing)}; add them to the class")
        FILE_READERS.add(cls.name, cls(), cls)

    def check_packages(self) -> None:
        """Raise :class:`~haybale.errors.MissingExtraError` if a package is not installed."""
        for package in self.packages:
            import_optional(package, EXTRA)

    @abstractmethod
    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        """Yield the documents of a file, and the parts that were not read.

        All text that a person sees in the final view of the file is in the documents, once; what is not is yielded as
        an :class:`~haybale.collections.unread.UnreadPart`.

        Parameters
        ----------
        data : bytes
            The content of the file.
        options : mapping
            What the user has chosen by the names of options: for tables, the columns ``text``, ``id`` and ``title``;
            for web pages, ``html``; for scans, ``ocr`` and ``ocr_languages``. A reader ignores the others.

        Raises
        ------
        Unreadable
            If the file is encrypted, or is not what was expected: the rest of it is listed as not read. Errors of other
            types, such as those of the libraries for damaged files, need not be caught: :func:`read_documents` does.
        """


def read_documents(
    reader: FileReader, data: bytes, options: Mapping[str, str]
) -> tuple[list[FileDocument], list[UnreadPart]]:
    """Return the documents of a file that could be read, and the parts that could not be read, or the whole file.

    Libraries raise errors of many types for damaged files, so any error is the reason for this file alone.
    """
    documents: list[FileDocument] = []
    if not data.strip(b"\x00\t\n\r "):
        return documents, [UnreadPart(reason="empty")]
    unread: list[UnreadPart] = []
    problem = _read_into(documents, unread, reader, data, options)
    if problem is not None:
        unread.append(UnreadPart(reason=problem))
    with_record_keys(documents)
    return documents, unread


def _read_into(
    documents: list[FileDocument],
    unread: list[UnreadPart],
    reader: FileReader,
    data: bytes,
    options: Mapping[str, str],
) -> str | None:
    """Append the documents of a file and the parts that were not read; return why reading ended before its end."""
    try:
        items: Any = reader.read(data, options)
        if not isinstance(items, Iterable):
            raise _WrongItem(items)
        for item in items:
            if isinstance(item, UnreadPart):
                unread.append(item)
            elif not isinstance(item, FileDocument):
                raise _WrongItem(item)
            elif any(part.text or part.heading for part in item.parts):
                documents.append(item)
            else:
                unread.append(UnreadPart(part=item.location, reason="no text"))
    except _WrongItem as error:
        expected = "an iterable of FileDocument and UnreadPart"
        raise wrong_value(error.item, method_of(reader, "read"), expected, "yield one for each document") from None
    except Unreadable as error:
        return str(error)
    except MissingExtraError as error:  # raised for a page in a mail: only the packages of the mail reader were checked
        return str(error)
    except Exception as error:
        about = " ".join(str(error).split())
        return f"damaged, or not a file of the format {reader.name} ({type(error).__name__}: {about:.200})"
    return None if documents or unread else "no text"


def reader_of(name: str) -> FileReader | None:
    """Return the reader of a file by the end of its name, or None."""
    lowered = name.lower()
    readers = [reader for _, reader in FILE_READERS.items()]
    return next((reader for reader in readers if lowered.endswith(reader.suffixes)), None)


def no_reader(name: str) -> str:
    """Return the reason for a file that no reader reads.

    >>> no_reader("photo.heic"), no_reader("README")
    ("no reader for files that end in '.heic'", 'no reader for files without an ending')
    """
    suffix = PurePosixPath(name).suffix
    return f"no reader for files that end in {suffix!r}" if suffix else "no reader for files without an ending"


def paragraphs_of(text: str) -> list[str]:
    """Split a text into paragraphs at blank lines.

    >>> paragraphs_of("One\\ntwo.\\n\\n  \\nThree.")
    ['One\\ntwo.', 'Three.']
    """
    return [part.strip() for part in re.split(r"\n[ \t\f]*\n", text) if part.strip()]
