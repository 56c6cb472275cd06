"""What an encoder is: texts in, L2-normalised float32 vectors out; and encoders by name, saved or described."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.errors import FileFormatError, InputError
from haybale.extras import import_optional
from haybale.text_files import parsed_json
from haybale.timing import timed
from haybale.vectors import Floats

FITTED = {"LSAEncoder": LSAEncoder, "TfidfEncoder": TfidfEncoder}
LEXICAL = ("lsa", "tfidf")  # encoders that are fitted on the passages
LONGFORMER, SENTENCE_TRANSFORMERS = "longformer:", "sentence-transformers:"


@runtime_checkable
class Encoder(Protocol):
    """Anything with ``encode``; a store also asks for ``dim`` and ``describe()``."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32, each row of length 1 (or 0, if no part of the text is known)."""
        ...


def encode_queries(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n,) queries to (n, d): by the encoder's own ``encode_queries`` if it has one, else as passages are."""
    own = getattr(encoder, "encode_queries", None)
    return encoder.encode(texts) if own is None else own(texts)


def make_encoder(
    name: str,
    *,
    n_components: int = 1024,
    language: str = "english",
    max_fit_texts: int | None = None,
    random_state: int | None = 0,
    query_prompt: str = "",
    passage_prompt: str = "",
    device: str | None = None,
    **longformer: Any,
) -> Any:
    """An encoder by its name.

    Parameters
    ----------
    name : str
        ``"lsa"`` or ``"tfidf"`` (not yet fitted); the folder of one that was saved (fitted); ``longformer:NAME`` or
        ``sentence-transformers:NAME``, NAME a hub id or folder. Without such a beginning, a folder that transformers
        wrote of a Longformer is the former, anything else the latter.
    n_components, max_fit_texts, random_state, language, query_prompt, passage_prompt, device, **longformer
        Of LSA; of LSA and TF-IDF; of neural encoders; of a Longformer alone. What is not taken: :class:`InputError`.
    """
    prompts: dict[str, Any] = {"query_prompt": query_prompt, "passage_prompt": passage_prompt}
    if not model_name(name):
        raise InputError("expected the name of an encoder, found an empty text")
    is_lexical = name in LEXICAL or (Path(name) / "manifest.json").is_file()
    is_longformer = not is_lexical and (name.startswith(LONGFORMER) or _is_longformer(Path(name)))
    unused = [] if is_longformer else sorted(longformer)
    unused += [key for key, value in prompts.items() if is_lexical and value]
    if unused:
        raise InputError(f"the encoder {name!r} takes no {unused[0]}")
    if name == "lsa":
        return LSAEncoder(n_components, language=language, max_fit_texts=max_fit_texts, random_state=random_state)
    if name == "tfidf":
        return TfidfEncoder(language=language)
    if is_lexical:
        return load_fitted(name)
    kind = longformer_encoder() if is_longformer else SentenceTransformerEncoder
    return kind(model_name(name), device=device, **prompts, **longformer)


def model_name(name: str) -> str:
    """The hub id or folder in the name of a neural encoder.

    >>> model_name("longformer:allenai/longformer-base-4096")
    'allenai/longformer-base-4096'
    """
    return name.removeprefix(LONGFORMER).removeprefix(SENTENCE_TRANSFORMERS)


def longformer_encoder() -> Any:
    """The class, a module of torch, which the base install lacks: so it is imported when it is asked for."""
    for package in ("torch", "transformers", "sentence_transformers"):
        import_optional(package, "neural")
    from haybale.embeddings.longformer import LongformerEncoder

    return LongformerEncoder


def load_fitted(folder: Path | str) -> Any:
    """An encoder that was saved after it had been fitted, of whichever class."""
    path = Path(folder) / "manifest.json"
    try:
        known = FITTED[parsed_json(path, path.read_bytes())["class"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(path, None, f"expected the manifest of a saved {' or '.join(FITTED)}") from error
    return known.load(folder)


def rebuild(described: dict[str, Any], where: str) -> Any:
    """The neural encoder whose ``describe()`` this was, found ``where``; its model is said before it is loaded."""
    kind = described.get("class")
    if kind not in ("LongformerEncoder", "SentenceTransformerEncoder"):
        raise InputError(f"cannot load an encoder of class {kind!r} by its description; give the encoder itself")
    say_model(where, described.get("model"))
    known = longformer_encoder() if kind == "LongformerEncoder" else SentenceTransformerEncoder
    parameters = inspect.signature(known.__init__).parameters
    return known(**{name: value for name, value in described.items() if name in parameters})


def say_model(where: str, name: Any) -> None:
    """Tell whoever listens which model is named in what was opened, before it is loaded."""
    with timed(f"{where} names the model {name!r}"):
        pass  # a stage is told of when it has ended


def _is_longformer(folder: Path) -> bool:
    config = folder / "config.json"
    if not config.is_file() or (folder / "modules.json").exists():  # the latter: with modules of its own
        return False
    try:
        return bool(parsed_json(config, config.read_bytes()).get("model_type") == "longformer")
    except (ValueError, AttributeError):
        return False
