"""Define the base class and the registry of encoders, parse encoder texts, and load saved encoders.

An encoder text is one of

- the name of a registered encoder, optionally with settings: ``lsa``, ``lsa(n_components=256)``,
  ``sentence-transformers('FOLDER',query_prompt='query: ')``;
- the name of a registered encoder and its model: ``longformer:allenai/longformer-base-4096``;
- the folder of an encoder or a model, or the id of a model on the hub. The registered class that recognises the folder
  loads it; all other models are loaded by sentence-transformers.
"""

from __future__ import annotations

import inspect
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from haybale.errors import FileFormatError, InputError
from haybale.grammar import Call, parse_call
from haybale.manifest import MANIFEST
from haybale.parameters import Constraints, check_parameters
from haybale.registry import Registry, undefined_methods
from haybale.returned_values import method_of, returned_json, returned_vectors
from haybale.text_files import parsed_json, read_bytes
from haybale.timing import timed
from haybale.vectors import Matrix

_DEFAULT_ENCODER = "sentence-transformers"  # loads the folders and hub ids that no other class recognises


class Encodes(Protocol):
    """Any object with ``encode``: an engine accepts it, whether or not it is an :class:`Encoder`."""

    def encode(self, texts: Sequence[str]) -> Matrix: ...


class Encoder(ABC):
    """Base class of encoders, which turn texts into vectors. Subclass it to add an encoder.

    An encoder is configured by its constructor arguments, which it stores under their own names. A subclass with a
    ``name`` is registered: the command line, :class:`~haybale.Engine` and saved engines find it by that name. A package
    outside haybale announces its module as an entry point of the group ``haybale.encoders``.

    A subclass defines :meth:`encode` and, where needed,

    - :meth:`encode_queries`, if queries are encoded differently from passages;
    - ``dim``, the number of columns, which an embedding store needs;
    - :meth:`describe`, if the vectors depend on more than the constructor arguments;
    - ``fit(texts)``, if it learns from the passages; fitted attributes have names that end in ``_``;
    - ``save(folder)`` and the class method ``load(folder)``, if it has ``fit``. ``save`` writes a ``manifest.json``
      whose ``class`` is the name of the class.

    Attributes
    ----------
    name : str
        The name in encoder texts. A class without a name can only be used as an object.
    is_sparse : bool
        Whether vectors are CSR matrices, which an embedding store cannot hold; default: False.
    """

    name: ClassVar[str]
    is_sparse: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a class that has a name; raise TypeError if it lacks methods."""
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            missing = undefined_methods(cls)
            if missing:
                raise TypeError(f"the encoder {cls.__name__} ({cls.name!r}) must define {', '.join(missing)}; add it")
            ENCODERS.add(cls.name, cls, cls)

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Matrix:
        """Encode texts.

        Parameters
        ----------
        texts : sequence of (n,) str

        Returns
        -------
        (n, d) float32 array or CSR matrix
            Each row has length 1, or 0 if the encoder knows no part of the text.
        """

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Encode queries; by default they are encoded as passages are."""
        return self.encode(texts)

    def get_params(self) -> dict[str, Any]:
        """Return the constructor arguments by name."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def describe(self) -> dict[str, Any]:
        """Return JSON values that determine the vectors; by default the class and its parameters."""
        return {"class": type(self).__name__, "parameters": self.get_params()}

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return whether this class can load a folder; by default whether an encoder of this class was saved there."""
        return bool(_saved_class(folder) == cls.__name__)


@cache
def _parameters(kind: type[Encoder]) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


ENCODERS: Registry[type[Encoder]] = Registry("encoder", "haybale.encoders")


def encode_queries(encoder: Encodes, texts: Sequence[str]) -> Matrix:
    """Encode (n,) queries to (n, d), with the encoder's own ``encode_queries`` if it has one, else as passages.

    Raise InputError if the encoder returns anything else than such vectors.
    """
    encode = getattr(encoder, "encode_queries", None)
    if encode is None:
        return encode_texts(encoder, texts)
    vectors: Matrix = returned_vectors(encode(texts), len(texts), method_of(encoder, "encode_queries"))
    return vectors


def encode_texts(encoder: Encodes, texts: Sequence[str]) -> Matrix:
    """Encode (n,) passages to (n, d); raise InputError if the encoder returns anything else than such vectors."""
    vectors: Matrix = returned_vectors(encoder.encode(texts), len(texts), method_of(encoder, "encode"))
    return vectors


def description_of(encoder: Any) -> dict[str, Any]:
    """Return what ``describe`` of an encoder returns; raise InputError unless these are JSON values."""
    return returned_json(encoder.describe(), method_of(encoder, "describe"))


def is_registered(encoder: Any) -> bool:
    """Return whether the encoder's class is registered, so that a saved encoder can be loaded."""
    return ENCODERS.find(getattr(encoder, "name", "")) is type(encoder)


def is_fitted(encoder: Any) -> bool:
    """Return whether an encoder is ready to encode: it has no ``fit``, or has attributes whose names end in ``_``."""
    return not hasattr(encoder, "fit") or any(name.endswith("_") for name in vars(encoder) if name[0] != "_")


