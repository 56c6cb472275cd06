"""Lines of a plain or gzipped text file, with their numbers, and with errors that name them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from haybale.errors import FileFormatError, InputError
from haybale.folders import parsed_json, reading


def find_file(folder: Path, name: str) -> Path | None:
    """``folder/name`` or ``folder/name.gz``, whichever exists (the plain one first), else None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def need_file(folder: Path, name: str) -> Path:
    """Like :func:`find_file`, but a missing file is an error."""
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder}: expected a file {name} or {name}.gz")
    return path


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line without its end)`` of a UTF-8 file, plain or ``.gz``; blank lines are skipped.

    A missing file, gzip data that is cut off, and bytes that are not UTF-8 raise an error with the last line read.
    """
    number = 0
    with reading(path), path.open("rb") as file:
        lines = BufferedReader(cast(Any, gzip.GzipFile(fileobj=file))) if path.suffix == ".gz" else file
        try:
            for data in lines:  # only "\n" ends a line: passages may hold other line breaks
                number += 1
                line = data.decode()
                if not line.isspace():
                    # A byte order mark is no part of the first id.
                    yield number, (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")
        except (EOFError, zlib.error) as error:
            raise FileFormatError(
                path, number, "the gzip data ends early or is damaged: the file was cut off"
            ) from error
        except gzip.BadGzipFile as error:
            raise FileFormatError(path, number or None, f"expected gzip data: {error}") from error
        except UnicodeDecodeError as error:
            raise FileFormatError(path, number, f"expected UTF-8 text: {error.reason}") from error


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


def json_object(path: Path, text: str, line: int | None = None) -> dict[str, Any]:
    """The JSON object that a text of a file is; ``line`` is where it stands, where a line is one."""
    value = parsed_json(path, text, line)
    if not isinstance(value, dict):
        raise FileFormatError(path, line, f"expected a JSON object, found {type(value).__name__}")
    return value


def text_field(path: Path, number: int, record: dict[str, Any], name: str, default: str | None = None) -> str:
    """The string under ``name``; absent (without a default) or of another type is an error."""
    value = record.get(name, default)
    if not isinstance(value, str):
        found = "nothing" if value is None else type(value).__name__
        raise FileFormatError(path, number, f"expected a string in field {name!r}, found {found}")
    return value


def read_text(path: Path) -> str:
    """A UTF-8 file, each line ended by a newline alone."""
    with reading(path):
        return decoded(path, path.read_bytes())


def decoded(name: str | Path, data: bytes) -> str:
    """UTF-8 text that was read from ``name``, each line ended by a newline alone."""
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = len((error.object[: error.start] + b".").splitlines())
        raise FileFormatError(name, line, f"expected UTF-8 text: {error.reason}") from error
