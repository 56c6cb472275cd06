"""What a file reader yields: documents of a file, made of paragraphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class FileContent(NamedTuple):
    """A file by its name and its bytes."""

    name: str
    data: bytes


@dataclass
class Part:
    """A paragraph with the page, counted from 1, or the heading that it stands under.

    A part without a text is the heading itself: readers yield one for each heading, so that headings are searched, also
    those that another heading or nothing follows. ``by_ocr`` says that its text was recognised in a picture.
    """

    text: str
    page: int | None = None
    heading: str | None = None
    by_ocr: bool = False


@dataclass
class FileDocument:
    """A document that was read from a file.

    ``key`` distinguishes several documents of one file, such as attachments; None if the file is one document.
    ``record_keys`` are the keys by which a record of a table can be recognised in other versions of its file, the best
    first (:func:`~haybale.collections.files.record_keys.keys_of_row`); None if it is no record. The ``key`` of a record
    is made from them when its file has been read. ``table`` is the sheet of a record, if its file has several.
    ``own_id`` is the id that a record has itself, in place of the file's path and the key. ``location`` names the part
    of the file that it is, such as ``"row 7"``, for the list of what was not read. ``attached_to`` is the key of the
    document that it was attached to, an empty text for the one without a key, and None if it was not attached.
    ``content`` is the file that was attached, if the contents are asked for by ``attached_content``.
    """

    parts: list[Part]
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    own_id: str | None = None
    record_keys: tuple[str, ...] | None = None
    table: str = ""
    location: str = ""
    attached_to: str | None = None
    content: FileContent | None = None
