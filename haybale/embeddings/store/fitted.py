"""The encoder of a store: one that is fitted on the passages is fitted once, kept, and loaded from then on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from haybale.embeddings.find import load_fitted
from haybale.embeddings.store.files import BUILDING, ENCODER, MANIFEST, StoreFiles
from haybale.embeddings.store.passages import open_passages
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.errors import InputError, StoreError


class SpooledTexts:
    """The texts of a store, one chunk in memory at a time, as often as they are asked for."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files

    def __iter__(self) -> Iterator[str]:
        with open_passages(self._files) as passages:
            yield from passages.all_texts()


def fitted_encoder(encoder: Any, files: StoreFiles, shard: tuple[int, int]) -> Any:
    """``encoder``, fitted: by an earlier call (then it is loaded), by the caller, or here, on the store's passages."""
    if not hasattr(encoder, "fit"):
        return encoder
    check_storable(encoder)
    given = is_fitted(encoder)
    if files.exists(ENCODER) and (files.exists(BUILDING) or files.exists(MANIFEST)):
        if given:
            return encoder  # the manifest says whether it is the one the store was begun with
        return kept_encoder(files, like=encoder)
    if not given:
        if shard[1] > 1:
            raise InputError(
                f"shards need one fitted encoder, or their vectors would not fit together: fit and save one first, or "
                f"embed without shards; found a {type(encoder).__name__} that is not fitted"
            )
        encoder.fit(SpooledTexts(files))
    keep_encoder(encoder, files)
    return encoder


def kept_encoder(files: StoreFiles, like: Any = None) -> Any:
    """The encoder that a store keeps; it must have the class and settings of ``like``, if that is given."""
    with files.local_copy(ENCODER) as folder:
        kept = load_fitted(folder)
    if like is not None:
        then, now = ((type(each).__name__, each.get_params()) for each in (kept, like))
        if then != now:
            raise StoreError(
                f"{files}: this store was begun with the encoder {then}, now it is {now}; "
                "give the same settings or a new folder"
            )
    return kept


def keep_encoder(encoder: Any, files: StoreFiles) -> None:
    """Save a fitted encoder into a store."""
    for name in files.names():
        if name == ENCODER or name.startswith(f".{ENCODER}."):  # from a call that was killed
            files.remove(name)
    if files.is_local:
        encoder.save(Path(files.at(ENCODER)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            encoder.save(Path(folder) / ENCODER)
            files.fs.put(f"{folder}/{ENCODER}", files.at(ENCODER), recursive=True)


def is_fitted(encoder: Any) -> bool:
    """Whether an encoder that can be fitted has been."""
    try:
        check_is_fitted(encoder)
    except NotFittedError:
        return False
    return True


def check_storable(encoder: Any) -> None:
    """Refuse an encoder whose vectors are sparse."""
    if isinstance(encoder, TfidfEncoder):
        raise InputError(
            f"{type(encoder).__name__} makes sparse vectors, which a store does not hold: they are made in seconds; "
            "save the encoder instead"
        )
