"""Find the file that a document of an engine was read from, as it was when it was read.

A document names its file, and ``files.json`` has the folder and the SHA-256 of each file. Only a file that has it is
returned, so that nothing else is ever shown in its place: neither a later version nor a file that a link leads to.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from haybale.collections.files.attachments import attached_content
from haybale.collections.files.file_document import FileContent
from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.page_picture import DRAWN_SUFFIXES
from haybale.collections.folder_listing import refuse_special_file
from haybale.collections.readers.files import content_of_file
from haybale.engine.engine import Engine
from haybale.engine.indexed_source import FILES, path_of
from haybale.errors import InputError
from haybale.text_files import read_json

MAX_BYTES = 2**28  # of a file that is returned


class OriginalFileError(InputError):
    """The file of a document is not there, has changed, or is not known."""


@dataclass(frozen=True)
class OriginalFile:
    """The file of a document.

    Parameters
    ----------
    name : str
        Its path relative to the folder that was indexed; that of an attachment ends with its name.
    path : Path
        The file on disk, which may be a zip file or a mail with it.
    recorded_name, file : str
        The names of the file on disk and of the file in it, if that is a zip file, in the index.
    signature : (int, int, str)
        The size, the time in nanoseconds and the SHA-256 of the file on disk when it was indexed.
    key : str, default ""
        Which document of the file it is, such as an attachment; empty if the file is the document.
    """

    name: str
    path: Path
    recorded_name: str
    file: str
    signature: tuple[int, int, str]
    key: str = ""

    @property
    def suffix(self) -> str:
        """The end of its name, in lower case: ``".pdf"``."""
        return PurePosixPath(self.name.lower()).suffix

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same for equal contents."""
        return self.signature[2], self.file, self.key

    @cached_property
    def content_digest(self) -> str:
        """The SHA-256 of the file in hexadecimal digits."""
        is_document = self._is_file_on_disk and not self.key
        return self.signature[2] if is_document else hashlib.sha256(self.read()).hexdigest()

    @property
    def _name_on_disk(self) -> str:
        return self.recorded_name or self.path.name

    @property
    def _is_file_on_disk(self) -> bool:
        """Whether the file is not in a zip file."""
        return self.file == self._name_on_disk

    def check(self) -> None:
        """Raise OriginalFileError if the file is not there, or is not the one that was indexed."""
        try:
            refuse_special_file(self.path)
            status = self.path.stat()
        except OSError:
            raise OriginalFileError(
                f"expected the file {self._name_on_disk!r} where it was indexed, found none; restore "
                "it, or run haybale index again"
            ) from None
        if status.st_size > MAX_BYTES:
            raise OriginalFileError(
                f"expected a file of at most {MAX_BYTES:,} bytes, found {self.recorded_name!r:.200} with "
                f"{status.st_size:,}; open it in its folder"
            )
        if (status.st_size, status.st_mtime_ns) != self.signature[:2] and self._digest() != self.signature[2]:
            raise self._changed()

    def read(self) -> bytes:
        """Return its content, which is the one that was indexed.

        Raises
        ------
        OriginalFileError
            If it is no longer there, has changed, or is larger than 256 MiB.
        """
        self.check()
        try:
            data = content_of_file(self.path, self.recorded_name, self.file)
            on_disk = hashlib.sha256(data).hexdigest() if self._is_file_on_disk else self._digest()
            if on_disk != self.signature[2]:
                raise self._changed()
        except (Unreadable, OSError, zipfile.BadZipFile, RuntimeError) as error:
            raise OriginalFileError(
                f"expected the file {self.file!r:.200} as it was indexed, found none: {error}; restore it, or run "
                "haybale index again"
            ) from error
        attached = attached_content(FileContent(self.file, data), self.key) if self.key else FileContent("", data)
        if attached is None:
            raise OriginalFileError(f"{self.key!r:.200} was not read from a file of its own; open {self.file!r:.200}")
        return attached.data

    def _digest(self) -> str:
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return ""

    def _changed(self) -> OriginalFileError:
        return OriginalFileError(
            f"expected the file {self._name_on_disk!r:.200} as it was indexed, found another "
            "version; run haybale index again"
        )


