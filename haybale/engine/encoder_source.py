"""Provide the encoder of an engine: load it, or fit it on the passages, when it is first needed."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from haybale.cached import cached_property
from haybale.embeddings import EmbeddingStore, encoder_maker
from haybale.embeddings.encoder import announce_model, description_of, is_fitted, is_registered, load_fitted, rebuild
from haybale.engine.indexing_segments import read_statistics
from haybale.engine.storage import Storage
from haybale.engine.texts import Texts
from haybale.errors import InputError
from haybale.timing import timed


@dataclass(eq=False)
class EncoderSource:
    """The source of an engine's encoder: an embedding store, the engine's folder, or the argument ``encoder``."""

    given: Any  # an encoder text, the description of an encoder, or an encoder
    texts: Texts  # the texts on which the encoder is fitted, if necessary
    terms: dict[str, Any]  # default language or analyzer for an encoder text
    storage: Storage
    store: EmbeddingStore | None  # has the vectors of the passages
    is_saved: bool  # whether the finished engine has the fitted encoder in its folder

    @property
    def encoder(self) -> Any:
        """The fitted encoder."""
        if "_encoder" not in vars(self):
            with self.storage.lock:
                return self._encoder
        return self._encoder  # without the lock, which an addition holds while it encodes documents

    @property
    def is_saved_with_engine(self) -> bool:
        """Whether the encoder is saved in the engine's folder. Others are loaded by name, or given again."""
        can_save = all(hasattr(self.encoder, method) for method in ("fit", "save", "load"))
        return self.store is None and can_save and is_registered(self.encoder)

    @cached_property
    def _encoder(self) -> Any:
        if self.store is not None:
            return self.store.encoder()
        saved = None if self.storage.folder is None else self.storage.folder / "encoder"
        with timed("load encoder"):
            if saved is not None and (self.is_saved or saved.exists()):
                with self.storage.unchanged():
                    return load_fitted(saved)
            encoder = self._load()
        return encoder if is_fitted(encoder) else self._fit(encoder)

    @property
    def portable(self) -> Any:
        """The encoder for the tasks of workers: a function that makes it, the encoder, or None if it is saved."""
        if self.is_saved_with_engine:
            return None
        return encoder_maker(self.given, **self.terms) if isinstance(self.given, str) else self.encoder

    def load_model(self) -> None:
        """Load an encoder that need not be fitted, so that a missing model is an error before anything is written."""
        is_text = self.store is None and isinstance(self.given, str)
        if is_text and not hasattr(encoder_maker(self.given, **self.terms).func, "fit"):
            self.encoder  # noqa: B018  (loads it)

    def _load(self) -> Any:
        if isinstance(self.given, dict):
            return rebuild(self.given, "the engine")
        if not isinstance(self.given, str):
            return self.given
        maker = encoder_maker(self.given, **self.terms)
        if self.storage.folder is not None and not hasattr(maker.func, "fit"):
            announce_model("the engine", self.given)
        return maker()

    def _fit(self, encoder: Any) -> Any:
        encoder = copy.deepcopy(encoder)  # the caller's encoder stays unchanged
        with timed("fit encoder"):
            if self.texts.n_segments > 1 and self.texts.has_counts_for(encoder):
                statistics = read_statistics(self.texts.root / "0")["passage"]
                df = np.fromiter(statistics.frequencies.values(), np.int64)
                encoder.fit_frequencies(list(statistics.frequencies), df, statistics.n_texts)
            elif self.texts.has_counts_for(encoder):
                encoder.fit_counts(self.texts.counts("passage"))
            else:
                encoder.fit(self.texts.indexed.passages.texts.to_pylist())
        return encoder


def describe_encoder(encoder: Any) -> Any:
    """Return the description of an encoder as JSON values; raise InputError for any other object."""
    if not hasattr(encoder, "encode") or isinstance(encoder, str):
        raise InputError(f"an encoder needs a method encode(texts), which {type(encoder).__name__} lacks")
    if hasattr(encoder, "describe") and is_fitted(encoder):
        return description_of(encoder)
    values = encoder.get_params() if hasattr(encoder, "get_params") else {}
    return {"class": type(encoder).__name__, "parameters": values}
