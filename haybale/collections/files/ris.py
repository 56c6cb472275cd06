"""Split bibliographic records in RIS format into fields.

Files of several programs are often merged: a record has the names of its own tags, and ends at ``ER``, at the next
``TY`` or at the end of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.reference_fields import LIST_TAGS, SEPARATORS, name_of_tag
from haybale.collections.files.table_rows import Row
from haybale.collections.unread import UnreadPart

_ABSTRACTS = ("abstract", "notes_abstract")  # a record may have both
_LIST_NAMES = frozenset(map(name_of_tag, LIST_TAGS))
_TYPE, _END = "TY", "ER"
_MAX_LINES_BEFORE = 10  # lines with words before the first record, such as the name of a database
_TYPE_LINE = re.compile(r"\ufeff?TY {1,2}-(?: .*|\s*)")
_GUARDED_LINE = re.compile(" +[A-Z][A-Z0-9] {1,2}-")  # a line of a text that would be a tag without the space
_AFTER_END = "NL"  # Ovid writes this tag after ER, and before the next record its number
_RECORD_NUMBER = re.compile(r"\s*\d+\.\s*")


def is_ris(text: str) -> bool:
    """Return whether a text has records in RIS format, from its begin.

    >>> is_ris("Provider: EBSCO\\n\\nTY  - JOUR\\nTI  - Leases\\nER  - \\n"), is_ris("PMID- 17\\nTI  - Leases\\n")
    (True, False)
    """
    lines = (line for line in text[: 2**16].split("\n") if line.strip())
    return any(_TYPE_LINE.fullmatch(line) for line, _ in zip(lines, range(_MAX_LINES_BEFORE), strict=False))


def ris_records(text: str) -> Iterator[Row | UnreadPart]:
    """Yield the records of a text by the names of their tags, and what is wrong with some of them."""
    number, outside = 0, list[str]()
    for line, is_ended, fields in _split(text, outside):
        number += 1
        location = f"record {number} (line {line})"
        if not is_ended:
            yield UnreadPart(part=location, reason="it ends without ER; its text is read, but may be cut off")
        values: dict[str, list[str]] = {}
        for tag, value in fields:
            texts = value.split(SEPARATORS[tag]) if tag in SEPARATORS else [value]
            values.setdefault(name_of_tag(tag), []).extend(filter(None, map(str.strip, texts)))
        abstracts = [name for name in _ABSTRACTS if values.get(name)]
        if len(abstracts) > 1:
            values[abstracts[0]] = list(dict.fromkeys(text for name in abstracts for text in values.pop(name)))
        yield Row(
            location,
            {name: texts if name in _LIST_NAMES or len(texts) != 1 else texts[0] for name, texts in values.items()},
        )
    if outside:
        reason = f"{len(outside):,} lines that belong to no record, such as {outside[0]!r:.80}"
        yield UnreadPart(part="between the records", reason=reason)
    if not number:
        raise Unreadable("expected records in RIS format, found none")


def guarded(text: str) -> str:
    r"""Return a text for a field of RIS, in which no line begins like a tag; :func:`ris_records` restores it.

    >>> guarded("One line.\nTY  - is no tag here")
    'One line.\n TY  - is no tag here'
    """
    first, *lines = text.split("\n")
    return "\n".join([first, *(f" {line}" if _GUARDED_LINE.match(f" {line}") else line for line in lines)])


def _split(text: str, outside: list[str]) -> Iterator[tuple[int, bool, list[tuple[str, str]]]]:
    """Yield the first line of each record, whether it is ended by ER, and its tags with their texts.

    A tag that Ovid writes after ER belongs to the record before. Lines with words that belong to no record are appended
    to ``outside``.
    """
    spaces = "  " if re.search("^[A-Z][A-Z0-9]  -", text, re.M) else " "  # some programs write only one
    tag_line = re.compile(rf"([A-Z][A-Z0-9]){spaces}-(?: (.*)|\s*)")
    first, is_ended, fields = 0, False, list[tuple[str, str]]()
    for number, line in enumerate(text.split("\n"), 1):
        match = tag_line.fullmatch(line)
        tag, value = (match[1], match[2] or "") if match is not None else ("", "")
        is_end = tag == _END and not value.strip()
        begins_record = is_ended and match is not None and not is_end and tag != _AFTER_END
        if fields and (begins_record or (tag == _TYPE and any(other == _TYPE for other, _ in fields))):
            yield first, is_ended, fields
            fields, is_ended = [], False
        if is_end:
            is_ended = bool(fields)
        elif match is not None and tag != _END:
            first = first if fields else number
            fields.append((tag, value))
        elif fields and (not is_ended or (fields[-1][0] == _AFTER_END and not _RECORD_NUMBER.fullmatch(line))):
            tag, value = fields[-1]  # the text of a tag goes on
            fields[-1] = tag, f"{value}\n{line[1:] if _GUARDED_LINE.match(line) else line}"
        elif re.search(r"[^\W\d_]", line):
            outside.append(line.strip())
    if fields:
        yield first, is_ended, fields
