"""Encoders by name: ``lsa``, ``tfidf``, a folder, a hub id; and back from what they said of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.embeddings.encoder import Encoder

LEXICAL = ("lsa",)
LONGFORMER = "longformer:"


def load_fitted(folder: Path | str) -> Any:
    raise NotImplementedError


def rebuild(described: dict[str, Any], **settings: Any) -> Encoder:
    raise NotImplementedError
