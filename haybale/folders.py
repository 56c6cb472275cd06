"""Output that is whole or absent: files and folders written aside, then renamed. Places are tried before the work."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from haybale.errors import InputError, OutputExistsError

_TRIED = bytes(2**16)  # a disk on which this finds no room is full


def check_output(folder: Path) -> None:
    """Refuse a folder that exists and is not empty (or is a file), or that cannot be made."""
    _check_place(folder)
    _check_empty(folder)
    if os.path.ismount(folder):
        raise InputError(f"{folder} is where a disk is mounted, which nothing can replace; give a folder in it")


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written, or that is none."""
    _check_place(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is {'a folder' if path.is_dir() else 'no file'}; expected the name of a file")


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder} exists and is not empty; give a new folder or empty it")


def _check_place(path: Path) -> None:
    """Refuse, before the work, a path that nothing can be written to: by trying, of which nothing is left."""
    made: list[Path] = []
    aside = _aside(path)
    try:
        for each in (path, *path.absolute().parents):
            if each.is_symlink() and not each.exists():
                raise InputError(f"{path}: nothing can be written there: {each} is a link to what does not exist")
        for above in reversed([above for above in aside.parents if not above.exists()]):
            above.mkdir()
            made.append(above)
        try:
            aside.write_bytes(_TRIED)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: nothing can be written there: {error.strerror}") from None
    finally:
        for above in reversed(made):
            above.rmdir()


def _aside(path: Path) -> Path:
    """Where something is written before it is renamed to what a path, or a link of that name, leads to.

    No other thread or process has that name, nor had one that was killed.
    """
    path = Path(os.path.realpath(path))
    return path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}"


def write_or_rescue(write: Callable[[Path], object], path: Path) -> None:
    """``write(path)``; where that fails in the end, into a temporary folder, which the error names."""
    try:
        write(path)
    except OSError as error:
        folder = tempfile.mkdtemp(prefix="haybale-")
        try:
            write(Path(folder, path.name))
        except OSError:
            shutil.rmtree(folder)
            raise error from None
        why = error.strerror or str(error)
        raise OSError(error.errno, f"{why}; what was computed is in {Path(folder, path.name)}", str(path)) from error


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write into the folder that is yielded; it gets its name when all is written, and is gone after an error.

    Of several that write at once, the first that is done has it, and others end in :class:`OutputExistsError`.
    """
    _check_empty(folder)
    aside = _aside(folder)
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        aside.mkdir()
        yield aside
        try:
            os.replace(aside, folder)  # over an empty one too
        except OSError:
            _check_empty(folder)  # somebody was faster
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Write to the path that is yielded; the file replaces what is there when all is written."""
    aside = _aside(path)
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
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
