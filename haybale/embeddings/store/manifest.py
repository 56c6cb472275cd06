"""What a store is: its manifest, and what two of them must agree in."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from haybale.embeddings.store.files import BUILDING, MANIFEST, StoreFiles
from haybale.errors import InputError, StoreError

FORMAT, VERSION = "haybale embeddings", 1
DTYPES = ("float32", "float16")
_LIBRARIES = ("haybale", "numpy", "scipy", "scikit-learn", "zarr", "torch", "transformers", "sentence-transformers")


def versions() -> dict[str, str]:
    """Versions of what the vectors may depend on, where it is installed."""
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def as_json(value: Any) -> Any:
    """What is left of a value after JSON: tuples become lists."""
    return json.loads(json.dumps(value))


def read_manifest(files: StoreFiles) -> dict[str, Any]:
    """The manifest of a finished store (or shard), checked for kind and version."""
    if not files.exists(MANIFEST):
        if files.exists(BUILDING):
            raise StoreError(f"{files}: this store is not finished; run the same embed command again to go on")
        raise InputError(f"{files}: expected a store of embeddings (a folder with {MANIFEST})")
    manifest = files.read_json(MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{files.at(MANIFEST)}: expected the manifest of a store of embeddings")
    if manifest.get("version") != VERSION:
        raise InputError(f"{files.at(MANIFEST)}: expected version {VERSION}, found {manifest.get('version')!r}")
    return manifest


def check_input(files: StoreFiles, begun: dict[str, Any], today: dict[str, Any]) -> None:
    """Refuse to go on with other passages than the store was begun with."""
    then = begun.get("input", {})
    if then.get("sha256") != today["sha256"]:
        raise StoreError(
            f"{files}: the input has changed since this store was begun with {then.get('name')!r} "
            f"({then.get('passages')} passages then, {today['passages']} now, or other texts); "
            "give the old input or a new folder"
        )


def check_same(files: StoreFiles, begun: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with another encoder, other settings or library versions, naming the first of them."""
    for where, before, after in _differences("", begun, now):
        raise StoreError(
            f"{files}: this store was begun with {where} {before!r}, now it is {after!r}; "
            "give the same settings or a new folder"
        )


def _differences(where: str, begun: Any, now: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(begun, dict) and isinstance(now, dict):
        found = []
        for key in sorted({*begun, *now} - {"name"}):
            found += _differences(f"{where} {key}".strip(), begun.get(key), now.get(key))
        return found
    return [] if begun == now else [(where, begun, now)]
