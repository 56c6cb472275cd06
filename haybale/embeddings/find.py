"""Encoders by name: ``lsa``, ``tfidf``, a folder, a hub id; and back from what one said of itself."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.errors import InputError

FITTED = {"LSAEncoder": LSAEncoder, "TfidfEncoder": TfidfEncoder}
LEXICAL = ("lsa", "tfidf")  # encoders that are fitted on the passages
LONGFORMER, SENTENCE_TRANSFORMERS = "longformer:", "sentence-transformers:"


def find_encoder(
    name: str,
    *,
    width: int = 1024,
    language: str = "english",
    max_fit_texts: int | None = None,
    random_state: int | None = 0,
    query_prompt: str = "",
    passage_prompt: str = "",
    device: str = "auto",
    **longformer: Any,
) -> Any:
    """``"lsa"`` or ``"tfidf"`` (not yet fitted); the folder of a saved one (fitted); or a neural encoder.

    ``longformer:NAME`` is a :class:`LongformerEncoder`, ``sentence-transformers:NAME`` a
    :class:`SentenceTransformerEncoder`, NAME a hub id or folder. Without such a beginning, a folder that transformers
    wrote of a Longformer is the former, anything else the latter. Prompts and device are for both, ``longformer``
    for the first alone: given to another encoder it is refused, as are prompts where there is no model to take them.
    """
    neural: dict[str, Any] = {"query_prompt": query_prompt, "passage_prompt": passage_prompt, "device": device}
    is_lexical = name in LEXICAL or (Path(name) / "manifest.json").is_file()
    is_longformer = not is_lexical and (name.startswith(LONGFORMER) or _is_longformer(Path(name)))
    unused = [] if is_longformer else sorted(longformer)
    unused += [key for key in ("query_prompt", "passage_prompt") if is_lexical and neural[key]]
    if unused:
        raise InputError(f"the encoder {name!r} takes no {unused[0]}")
    if name == "lsa":
        return LSAEncoder(width, language=language, max_fit_texts=max_fit_texts, random_state=random_state)
    if name == "tfidf":
        return TfidfEncoder(language=language)
    if is_lexical:
        return load_fitted(name)
    if is_longformer:
        from haybale.embeddings import LongformerEncoder

        return LongformerEncoder(model_name(name), **neural, **longformer)
    neural["device"] = None if device == "auto" else device
    return SentenceTransformerEncoder(model_name(name), **neural)


def model_name(name: str) -> str:
    """The hub id or folder in the name of a neural encoder.

    >>> model_name("longformer:allenai/longformer-base-4096")
    'allenai/longformer-base-4096'
    """
    return name.removeprefix(LONGFORMER).removeprefix(SENTENCE_TRANSFORMERS)


def load_fitted(folder: Path | str) -> Any:
    """An encoder that was saved after it had been fitted, of whichever class."""
    path = Path(folder) / "manifest.json"
    try:
        kind = json.loads(path.read_text(encoding="utf-8"))["class"]
        known = FITTED[kind]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: expected the manifest of a saved {' or '.join(FITTED)}") from error
    return known.load(folder)


def rebuild(described: dict[str, Any], **settings: Any) -> Any:
    """The neural encoder whose ``describe()`` this was; ``settings``, such as ``device``, are for its class."""
    from haybale import embeddings

    kind = described.get("class")
    if kind not in ("LongformerEncoder", "SentenceTransformerEncoder"):
        raise InputError(f"cannot load an encoder of class {kind!r} by its description; give the encoder itself")
    known = getattr(embeddings, str(kind))
    parameters = inspect.signature(known.__init__).parameters
    given = {name: value for name, value in described.items() if name in parameters}
    return known(given.pop("model"), **{**given, **settings})


def _is_longformer(folder: Path) -> bool:
    config = folder / "config.json"
    if not config.is_file() or (folder / "modules.json").exists():  # the latter: with modules of its own
        return False
    try:
        return bool(json.loads(config.read_text(encoding="utf-8")).get("model_type") == "longformer")
    except (ValueError, AttributeError):
        return False