def parse_encoder(text: str, **defaults: Any) -> Any:
    """Return the encoder that an encoder text names, with its model loaded.

    Parameters
    ----------
    text : str
        A name, a name with settings, or a folder or hub id: see the top of this module.
    **defaults
        Values of parameters that the text does not set, such as ``language``. Encoders without these parameters ignore
        them.

    Raises
    ------
    UnknownNameError
        No encoder, or no parameter of it, has this name.
    InputError
        The text cannot be parsed, a value is out of range, or the model cannot be loaded.

    Examples
    --------
    >>> parse_encoder("lsa(n_components=256)", language="german").language
    'german'
    >>> parse_encoder("tfidf(k=3)")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown parameter of tfidf 'k'; known: language, analyzer, char_ngrams, ...
    """
    return encoder_maker(text, **defaults)()


def encoder_maker(text: str, **defaults: Any) -> Any:
    """Return a :class:`functools.partial` that makes the encoder; a worker can call it to load the model itself.

    Its ``func`` is the class, or the method that loads a saved encoder, and its ``keywords`` are all arguments.
    """
    text = text.strip()
    if not text:
        raise InputError(f"expected the name of an encoder, such as 'tfidf', found {text!r}")
    head = re.match(r"([\w-]+)(:|\(|$)", text)
    is_call = head is not None and head[2] == "(" and not os.path.exists(text)
    if head is not None and (is_call or head[1] in ENCODERS):
        name, model = head[1], text[head.end() :]
        call = Call(name, (model,)) if head[2] == ":" else parse_call(text, "encoder")
        return _maker(ENCODERS[name], call, defaults)
    if len(text) > 2048 or any(len(part.encode("utf-8", "replace")) > 255 for part in Path(text).parts):
        raise InputError(f"expected the name of an encoder or a folder, found {len(text):,} characters: {text:.40}…")
    for _, kind in ENCODERS.items():
        if kind.recognises(Path(text)):
            return _maker(getattr(kind, "load", kind), Call(kind.name, (text,)), defaults)
    if (Path(text) / MANIFEST).exists():
        load_fitted(text)  # raises FileFormatError, which names the unknown class
    return _maker(ENCODERS[_DEFAULT_ENCODER], Call(_DEFAULT_ENCODER, (text,)), defaults)


def encoder_text(text: str, **more: Any) -> str:
    """Return an equal encoder text with settings by name and absolute folders, for use in any working directory.

    ``more`` are settings to add if the encoder has them and the text does not set them.

    >>> encoder_text("lsa(256)", random_state=1, query_prompt="q: ")
    'lsa(n_components=256,random_state=1)'
    >>> encoder_text("intfloat/e5-base")
    'intfloat/e5-base'
    """
    maker = encoder_maker(text, **more)
    values = {name: _absolute(value) for name, value in maker.keywords.items()}
    if list(values.values()) == [_absolute(text)]:  # the text is just a folder or a hub id
        return str(_absolute(text))
    return str(Call(maker.func.name, (), values))


def _absolute(value: Any) -> Any:
    return str(Path(value).absolute()) if isinstance(value, str) and Path(value).is_dir() else value


def _maker(make: Any, call: Call, defaults: dict[str, Any]) -> partial[Any]:
    """Return ``make`` with the arguments of a call and the defaults that it has a parameter for."""
    arguments = call.bind(make, "encoder")
    check_parameters(getattr(make, "__name__", call.name), arguments, getattr(make, "_parameter_constraints", {}))
    values = defaults | arguments
    return partial(make, **{name: values[name] for name in inspect.signature(make).parameters if name in values})


def load_fitted(folder: Path | str) -> Any:
    """Load a saved encoder of any registered class; raise :class:`FileFormatError` if its class is unknown."""
    name = _saved_class(Path(folder))
    kind = _class_named(name)
    if not hasattr(kind, "load"):
        raise FileFormatError(Path(folder) / MANIFEST, None, f"expected a saved encoder, found class {name!r}")
    return kind.load(folder)  # type: ignore[union-attr]


def rebuild(described: dict[str, Any], where: str) -> Any:
    """Make an encoder from the description that ``where`` holds, and announce its model before loading it."""
    kind = _class_named(described.get("class"))
    if kind is None or hasattr(kind, "fit"):
        raise InputError(
            f"cannot load an encoder of class {described.get('class')!r} by its description; give the encoder itself"
        )
    announce_model(where, described.get("model"))
    values = described.get("parameters", described)
    return kind(**{name: values[name] for name in inspect.signature(kind).parameters if name in values})


def announce_model(where: str, name: Any) -> None:
    """Report through the timings, before the model is loaded, that ``where`` (an engine, a store) names it."""
    with timed(f"{where} names the model {name!r}"):
        pass


def _class_named(name: Any) -> type[Encoder] | None:
    return next((kind for _, kind in ENCODERS.items() if kind.__name__ == name), None)


def _saved_class(folder: Path) -> Any:
    """Return the class in the manifest of a saved encoder; None if there is no manifest."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest = parsed_json(path, read_bytes(path))
    return manifest.get("class") if isinstance(manifest, dict) else None
