"""Write files and folders atomically: write to a temporary path, then rename. Check output paths before the work."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from haybale.errors import InputError, OutputExistsError

LOCK = ".haybale.lock"  # the file that is locked where folders cannot be
_MAX_NAME_BYTES = 230  # file systems allow 255, and SQLite adds a suffix
_TEST_CONTENT = bytes(2**16)  # a disk without room for so many bytes counts as full


def check_output(folder: Path) -> None:
    """Reject an output folder that is a file, is not empty, or cannot be created."""
    _check_writable(folder)
    _check_empty(folder)
    if os.path.ismount(folder):
        raise InputError(f"{folder} is a mount point, which cannot be replaced; give a folder in it")


def check_file(path: Path) -> None:
    """Reject an output file that cannot be written, or that is not a regular file."""
    _check_writable(path)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"{path}: expected the name of a file, found {kind}")


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder} exists and is not empty; give a new folder or empty it")


def _check_writable(path: Path) -> None:
    """Reject a path that cannot be written to, by writing and removing a temporary file."""
    created: list[Path] = []
    temporary = _temporary_path(path)
    try:
        for part in (path, *path.absolute().parents):
            if part.is_symlink() and not part.exists():
                raise InputError(f"{path} cannot be written: {part} is a broken link; remove it or give another path")
        for parent in reversed([parent for parent in temporary.parents if not parent.exists()]):
            parent.mkdir()
            created.append(parent)
        try:
            temporary.write_bytes(_TEST_CONTENT)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; give another path") from None
    finally:
        for parent in reversed(created):
            parent.rmdir()


def _temporary_path(path: Path) -> Path:
    """Return a unique path in the folder of the file or folder that ``path``, perhaps a link, leads to."""
    path = Path(os.path.realpath(path))
    name = os.fsdecode(os.fsencode(path.name)[:_MAX_NAME_BYTES])
    return path.parent / f".{name}.{uuid.uuid4().hex[:12]}"


def write_or_rescue(write: Callable[[Path], object], path: Path) -> None:
    """Call ``write(path)``; if it fails, write to a temporary folder instead and name that folder in the error."""
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
        raise OSError(error.errno, f"{why}; the results are in {Path(folder, path.name)}", str(path)) from error


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to write into; rename it to ``folder`` at the end, or remove it after an error.

    If several processes write to one folder, the first to finish wins, and the others raise
    :class:`OutputExistsError`.
    """
    _check_empty(folder)
    aside = _temporary_path(folder)
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        aside.mkdir()
        yield aside
        try:
            os.replace(aside, folder)  # replaces an empty folder too
        except OSError:
            _check_empty(folder)  # another process finished first
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replaced(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end, rename it to ``path``, replacing an existing file.

    The new file has the mode and, where this user may set them, the owner and group of the file that it replaces.

    Parameters
    ----------
    path : Path
        If it is a link, the file that it leads to is replaced.
    mode : int, optional
        The mode of the file if none exists yet, such as ``0o600`` for secrets. Default: what the umask leaves.
    """
    aside = _temporary_path(path)
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    existing = path.stat() if path.is_file() else None
    mode = mode if existing is None else stat.S_IMODE(existing.st_mode)
    try:
        if mode is not None:  # before the first byte, so that nobody reads what will be a secret
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o700 | stat.S_IWUSR))
        yield aside
        if existing is not None:
            _set_owner(aside, existing)
        if mode is not None:
            os.chmod(aside, mode)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _set_owner(path: Path, existing: os.stat_result) -> None:
    """Give a file the owner and group of another one; only the group, or nothing, where this user may not."""
    now = path.stat()
    if (now.st_uid, now.st_gid) == (existing.st_uid, existing.st_gid):
        return
    try:
        os.chown(path, existing.st_uid, existing.st_gid)
    except PermissionError:
        with suppress(PermissionError):
            os.chown(path, -1, existing.st_gid)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which one thread of one process has at a time; a process that is killed leaves no lock.

    Code that reads a file, changes it and writes it again needs this block, so that it overwrites no other change.
    """
    import fcntl  # POSIX only

    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system, such as NFS, that locks no folders
            os.close(handle)
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Yield a text file, open for writing as UTF-8, that replaces ``path`` at the end."""
    with replaced(path) as aside, open(aside, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        yield file


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented UTF-8 JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def replace_json(path: Path, value: Any, mode: int | None = None) -> None:
    """Write a value as JSON, atomically; an existing file is replaced, and ``mode`` is that of a new one."""
    with replaced(path, mode) as aside:
        write_json(aside, value)


def check_new_file(path: Path) -> None:
    """Reject an output file that exists; call it before the work."""
    if path.exists():
        raise OutputExistsError(f"{path} exists already; give a new name or remove it")


def new_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically, to a file that must not exist."""
    check_new_file(path)
    replace_json(path, value)
