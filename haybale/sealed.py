"""Folders of a saved model: a manifest in JSON with the SHA-256 of every other file, and tensors as safetensors.

What is read is what was written, or an error names the file that is not. Nothing in it could be executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from haybale.errors import FileFormatError
from haybale.folders import write_json

MANIFEST = "manifest.json"


def seal(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, with the version that wrote it and the digests of all files that are in the folder."""
    files = {path.name: digest(path) for path in sorted(folder.iterdir())}
    write_json(folder / MANIFEST, {**manifest, "haybale": version("haybale"), "files": files})


def read_manifest(folder: Path, what: str, expected: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a saved ``what``, whose entries must have the ``expected`` values: format, version, kind."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FileFormatError(path, None, f"not found: {folder} is no saved {what}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(path, None, f"expected JSON: {error}") from None
    for name, value in expected.items():
        found = manifest.get(name) if isinstance(manifest, dict) else None
        if found != value:
            raise FileFormatError(path, None, f"expected {name} {value!r}, found {found!r}")
    return dict(manifest)


def check_files(folder: Path, manifest: dict[str, Any], names: Iterable[str]) -> None:
    """The manifest must list just these files, and each must be what was written."""
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != set(names):
        raise FileFormatError(folder / MANIFEST, None, f"expected 'files' {', '.join(sorted(names))}")
    for name, expected in files.items():
        if not (folder / name).is_file():
            raise FileFormatError(folder / name, None, "not found, the manifest lists it")
        if digest(folder / name) != expected:
            raise FileFormatError(folder / name, None, "its content is not what was saved: the SHA-256 differs")


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file."""
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise FileFormatError(path, None, f"expected safetensors: {error}") from None


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
