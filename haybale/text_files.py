"""Read plain or gzipped text files: lines, tables and JSON. Errors name the file and the line.

Files are read line by line, so a collection may be larger than memory. Single lines, and files that are one text or
one JSON value, must fit into memory; larger ones are refused while they are read (:data:`MAX_LINE`, :data:`MAX_TEXT`).
"""

from __future__ import annotations

import errno
import gzip
import json
import math
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from haybale.delimited_table import read_delimited
from haybale.errors import FileFormatError, HaybaleError, InputError, StoreError

STDIN = Path("-")

MAX_LINE = 2**27  # bytes of one line: 128 MiB, such as one document in a .jsonl file
MAX_TEXT = 2**28  # bytes of one text or JSON value: 256 MiB
_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_DIGITS = 4000  # of a whole number; Python converts no more than 4,300
_BYTES_PER_READ = 2**17  # bytes that are read and unpacked at once


def find_file(folder: Path, name: str) -> Path | None:
    """Return ``folder/name`` if it exists, else ``folder/name.gz`` if it exists, else None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def need_file(folder: Path, name: str) -> Path:
    """Return ``folder/name`` or ``folder/name.gz``; if both are missing, raise :class:`InputError`."""
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder}: expected a file {name} or {name}.gz, found neither")
    return path


def refuse_too_many_open_files(path: Path | str, error: BaseException) -> None:
    """Raise :class:`StoreError` if a file could not be opened because too many files are open; it is not damaged."""
    number = getattr(error, "errno", None)
    text = str(error)
    if number in (errno.EMFILE, errno.ENFILE) or "(os error 24)" in text or "Too many open files" in text:
        raised = StoreError(
            f"{path}: cannot be opened, since this process has too many open files; close engines that it does not "
            "need, or raise the limit (ulimit -n)"
        )
        raised.errno = errno.EMFILE
        raise raised from error


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Convert errors of the file system to a :class:`FileFormatError` that names the file."""
    try:
        yield
    except HaybaleError:
        raise
    except FileNotFoundError as error:
        raise FileFormatError(path, None, f"no such file; check the name {Path(path).name!r}") from error
    except OSError as error:
        refuse_too_many_open_files(path, error)
        raise FileFormatError(path, None, f"cannot be read: {error.strerror or error}; give a readable file") from error


@contextmanager
def _opened(path: Path, line_counter: list[int]) -> Iterator[Any]:
    """Open a file, unpacked, for reading bytes; :data:`STDIN` is standard input.

    Errors of reading and of decoding name the line ``line_counter[0]``, which the caller counts.
    """
    name = "stdin" if path == STDIN else path
    with reading(path), nullcontext(_stdin()) if path == STDIN else path.open("rb") as file:
        try:
            packed = path.suffix == ".gz"
            yield BufferedReader(cast(Any, gzip.GzipFile(fileobj=file)), _BYTES_PER_READ) if packed else file
        except (EOFError, zlib.error) as error:
            message = f"expected gzip data, found a truncated or damaged file after {line_counter[0]:,} lines"
            raise FileFormatError(path, line_counter[0], message) from error
        except gzip.BadGzipFile as error:
            raise FileFormatError(
                path, line_counter[0] or None, f"expected gzip data, found other data: {error}"
            ) from error
        except UnicodeDecodeError as error:
            message = f"expected UTF-8 text, found byte 0x{error.object[error.start]:02x} ({error.reason})"
            raise FileFormatError(name, line_counter[0], message) from error


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("the queries '-' must come from 'stdin', which is closed; give a file instead")
    return sys.stdin.buffer


def _too_long(limit: int) -> str:
    return f"of at most {limit // 2**20:,} MiB ({limit:,} bytes after unpacking), found more"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line without its end)`` of every line of a UTF-8 file that is not blank.

    A line of more than :data:`MAX_LINE` bytes is an error.
    """
    line_counter = [0]
    with _opened(path, line_counter) as lines:
        while data := lines.readline(MAX_LINE + 1):  # only "\n" ends a line: passages may contain other line breaks
            line_counter[0] += 1
            if len(data) > MAX_LINE:
                name = "stdin" if path == STDIN else path
                raise FileFormatError(name, line_counter[0], f"expected a line {_too_long(MAX_LINE)}; split it")
            line = data.decode()
            if line_counter[0] == 1:
                line = line.removeprefix("\ufeff")  # the byte order mark
            if line and not line.isspace():
                yield line_counter[0], line.rstrip("\r\n")
            elif data == b"\n" and hasattr(lines, "peek"):
                line_counter[0] += _skip_ends(lines)


def _skip_ends(lines: Any) -> int:
    """Skip line ends, of which a small packed file may have billions; return their number."""
    n_skipped = 0
    while n := len(block := lines.peek(1)) - len(block.lstrip(b"\n")):
        n_skipped += len(lines.read(n))
    return n_skipped


def read_text(path: Path, limit: int = MAX_TEXT) -> str:
    """Return the text of a UTF-8 file of at most ``limit`` bytes after unpacking, with ``\\n`` as the line end."""
    line_counter, blocks, size = [0], list[bytes](), 0
    with _opened(path, line_counter) as file:
        while block := file.read(_BYTES_PER_READ):
            blocks.append(block)
            line_counter[0] += block.count(b"\n")
            size += len(block)
            if size > limit:
                name = "stdin" if path == STDIN else path
                raise FileFormatError(name, None, f"expected a text {_too_long(limit)}; split it")
        content = b"".join(blocks)
        try:
            text = content.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line_counter[0] = content.count(b"\n", 0, error.start) + 1
            raise
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_tsv(
    path: Path, width: int, maxsplit: int = -1, header: Sequence[Sequence[str]] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yield ``(line number, columns)``; a line that does not have ``width`` columns is an error.

    ``header`` holds the names, in lower case, that each column may have in a header; a header in line 1 is left out.
    """
    for number, line in read_lines(path):
        columns = line.split("\t", maxsplit)
        if len(columns) != width:
            raise FileFormatError(path, number, f"expected {width} tab-separated columns, found {len(columns)}")
        names = zip(columns, header, strict=False)
        if number > 1 or not header or not all(name.strip().lower() in accepted for name, accepted in names):
            yield number, columns


