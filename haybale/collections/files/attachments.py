"""Read files that are in other files, as documents of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from haybale.collections.files.file_reader import FileDocument, no_reader, read_documents, reader_of
from haybale.collections.unread import UnreadPart


def read_attachments(
    files: Iterable[tuple[str, bytes]], columns: Mapping[str, str], noun: str = "attachment"
) -> Iterator[FileDocument | UnreadPart]:
    """Yield the documents of files in a file, and what was not read of them.

    The key of such a document begins with the name of its file; names that several contents have get a digest of the
    content. The same content under the same name is one document.

    Parameters
    ----------
    files : iterable of (str, bytes)
        The name and the content of each file.
    columns : mapping
        As for :meth:`FileReader.read <haybale.collections.files.file_reader.FileReader.read>`.
    noun : str, default "attachment"
        What such a file is called in the list of what was not read.
    """
    contents_by_name: dict[str, dict[bytes, None]] = {}
    for name, content in files:
        contents_by_name.setdefault(name, {})[content] = None
    for name, contents in contents_by_name.items():
        for content in contents:
            key = name if len(contents) == 1 else f"{name}~{hashlib.sha256(content).hexdigest()[:8]}"
            location, reader = f"{noun} {key}", reader_of(name)
            if reader is None:
                yield UnreadPart(part=location, reason=no_reader(name))
                continue
            documents, unread = read_documents(reader, content, columns)
            for document in documents:
                document.key = "/".join(filter(None, [key, document.key]))
                document.location = ", ".join(filter(None, [location, document.location]))
                document.title = document.title or name
                yield document
            yield from (part.within(location) for part in unread)
