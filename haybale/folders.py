"""Output that is whole or absent: files and folders written aside, then renamed."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from haybale.errors import FileFormatError, OutputExistsError


def check_output(folder: Path) -> None:
    """Refuse a folder that exists and is not empty (or is a file)."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder} exists and is not empty; give a new folder or empty it")


def _aside(path: Path) -> Path:
    """A name beside it that nobody else has: no other thread or process, nor one that was killed."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write into the folder that is yielded; it gets its name when all is written, and is gone after an error.

    Of several that write at once, the first that is done has it, and others end in :class:`OutputExistsError`.
    """
    check_output(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(folder)
    try:
        aside.mkdir()
        yield aside
        try:
            os.replace(aside, folder)  # over an empty one too
        except OSError:
            check_output(folder)  # somebody was faster
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Write to the path that is yielded; the file replaces what is there when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(path)
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """The same for UTF-8 text: the file, open for writing."""
    with replaced(path) as aside, open(aside, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        yield file


def write_json(path: Path, value: Any) -> None:
    """Indented UTF-8 JSON with a newline at its end."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; :class:`~haybale.FileFormatError` for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(path, None, f"expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise FileFormatError(path, None, "expected a JSON object")
    return found


def replace_json(path: Path, value: Any) -> None:
    """As :func:`write_json`, aside first, then renamed over what may be there."""
    with replaced(path) as aside:
        write_json(aside, value)


def check_new_file(path: Path) -> None:
    """Refuse a file that exists; called before the work, not after."""
    if path.exists():
        raise OutputExistsError(f"{path} exists; give a new name or remove it")


def new_json(path: Path, value: Any) -> None:
    """As :func:`replace_json`, to a file that must not exist."""
    check_new_file(path)
    replace_json(path, value)
