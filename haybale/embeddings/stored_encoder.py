"""The fitted encoder that a store keeps beside its vectors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from haybale.embeddings.encoder import load_fitted
from haybale.embeddings.resumable_store import check_same
from haybale.embeddings.store_files import MANIFEST, StoreFiles
from haybale.errors import InputError

ENCODER = "encoder"


def load_encoder(files: StoreFiles) -> Any:
    """Load the encoder that a store keeps."""
    if files.is_local:
        return load_fitted(files.at(ENCODER))
    with tempfile.TemporaryDirectory() as folder:
        files.fs.get(files.at(ENCODER), f"{folder}/copy", recursive=True)
        return load_fitted(f"{folder}/copy")


def load_same_encoder(encoder: Any, files: StoreFiles) -> Any:
    """Load the encoder that a store keeps; its class and parameters must be those of ``encoder``."""
    found = load_encoder(files)
    then, now = ({"class": type(each).__name__, **each.get_params()} for each in (found, encoder))
    check_same(files, then, now, "the encoder")
    return found


def save_encoder(encoder: Any, files: StoreFiles) -> None:
    """Save a fitted encoder into a store, its manifest last."""
    for name in files.names():
        if name == ENCODER or name.startswith(f".{ENCODER}."):  # left by a killed writer
            files.remove(name)
    if files.is_local:
        encoder.save(Path(files.at(ENCODER)))
        return
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder, ENCODER))
        for path in sorted(Path(folder, ENCODER).iterdir(), key=lambda path: path.name == MANIFEST):
            files.fs.put_file(str(path), files.at(f"{ENCODER}/{path.name}"))


def check_storable(encoder: Any) -> None:
    """Refuse, before any work, an encoder whose vectors are sparse."""
    if getattr(encoder, "is_sparse", False):
        name = type(encoder).__name__
        raise InputError(f"{name} makes sparse vectors, which a store does not hold: save the encoder instead")