def read_csv(
    path: Path, needed: Mapping[str, Sequence[str]], optional: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield ``(line number, values)`` of each row of a CSV file with a header; the keys are those of the arguments.

    ``needed`` and ``optional`` map each key to the names that its column may have. The delimiter is a comma, a
    semicolon or a tab: the one that the header has most. A missing or doubled column, or a row that does not have as
    many cells as the header, is an error.
    """
    text = read_text(path)
    table = read_delimited(text, ",;\t")
    names = [name.lower() for name in table.columns]
    columns = {}
    for key, accepted in {**needed, **optional}.items():
        matching_names = [name for name in accepted if name in names]
        if not matching_names and key in needed:
            wanted = ", ".join(f"{first} (or {', '.join(others)})" for first, *others in needed.values())
            extra = f" and, optionally, {', '.join(first for first, *_ in optional.values())}"
            message = f"expected a header with {wanted}{extra}; found {', '.join(names) or 'nothing'}"
            raise FileFormatError(path, table.header_line, message)
        if matching_names:
            columns[key] = names.index(matching_names[0])
            if names.count(matching_names[0]) > 1:
                message = (
                    f"expected one column {matching_names[0]}, found {names.count(matching_names[0])}; rename some"
                )
                raise FileFormatError(path, table.header_line, message)
    if table.problems:
        raise FileFormatError(path, *table.problems[0])
    for line, cells in table.rows:
        yield line, {key: cells[column] for key, column in columns.items()}


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line number, object)`` of a file with one JSON object per line."""
    for number, line in read_lines(path):
        yield number, json_object(path, line, number)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; anything else raises :class:`~haybale.FileFormatError`."""
    return json_object(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of at most :data:`MAX_TEXT` bytes."""
    with reading(path), path.open("rb") as file:
        content = file.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise FileFormatError(path, None, f"expected a file {_too_long(MAX_TEXT)}; replace it")
    return content


def json_object(path: Path, text: str | bytes, line: int | None = None) -> dict[str, Any]:
    """Parse a text as a JSON object; ``path`` and ``line``, if it is one line of a file, are for error messages."""
    value = parsed_json(path, text, line)
    if not isinstance(value, dict):
        raise FileFormatError(path, line, f"expected a JSON object, found {type(value).__name__}")
    return value


def parsed_json(path: Path | str, text: str | bytes, line: int | None = None) -> Any:
    """Parse a text as JSON; ``path`` and ``line``, if it is one line of a file, are for error messages."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        message = f"expected JSON, found an error in column {error.colno}: {error.msg}"
        raise FileFormatError(path, line or error.lineno, message) from None
    except RecursionError:
        message = "expected JSON with at most some hundred levels of '[' and '{', found more; flatten it"
        raise FileFormatError(path, line, message) from None
    except ValueError as error:  # not UTF-8, or a number with too many digits
        raise FileFormatError(path, line, f"expected JSON, found other data: {error}") from None


def text_field(path: Path, number: int, record: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return the string in the field ``name``; another type, or a missing field without default, is an error."""
    value = record.get(name, default)
    if not isinstance(value, str):
        kind = "nothing" if value is None else type(value).__name__
        raise FileFormatError(path, number, f"expected a string in field {name!r}, found {kind}")
    return value


def suffix_of(path: Path) -> str:
    """Return the suffix of a file name, ignoring ``.gz``.

    >>> suffix_of(Path("queries.jsonl.gz")), suffix_of(Path("qrels.csv"))
    ('.jsonl', '.csv')
    """
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def whole_number(text: str) -> int | None:
    """Return the whole number that a text is, in decimal digits 0 to 9 with an optional sign; None for another text.

    >>> whole_number(" -2 "), whole_number("1_0"), whole_number("١")
    (-2, None, None)
    """
    return int(text) if len(text) <= _MAX_DIGITS and _WHOLE.fullmatch(text.strip()) else None


def finite_number(text: str) -> float | None:
    """Return the finite number that a text is, in decimal digits 0 to 9 or with a power of ten; None for another text.

    >>> finite_number("2.5E+2"), finite_number("1_000"), finite_number("nan"), finite_number("1e999")
    (250.0, None, None, None)
    """
    number = float(text) if _REAL.fullmatch(text.strip()) else math.nan
    return number if math.isfinite(number) else None
