"""Any sentence-transformers model, by hub id or from a local folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haybale.embeddings.encoder import check_texts
from haybale.errors import InputError
from haybale.extras import require
from haybale.vectors import Floats, check_vectors, normalized


class SentenceTransformerEncoder:
    """Encodes with a ``SentenceTransformer`` (extra ``neural``), L2-normalised.

    ``model`` is a hub id, a local folder as sentence-transformers saves them, or a loaded
    ``SentenceTransformer``; ``batch_size`` texts go through the model at once, sorted by length by
    sentence-transformers itself; ``device`` is ``"cpu"``, ``"cuda"``, … or None for its choice.

    Errors: :class:`MissingExtraError` without the extra; :class:`InputError` where neither a folder nor a
    reachable hub has the model.
    """

    def __init__(self, model: Any, *, batch_size: int = 64, device: str | None = None) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, found {batch_size}")
        self.batch_size = batch_size
        library = require("sentence_transformers", "neural")
        if isinstance(model, (str, Path)):
            try:
                self.model = library.SentenceTransformer(str(model), device=device)
            except (OSError, ValueError) as error:
                raise InputError(f"cannot load the sentence-transformers model {str(model)!r}: {error}") from error
        else:
            self.model = model

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32; a text longer than the model reads is cut there, as the model does."""
        vectors = self.model.encode(
            list(check_texts(texts)),
            batch_size=self.batch_size,
            convert_to_numpy=True,
            show_progress_bar=sys.stderr.isatty(),
        )
        return normalized(check_vectors(np.asarray(vectors, dtype=np.float32), "encoder output"))
