"""Say which parts of files were not read, and why: a page, an attachment, a sheet, a row, or a whole file.

File readers yield an :class:`UnreadPart` beside the documents that they read. It goes up with these documents: to
:attr:`Collection.unread <haybale.collections.Collection>`, to :attr:`Engine.unread <haybale.Engine.unread>`, and to
``skipped.csv`` in the folder of an engine.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_file
from haybale.spreadsheets import as_cell, from_cell
from haybale.text_files import reading

UNREAD_FILE = "skipped.csv"  # in the folder of an engine
_COLUMNS = ("file", "reason", "part")


@dataclass(frozen=True, kw_only=True)
class UnreadPart:
    """A part of a file whose text is not in the index, or is there with a reservation, and the reason.

    Parameters
    ----------
    file : str, default ""
        The path of the file, relative to its folder. File readers leave it empty.
    part : str, default ""
        The part, from the outside to the inside: ``"attachment fees.xlsx, sheet Costs, row 7"``. Empty for the whole
        file.
    reason : str
        What was expected or found, and what helps.

    Examples
    --------
    >>> scan = UnreadPart(part="page 3", reason="no text")
    >>> print(scan.within("attachment lease.pdf").of_file("mail.eml"))
    mail.eml, attachment lease.pdf, page 3: no text
    """

    file: str = ""
    part: str = ""
    reason: str

    @property
    def location(self) -> str:
        """The file and the part."""
        return ", ".join(filter(None, (self.file, self.part)))

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}"

    def within(self, outer: str) -> UnreadPart:
        """Return this part as one of an outer part of the same file."""
        return replace(self, part=", ".join(filter(None, (outer, self.part))))

    def of_file(self, file: str) -> UnreadPart:
        """Return this part as one of the given file."""
        return replace(self, file=file)


def counted(unread: Iterable[UnreadPart]) -> str:
    """Return how many files, and how many parts of others, were not read.

    >>> pages = [UnreadPart(file="a.pdf", part=f"page {n}", reason="no text") for n in (1, 2)]
    >>> counted(pages), counted([*pages, UnreadPart(file="b.doc", reason="no reader")])
    ('2 parts of 1 file', '1 file and 2 parts of 1 other file')
    """
    unread = list(unread)
    files = {part.file for part in unread if not part.part}
    parts = [part for part in unread if part.file not in files]
    n_others = len({part.file for part in parts})
    of_files = f"{_n(len(files), 'file')}" if files or not parts else ""
    of_parts = f"{_n(len(parts), 'part')} of {_n(n_others, 'other file' if files else 'file')}" if parts else ""
    return " and ".join(filter(None, (of_files, of_parts)))


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def refuse_unread(source: Path, unread: Sequence[UnreadPart]) -> None:
    """Raise :class:`InputError` if anything could not be read."""
    if unread:
        first = unread[0]
        raise InputError(
            f"{source}: {counted(unread)} could not be read, such as {first.location!r} ({first.reason}), "
            "but strict needs all; correct or remove them"
        )


def sorted_parts(unread: Iterable[UnreadPart]) -> list[UnreadPart]:
    """Return distinct parts, sorted by file and part; page 9 is before page 10."""

    def key(part: UnreadPart) -> tuple[str, str, str, str]:
        of_equal_length = re.sub("[0-9]+", lambda number: number[0].zfill(20), part.part)
        return part.file, of_equal_length, part.part, part.reason

    return sorted(set(unread), key=key)


def write_unread(folder: Path, unread: Iterable[UnreadPart]) -> None:
    """Write what was not read to ``skipped.csv`` in a folder, sorted; delete the file if everything was read."""
    rows = sorted_parts(unread)
    if not rows:
        (folder / UNREAD_FILE).unlink(missing_ok=True)
        return
    with whole_file(folder / UNREAD_FILE) as file:
        values = ([as_cell(getattr(part, name)) for name in _COLUMNS] for part in rows)
        csv.writer(file).writerows([_COLUMNS, *values])


def read_unread(folder: Path) -> list[UnreadPart]:
    """Return what :func:`write_unread` wrote to a folder; nothing if there is no such file."""
    path = folder / UNREAD_FILE
    try:
        status = path.stat()
    except FileNotFoundError:
        return []
    return list(_read(path, status.st_mtime_ns, status.st_ino, status.st_size))


@lru_cache(maxsize=8)
def _read(path: Path, changed: int, inode: int, size: int) -> tuple[UnreadPart, ...]:
    """Read the file once for each content, which the other arguments tell apart."""
    try:
        with reading(path), path.open(encoding="utf-8", newline="") as file:
            rows = [{name: from_cell(value or "") for name, value in row.items()} for row in csv.DictReader(file)]
            # Engines of earlier versions have no column "part".
            parts = (UnreadPart(file=row["file"], part=row.get("part", ""), reason=row["reason"]) for row in rows)
            return tuple(parts)
    except (csv.Error, KeyError, AttributeError) as error:
        raise FileFormatError(
            path, None, f"expected the columns {', '.join(_COLUMNS)}, found others ({error}); index the files again"
        ) from error
