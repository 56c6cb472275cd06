"""Read bibliographic records in RIS format: a record is a document.

rispy knows the meaning of the tags. Records are split here, since files of several programs are often merged: a record
has the names of its own tags, and ends at ``ER``, at the next ``TY`` or at the end of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import EXTRA, FileReader, Unreadable
from haybale.collections.files.table_rows import Row, documents_of_rows
from haybale.collections.unread import UnreadPart
from haybale.extras import import_optional

_ABSTRACTS = ("abstract", "notes_abstract")  # a record may have both
_TYPE, _END = "TY", "ER"


class RIS(FileReader):
    """Reader of ``.ris`` files, as reference managers and screening programs export them."""

    name = "ris"
    suffixes = (".ris",)
    packages = ("rispy",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_rows(records_of(data), options)


def records_of(data: bytes) -> Iterator[Row | UnreadPart]:
    """Yield the records of a file by rispy's names of their tags, and what is wrong with some of them."""
    config = import_optional("rispy.config", EXTRA)
    names: Mapping[str, str] = config.TAG_KEY_MAPPING
    decoded = decode_text(data)
    yield from decoded.unread
    number, outside = 0, list[str]()
    for line, is_ended, fields in _split(decoded.text, outside):
        number += 1
        location = f"record {number} (line {line})"
        if not is_ended:
            yield UnreadPart(part=location, reason="it ends without ER; its text is read, but may be cut off")
        values: dict[str, list[str]] = {}
        for tag, text in fields:
            texts = text.split(config.DELIMITED_TAG_MAPPING[tag]) if tag in config.DELIMITED_TAG_MAPPING else [text]
            if tag != _TYPE:
                values.setdefault(names.get(tag, tag), []).extend(filter(None, map(str.strip, texts)))
        list_names = {names[tag] for tag in config.LIST_TYPE_TAGS} | {
            names[tag] for tag in config.DELIMITED_TAG_MAPPING
        }
        abstracts = [name for name in _ABSTRACTS if values.get(name)]
        if len(abstracts) > 1:
            values[abstracts[0]] = list(dict.fromkeys(text for name in abstracts for text in values.pop(name)))
        yield Row(
            location,
            {name: texts if name in list_names or len(texts) != 1 else texts[0] for name, texts in values.items()},
        )
    if outside:
        reason = f"{len(outside):,} lines that belong to no record, such as {outside[0]!r:.80}"
        yield UnreadPart(part="between the records", reason=reason)
    if not number:
        raise Unreadable("expected records in RIS format, found none")


def _split(text: str, outside: list[str]) -> Iterator[tuple[int, bool, list[tuple[str, str]]]]:
    """Yield the first line of each record, whether it is ended by ER, and its tags with their texts.

    Lines with words that belong to no record are appended to ``outside``.
    """
    spaces = "  " if re.search("^[A-Z][A-Z0-9]  -", text, re.M) else " "  # some programs write only one
    tag_line = re.compile(rf"([A-Z][A-Z0-9]){spaces}-(?: (.*)|\s*)")
    first, fields = 0, list[tuple[str, str]]()
    for number, line in enumerate(text.split("\n"), 1):
        match = tag_line.fullmatch(line)
        tag, value = (match[1], match[2] or "") if match is not None else ("", "")
        if tag == _END and not value.strip():
            if fields:
                yield first, True, fields
            fields = []
        elif match is not None and tag != _END:
            if tag == _TYPE and any(other == _TYPE for other, _ in fields):
                yield first, False, fields
                fields = []
            first = first if fields else number
            fields.append((tag, value))
        elif fields:  # the text of a tag goes on
            tag, value = fields[-1]
            fields[-1] = tag, f"{value}\n{line}"
        elif re.search(r"[^\W\d_]", line):
            outside.append(line.strip())
    if fields:
        yield first, False, fields
