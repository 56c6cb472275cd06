"""Output folders that are whole or absent: written aside, then renamed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from haybale.errors import OutputExistsError


def check_output(folder: Path) -> None:
    """Refuse a folder that exists and is not empty (or is a file); called before the work, not after."""
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
def whole_file(path: Path) -> Iterator[TextIO]:
    """Write UTF-8 text into the file that is yielded; it replaces what is there when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(aside, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            yield file
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Indented UTF-8 JSON with a newline at its end."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_new_file(path: Path) -> None:
    """Refuse a file that exists; called before the work, not after."""
    if path.exists():
        raise OutputExistsError(f"{path} exists; give a new name or remove it")


def new_json(path: Path, value: Any) -> None:
    """As :func:`write_json`, to a file that must not exist: whole or absent."""
    check_new_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_json(path, value)


def replace_json(path: Path, value: Any) -> None:
    """As :func:`write_json`, aside first, then renamed over what may be there."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_json(aside, value)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
