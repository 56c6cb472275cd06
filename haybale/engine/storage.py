"""Where an engine is kept: a folder with a manifest and one writer at a time, or memory.

    engine.json        format, version, settings, digest of the collection, number of segments, removed documents
    building.json      settings and digest, while the engine is being built
    encoder/           the encoder, if it was fitted on the passages; others are loaded by the text that names them
    0/                 the documents the engine was built from
        collection/    documents, queries and judgements
        pieces/        its passages cut into pieces, if they are
        bm25-passage/  bm25-document/  passages/  documents/      each made when it is first needed
    1/ …               documents added later, likewise

Dense vectors are kept as embedding stores (:mod:`haybale.embeddings`), so that encoding survives interruptions chunk by
chunk; every other folder is whole or absent. Nothing in an engine could be executed.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from haybale.embeddings.encoder import encoder_text
from haybale.embeddings.store import CHUNKING
from haybale.embeddings.store_files import StoreFiles, writer_lock
from haybale.errors import FileFormatError, OutputExistsError, StoreError
from haybale.folders import replace_json
from haybale.manifest import MANY, check_kinds, read_manifest, with_checksum
from haybale.text_files import read_json, reading
from haybale.timing import timed

FORMAT, VERSION = "haybale engine", 3
_BEFORE = 2  # haybale 0.2 kept settings of single encoders beside the encoder's name
_MANIFEST, _BUILDING = "engine.json", "building.json"
_SETTINGS = {
    "encoder": (str, dict),
    "language": (str, None),
    "analyzer": (dict, None),
    "paragraphs": (str, None),
    "chunking": (CHUNKING, None),
    "store": (str, None),
}
_KINDS = {"id": str, "settings": dict, "language": str, "encoder": bool, "segments": MANY, "removed": [str]}
_ENCODERS = {
    "n_components": 1024,
    "random_state": 0,
    "query_prompt": "",
    "passage_prompt": "",
}  # of version 2, defaults
_ASIDE = re.compile(r"\..+\.(\d+|[0-9a-f]{12})")  # names of files being written, see folders.py


class Storage:
    """The folder of an engine, or memory if ``folder`` is None.

    One reentrant lock serves all threads of an engine that make or write something.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self._writes = False  # whether the thread that holds the lock is the folder's writer

    def check_ours(self) -> None:
        """Refuse a folder that holds something else than an engine."""
        assert self.folder is not None
        files = StoreFiles(self.folder)
        if not any(files.exists(name) for name in (_MANIFEST, _BUILDING)):
            taken = [name for name in files.names() if not name.startswith(".")]
            if taken:
                raise OutputExistsError(f"{self.folder} holds other files ({taken[0]}); give a new folder")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the folder's one writer; :class:`StoreError` names another process that is. Reentrant; free in memory."""
        with self.lock:
            if self.folder is None or self._writes:
                yield
                return
            with writer_lock(StoreFiles(self.folder)):
                for path in [*self.folder.glob(".*"), *self.folder.glob("*/.*")]:
                    if _ASIDE.fullmatch(path.name):  # left behind by a writer that was killed
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                self._writes = True
                try:
                    yield
                finally:
                    self._writes = False

    def keep(self, path: Path | None, save: Callable[[Path], None]) -> None:
        """Save to a path that does not exist yet, unless the engine is in memory, or its folder cannot be written."""
        if path is None or path.exists():
            return
        try:
            with self.writing(), timed(f"write {path.name}"):
                if not path.exists():
                    save(path)
        except (StoreError, PermissionError):  # another process writes, or nobody may
            return

    def begin(self, begun: dict[str, Any]) -> bool:
        """Begin to build, or go on, with this input and these settings; returns whether the engine is finished."""
        assert self.folder is not None
        if (self.folder / _MANIFEST).exists():
            _check_same(self.folder, self.read(), begun)
            return True
        if (self.folder / _BUILDING).exists():
            before = read_json(self.folder / _BUILDING)
            _check_same(self.folder, before | {"settings": upgraded(before["settings"])}, begun)
        replace_json(self.folder / _BUILDING, begun)
        return False

    def finish(self, *, failed: bool = False) -> None:
        """End what :meth:`begin` began; ``failed``: the settings are impossible, so nothing can go on with them."""
        assert self.folder is not None
        (self.folder / _BUILDING).unlink(missing_ok=True)
        if failed:
            shutil.rmtree(self.folder / "0")

    def read(self) -> dict[str, Any]:
        """Read the manifest, which must be what was written; one of version 2 is returned in today's form."""
        assert self.folder is not None
        path = self.folder / _MANIFEST
        with reading(path):
            if not path.is_file() and (self.folder / _BUILDING).exists():
                raise StoreError(f"{self.folder}: this engine is not finished; build it again, which goes on")
        manifest = read_manifest(self.folder, "engine", {"format": FORMAT}, name=_MANIFEST, unsigned=False)
        del manifest["format"]
        if manifest.pop("version", None) not in (_BEFORE, VERSION):
            raise FileFormatError(path, None, f"expected version {VERSION}; build the engine anew")
        check_kinds(path, manifest, _KINDS)
        manifest["settings"] = upgraded(manifest["settings"])
        check_kinds(path, manifest["settings"], _SETTINGS)
        return manifest

    def write(self, manifest: dict[str, Any]) -> None:
        """Write the manifest."""
        assert self.folder is not None
        head = {"format": FORMAT, "version": VERSION}
        replace_json(self.folder / _MANIFEST, with_checksum(head | manifest))


def upgraded(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of version 2 in today's form: those of the encoder become part of the text that names it."""
    changed = {name: settings[name] for name, value in _ENCODERS.items() if settings.get(name, value) != value}
    settings = {name: value for name, value in settings.items() if name not in _ENCODERS}
    if changed and isinstance(settings.get("encoder"), str):
        settings["encoder"] = encoder_text(settings["encoder"], **changed)
    return settings


def _check_same(folder: Path, begun: dict[str, Any], now: dict[str, Any]) -> None:
    if begun["input"] != now["input"]:
        raise StoreError(f"{folder}: this engine was begun with another collection; give a new folder")
    for name, value in now["settings"].items():
        before = begun["settings"].get(name)
        if before != value:
            raise StoreError(
                f"{folder}: this engine was begun with {name} {before!r}, now it is {value!r}; "
                "give the same settings or a new folder"
            )
