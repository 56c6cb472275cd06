"""The encoder of an engine: loaded, or fitted on the documents it was built from, when it is first needed."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from haybale.embeddings import EmbeddingStore, encoder_maker
from haybale.embeddings.encoder import announce_model, is_fitted, is_registered, load_fitted, rebuild
from haybale.engine.storage import Storage
from haybale.engine.texts import Texts
from haybale.errors import InputError
from haybale.timing import timed


@dataclass(eq=False)
class EncoderSource:
    """Where an engine's encoder comes from: from a store, the engine's folder, or what was given."""

    given: Any  # a text that names the encoder, its description, or the encoder itself
    texts: Texts  # which it is fitted on, if it needs to be fitted
    terms: dict[str, Any]  # language and perhaps analyzer, for a text that does not set them
    storage: Storage
    store: EmbeddingStore | None  # which the engine's vectors come from
    is_kept: bool  # whether the engine was finished with the fitted encoder in its folder

    @property
    def encoder(self) -> Any:
        """The encoder, fitted."""
        with self.storage.lock:
            return self._encoder

    @property
    def keeps(self) -> bool:
        """Whether the engine's folder holds the encoder; others are loaded by their text, or given again."""
        can_save = all(hasattr(self.encoder, method) for method in ("fit", "save", "load"))
        return self.store is None and can_save and is_registered(self.encoder)

    @cached_property
    def _encoder(self) -> Any:
        if self.store is not None:
            return self.store.encoder()
        kept = None if self.storage.folder is None else self.storage.folder / "encoder"
        with timed("load encoder"):
            if kept is not None and (self.is_kept or kept.exists()):
                return load_fitted(kept)
            encoder = self._loaded()
        return encoder if is_fitted(encoder) else self._fitted(encoder)

    def _loaded(self) -> Any:
        if isinstance(self.given, dict):
            return rebuild(self.given, "the engine")
        if not isinstance(self.given, str):
            return self.given
        maker = encoder_maker(self.given, **self.terms)
        if self.storage.folder is not None and not hasattr(maker.func, "fit"):
            announce_model("the engine", self.given)
        return maker()

    def _fitted(self, encoder: Any) -> Any:
        encoder = copy.deepcopy(encoder)  # the caller's object stays unchanged
        with timed("fit encoder"):
            if self.texts.are_counted_for(encoder):
                encoder.fit_counts(self.texts.counts("passage"))
            else:
                encoder.fit(self.texts.cut.passages.texts.to_pylist())
        return encoder


def described(encoder: Any) -> Any:
    """Return what an encoder says of itself, as JSON values; InputError for an object that is no encoder."""
    if not hasattr(encoder, "encode") or isinstance(encoder, str):
        raise InputError(f"an encoder has a method encode, which {type(encoder).__name__} lacks")
    if hasattr(encoder, "describe") and is_fitted(encoder):
        return encoder.describe()
    values = encoder.get_params() if hasattr(encoder, "get_params") else {}
    return {"class": type(encoder).__name__, "parameters": values}
