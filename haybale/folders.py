"""Output that is whole or absent: files and folders written aside, then renamed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from haybale.errors import FileFormatError, HaybaleError, OutputExistsError


def check_output(folder: Path) -> None:
    """Refuse a folder that exists and is not empty (or is a file)."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder} exists and is not empty; give a new folder or empty it")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write into the folder that is yielded; it gets its name when all is written, and is gone after an error."""
    check_output(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        aside.mkdir()
        yield aside
        if folder.exists():
            folder.rmdir()  # empty, as checked
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Write to the path that is yielded; the file replaces what is there when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
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


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """What the file system says of a file that cannot be read, as one error that names the file."""
    try:
        yield
    except HaybaleError:
        raise
    except FileNotFoundError as error:
        raise FileFormatError(path, None, "no such file") from error
    except OSError as error:
        raise FileFormatError(path, None, f"cannot be read: {error.strerror or error}") from error


def parsed_json(path: Path | str, text: str | bytes, line: int | None = None) -> Any:
    """The value of a JSON text of a file; ``line`` is where it stands, where a line is one."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FileFormatError(path, line or error.lineno, f"expected JSON, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of too many digits, lists in lists in lists
        raise FileFormatError(path, line, f"expected JSON: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; :class:`~haybale.FileFormatError` for anything else."""
    with reading(path):
        found = parsed_json(path, path.read_bytes())
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
