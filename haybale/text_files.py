"""Read text files, plain or gzipped: lines, tables, JSON; errors name the file and the line."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from haybale.errors import FileFormatError, HaybaleError, InputError

STDIN = Path("-")


def find_file(folder: Path, name: str) -> Path | None:
    """Return ``folder/name`` or ``folder/name.gz``, whichever exists (the plain one first), else None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def need_file(folder: Path, name: str) -> Path:
    """Return the same; a missing file is an error."""
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder}: expected a file {name} or {name}.gz")
    return path


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn errors of the file system into one error that names the file."""
    try:
        yield
    except HaybaleError:
        raise
    except FileNotFoundError as error:
        raise FileFormatError(path, None, "no such file") from error
    except OSError as error:
        raise FileFormatError(path, None, f"cannot be read: {error.strerror or error}") from error


def _decoded_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line with its end)`` of a UTF-8 file; :data:`STDIN` is standard input.

    A missing file, gzip data that is cut off, and bytes that are not UTF-8 raise an error with the last line read.
    """
    number, name = 0, "stdin" if path == STDIN else path
    with reading(path), nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as file:
        lines = BufferedReader(cast(Any, gzip.GzipFile(fileobj=file))) if path.suffix == ".gz" else file
        try:
            for data in lines:  # only "\n" ends a line: passages may hold other line breaks
                number += 1
                line = data.decode()
                yield number, line.removeprefix("\ufeff") if number == 1 else line  # without a byte order mark
        except (EOFError, zlib.error) as error:
            raise FileFormatError(
                path, number, "the gzip data ends early or is damaged: the file was cut off"
            ) from error
        except gzip.BadGzipFile as error:
            raise FileFormatError(path, number or None, f"expected gzip data: {error}") from error
        except UnicodeDecodeError as error:
            raise FileFormatError(name, number, f"expected UTF-8 text: {error.reason}") from error


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line without its end)``; blank lines are skipped."""
    for number, line in _decoded_lines(path):
        if line and not line.isspace():
            yield number, line.rstrip("\r\n")


def read_text(path: Path) -> str:
    """Return a whole text, each line ended by a newline alone."""
    return "".join(line for _, line in _decoded_lines(path)).replace("\r\n", "\n").replace("\r", "\n")


def read_tsv(path: Path, width: int, maxsplit: int = -1) -> Iterator[tuple[int, list[str]]]:
    """Yield ``(line number, columns)``; a line with another number of columns than ``width`` is an error."""
    for number, line in read_lines(path):
        columns = line.split("\t", maxsplit)
        if len(columns) != width:
            raise FileFormatError(path, number, f"expected {width} tab-separated columns, found {len(columns)}")
        yield number, columns


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line number, object)`` of a file with one JSON object a line."""
    for number, line in read_lines(path):
        yield number, json_object(path, line, number)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; :class:`~haybale.FileFormatError` for anything else."""
    with reading(path):
        return json_object(path, path.read_bytes())


def json_object(path: Path, text: str | bytes, line: int | None = None) -> dict[str, Any]:
    """Return the JSON object that a text of a file is; ``line`` is where it stands, if a line holds it."""
    value = parsed_json(path, text, line)
    if not isinstance(value, dict):
        raise FileFormatError(path, line, f"expected a JSON object, found {type(value).__name__}")
    return value


def parsed_json(path: Path | str, text: str | bytes, line: int | None = None) -> Any:
    """Return the value of a JSON text of a file; ``line`` is where it stands, if a line holds it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FileFormatError(path, line or error.lineno, f"expected JSON, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of too many digits, lists in lists in lists
        raise FileFormatError(path, line, f"expected JSON: {error}") from None


def text_field(path: Path, number: int, record: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return the string under ``name``; absent (without a default) or of another type is an error."""
    value = record.get(name, default)
    if not isinstance(value, str):
        found = "nothing" if value is None else type(value).__name__
        raise FileFormatError(path, number, f"expected a string in field {name!r}, found {found}")
    return value
