"""Write and read the files of a backup: a folder or a zip file, with a manifest of the size and SHA-256 of each."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, is_zipfile

from haybale.errors import FileFormatError, HaybaleError, InputError, StoreError
from haybale.folders import check_file, check_new_file, check_output, replaced, whole_folder
from haybale.manifest import check_kinds, verify_checksum, with_checksum
from haybale.text_files import parsed_json
from haybale.versions import __version__

MANIFEST = "backup.json"
FORMAT, VERSION = "haybale backup", 1
_KINDS = {"identity": str, "time": str, "haybale": str, "rows": range(2**62), "files": dict}
_FILE_KINDS = {"size": range(2**62), "sha256": str}
_BYTES_PER_READ = 2**20
_COMPRESSION_LEVEL = 1  # most bytes are compressed already, or vectors


class NewArchive:
    """A backup that is being written: into a folder, or into a zip file."""

    def __init__(self, target: Path | ZipFile) -> None:
        self._target = target
        self._files: dict[str, dict[str, Any]] = {}

    def write(self, name: str, source: IO[bytes]) -> None:
        """Write what can be read from a file, under a name with slashes."""
        checksum, size = hashlib.sha256(), 0
        with self._opened(name) as out:
            while data := source.read(_BYTES_PER_READ):
                checksum.update(data)
                size += len(data)
                out.write(data)
        self._files[name] = {"size": size, "sha256": checksum.hexdigest()}

    def finish(self, **entries: Any) -> int:
        """Write the manifest, and return the number of bytes of the files."""
        head = {"format": FORMAT, "version": VERSION, "haybale": __version__, **entries}
        manifest = with_checksum({**head, "files": self._files})
        with self._opened(MANIFEST) as out:
            out.write(json.dumps(manifest, indent=2).encode())
        return sum(int(file["size"]) for file in self._files.values())

    def _opened(self, name: str) -> IO[bytes]:
        if isinstance(self._target, ZipFile):
            return self._target.open(name, "w", force_zip64=True)
        path = self._target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")


@contextmanager
def new_archive(path: Path) -> Iterator[NewArchive]:
    """Yield a backup to write: a zip file if the name of ``path`` ends in ``.zip``, else a folder.

    It appears when it is complete, and only its owner can read it. A path that exists raises OutputExistsError.
    """
    if path.suffix.lower() == ".zip":
        check_new_file(path)
        check_file(path)
        with (
            replaced(path, 0o600) as aside,
            ZipFile(aside, "w", ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL) as zipped,
        ):
            yield NewArchive(zipped)
    else:
        check_output(path)
        with whole_folder(path) as folder:
            folder.chmod(0o700)
            yield NewArchive(folder)


class Archive:
    """A backup that is read. Its manifest is checked, its files when they are extracted.

    Parameters
    ----------
    path : Path
        The folder or the zip file.
    source : Path or ZipFile
        What files are read from.
    """

    def __init__(self, path: Path, source: Path | ZipFile) -> None:
        self.path, self._source = path, source
        try:
            with self._opened(MANIFEST) as file:
                content = file.read()
        except (FileNotFoundError, NotADirectoryError, KeyError):
            raise InputError(
                f"{path}: expected a backup with {MANIFEST}, found none; give what haybale backup has written"
            ) from None
        shown = Path(f"{path}/{MANIFEST}")
        manifest = parsed_json(shown, content)
        version = manifest.get("version") if isinstance(manifest, dict) else None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or version != VERSION:
            raise FileFormatError(
                shown,
                None,
                f"expected format {FORMAT!r} of version {VERSION}, found version {version!r}; use the version of "
                "haybale that wrote it",
            )
        self.manifest = verify_checksum(shown, manifest)
        check_kinds(shown, self.manifest, _KINDS)
        for name, file in self.manifest["files"].items():
            check_kinds(shown, {name: file}, {name: _FILE_KINDS})
            parts = PurePosixPath(name).parts
            if str(PurePosixPath(*parts)) != name or name.startswith("/") or ".." in parts or "\0" in name:
                raise FileFormatError(shown, None, f"expected names of files within the backup, found {name!r:.100}")

    @property
    def names(self) -> list[str]:
        """The names of the files, without the manifest."""
        return list(self.manifest["files"])

    def extract(self, name: str, target: Path | None) -> None:
        """Write a file to a new path, on disk when this returns; None only checks it.

        StoreError is raised if it is not the one that was backed up.
        """
        expected, checksum, size = self.manifest["files"][name], hashlib.sha256(), 0
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        with self._opened(name) as source, nullcontext() if target is None else target.open("xb") as out:
            while (data := source.read(_BYTES_PER_READ)) and size <= expected["size"]:
                checksum.update(data)
                size += len(data)
                if out is not None:
                    out.write(data)
            if out is not None:
                out.flush()
                os.fsync(out.fileno())
        if (size, checksum.hexdigest()) != (expected["size"], expected["sha256"]):
            raise StoreError(
                f"{self.path}: expected the file {name} that was backed up, found another content; give another backup"
            )

    def _opened(self, name: str) -> IO[bytes]:
        return self._source.open(name) if isinstance(self._source, ZipFile) else (self._source / name).open("rb")


@contextmanager
def opened_archive(path: Path) -> Iterator[Archive]:
    """Yield a backup to read from; a damaged one raises StoreError or FileFormatError, also within the block."""
    if not path.exists():
        raise InputError(f"{path}: expected a backup, found nothing there; check the path")
    try:
        if path.is_dir():
            yield Archive(path, path)
            return
        with ZipFile(path) as zipped:
            yield Archive(path, zipped)
    except HaybaleError:
        raise
    except (BadZipFile, zlib.error, sqlite3.Error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise StoreError(
            f"{path}: expected a whole backup, found a damaged one ({error}); give another backup"
        ) from error


def is_archive(path: Path) -> bool:
    """Return whether a path is a folder or a zip file, rather than a file of judgements."""
    return path.is_dir() or is_zipfile(path)