class OriginalFiles:
    """The files of the documents of an engine that was built from a folder of files.

    Several threads may use it at once.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._record: tuple[tuple[int, int, int], Mapping[str, Any]] | None = None

    def find(self, doc_id: str) -> OriginalFile:
        """Return the file that a document was read from; it is not looked for on disk yet.

        A document that was attached to another one as a file has that file. A row of a table has the table.

        Raises
        ------
        InputError
            For an unknown document.
        OriginalFileError
            If the engine does not know the file.
        """
        collection = self.engine.snapshot().collection
        (number,) = collection.document_numbers([doc_id]).tolist()
        columns = [] if collection.metadata is None else collection.metadata.column_names
        row = collection.metadata.slice(number, 1).to_pylist()[0] if collection.metadata is not None else {}
        record = self.record()
        if record is None:
            raise OriginalFileError(
                "expected an engine that haybale index has built from a folder of files, found another one, which does "
                "not know where its files are; build it with haybale index"
            )
        file = row.get("file") if "file" in columns else None
        recorded_name = None if file is None else path_of(str(file), record["files"].keys())
        signature = record["files"].get(recorded_name)
        if file is None or recorded_name is None or signature is None or not signature[2]:
            raise OriginalFileError(
                f"expected a document from the folder {record['source']}, found {doc_id!r:.200}, which was added in "
                "another way; put its file into the folder and run haybale index"
            )
        source = Path(record["source"])
        if not source.exists():
            raise OriginalFileError(
                f"expected the files at {source}, where they were indexed, found nothing; run haybale index with the "
                "folder where they are now, and the same --out: it is recorded, and files that are the same are not "
                "read again"
            )
        path = source if source.is_file() else source.joinpath(*recorded_name.split("/"))
        name, key = file_name_of(doc_id, row), _key_of(doc_id, row)
        return OriginalFile(name, path, recorded_name, str(file), (signature[0], signature[1], signature[2]), key)

    def is_drawable(self, doc_id: str, metadata: Mapping[str, Any]) -> bool:
        """Return whether a document is a file whose pages can be drawn, so far as the engine knows.

        Parameters
        ----------
        doc_id : str
        metadata : mapping
            Its metadata.
        """
        file = str(metadata.get("file") or "")
        name = _file_of_key(doc_id) if metadata.get("parent") else file
        return bool(file) and name.lower().endswith(DRAWN_SUFFIXES) and self.record() is not None

    def record(self) -> Mapping[str, Any] | None:
        """Return what the engine has recorded of its files; None if it was not built from a folder of files."""
        folder = self.engine.folder
        if folder is None:
            return None
        try:
            status = (folder / FILES).stat()
        except OSError:
            return None
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        cached = self._record
        if cached is None or cached[0] != stamp:
            record = read_json(folder / FILES)
            if not {"source", "files"} <= record.keys():
                return None
            cached = self._record = stamp, record
        return cached[1]


def file_name_of(doc_id: str, metadata: Mapping[str, Any]) -> str:
    """Return the name of the file of a document, with its path; that of an attachment ends with its own name.

    It is empty if the document was not read from a file.

    >>> file_name_of("a.eml:lease.pdf~1a2b3c4d", {"file": "a.eml", "parent": "a.eml"})
    'a.eml/lease.pdf'
    """
    file, key = str(metadata.get("file") or ""), _key_of(doc_id, metadata)
    return f"{file}/{_file_of_key(key)}" if key else file


def _key_of(doc_id: str, metadata: Mapping[str, Any]) -> str:
    """Return the key of a document that was attached to another one in its file; empty for others."""
    beginning = f"{metadata.get('file')}:"
    return doc_id.removeprefix(beginning) if metadata.get("parent") and doc_id.startswith(beginning) else ""


def _file_of_key(key: str) -> str:
    """Return the name of an attached file from the key of its document, which may end with a digest.

    >>> _file_of_key("lease.pdf~1a2b3c4d"), _file_of_key("forwarded/lease.pdf")
    ('lease.pdf', 'forwarded/lease.pdf')
    """
    name, tilde, digest = key.rpartition("~")
    return name if tilde and len(digest) == 8 and all(digit in "0123456789abcdef" for digit in digest) else key
