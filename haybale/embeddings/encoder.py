"""Encoders: the base class, the registry, encoders written as text, and encoders loaded from what was saved.

The text of an encoder is one of

- the name of a registered encoder, with settings if need be: ``lsa``, ``lsa(n_components=256)``,
  ``sentence-transformers('FOLDER',query_prompt='query: ')``;
- a name and the model behind it: ``longformer:allenai/longformer-base-4096``;
- the folder of an encoder or a model, or the id of a model on the hub. The registered class that recognises the folder
  reads it; all other models are read by sentence-transformers.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.grammar import Call, parse_call
from haybale.manifest import MANIFEST
from haybale.parameters import Constraints, check_parameters
from haybale.registry import Registry, undefined_methods
from haybale.text_files import parsed_json
from haybale.timing import timed
from haybale.vectors import Matrix

_DEFAULT = "sentence-transformers"  # reads what no other class recognises


class Encodes(Protocol):
    """Any object with ``encode``: an engine accepts it, whether or not it is an :class:`Encoder`."""

    def encode(self, texts: Sequence[str]) -> Matrix: ...


class Encoder(ABC):
    """The base class of encoders: subclass it to add one.

    An encoder turns texts into vectors. It is configured by its constructor, which keeps each argument under its own
    name. A subclass with a ``name`` is registered: the command line, :class:`~haybale.Engine` and saved engines find it
    by that name. Its module is found through an entry point of the group ``haybale.encoders``.

    A subclass defines :meth:`encode`, and, where needed,

    - :meth:`encode_queries`, if queries are encoded differently from passages;
    - ``dim``, the number of columns: an embedding store needs it;
    - :meth:`describe`, if more than the constructor's arguments decides the vectors;
    - ``fit(texts)``, if it learns from the passages; what it learns is kept in attributes whose names end in ``_``;
    - ``save(folder)`` and the class method ``load(folder)``, if it has ``fit``. The folder that it writes holds a
      ``manifest.json`` whose ``class`` is the name of the class.

    Attributes
    ----------
    name : str
        The name in the grammar; a class without one is used as an object only.
    is_sparse : bool
        Whether vectors are CSR matrices, which an embedding store cannot hold; default: False.
    """

    name: ClassVar[str]
    is_sparse: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a class that has a name; TypeError names the methods that it lacks."""
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            missing = undefined_methods(cls)
            if missing:
                raise TypeError(f"the encoder {cls.__name__} ({cls.name!r}) does not define {', '.join(missing)}")
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
            Each row has length 1, or 0 where no part of the text is known.
        """

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Encode queries, as :meth:`encode` does; default: as passages."""
        return self.encode(texts)

    def get_params(self) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def describe(self) -> dict[str, Any]:
        """Return JSON values that decide the vectors: default, the class and its parameters."""
        return {"class": type(self).__name__, "parameters": self.get_params()}

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return whether a folder holds what this class reads; default: an encoder of the class that was saved."""
        return bool(_saved_class(folder) == cls.__name__)


ENCODERS: Registry[type[Encoder]] = Registry("encoder", "haybale.encoders")


def encode_queries(encoder: Encodes, texts: Sequence[str]) -> Matrix:
    """Encode (n,) queries to (n, d), by the encoder's own ``encode_queries`` if it has one, else as passages."""
    own = getattr(encoder, "encode_queries", None)
    return encoder.encode(texts) if own is None else own(texts)


def is_registered(encoder: Any) -> bool:
    """Return whether the encoder's class can be found by its name, so that a saved encoder can be loaded."""
    return ENCODERS.find(getattr(encoder, "name", "")) is type(encoder)


def is_fitted(encoder: Any) -> bool:
    """Return whether an encoder needs no fit: it has no ``fit``, or attributes whose names end in ``_``."""
    return not hasattr(encoder, "fit") or any(name.endswith("_") for name in vars(encoder) if name[0] != "_")


def parse_encoder(text: str, **defaults: Any) -> Any:
    """Return the encoder that a text names; a model is loaded.

    Parameters
    ----------
    text : str
        As at the top of this module.
    **defaults
        Parameters that hold where the text does not set them, such as ``language``; encoders without them ignore them.

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
    """Return what :func:`parse_encoder` calls: a worker can load the model itself with it.

    Its ``func`` is the class, or the method that loads a saved encoder, and its ``keywords`` are all arguments.
    """
    text = text.strip()
    if not text:
        raise InputError("expected the name of an encoder, found an empty text")
    head = re.match(r"([\w-]+)(:|\(|$)", text)
    is_call = head is not None and head[2] == "(" and not Path(text).exists()
    if head is not None and (is_call or head[1] in ENCODERS):
        name, model = head[1], text[head.end() :]
        call = Call(name, (model,)) if head[2] == ":" else parse_call(text, "encoder")
        return _maker(ENCODERS[name], call, defaults)
    for _, kind in ENCODERS.items():
        if kind.recognises(Path(text)):
            return _maker(getattr(kind, "load", kind), Call(kind.name, (text,)), defaults)
    if (Path(text) / MANIFEST).exists():
        load_fitted(text)  # refuses it: the class is unknown
    return _maker(ENCODERS[_DEFAULT], Call(_DEFAULT, (text,)), defaults)


def encoder_text(text: str, **more: Any) -> str:
    """Return the text that names the same encoder from any working directory: settings by name, absolute folders.

    ``more`` are settings to add where the encoder has them and the text does not set them.

    >>> encoder_text("lsa(256)", random_state=1, query_prompt="q: ")
    'lsa(n_components=256,random_state=1)'
    >>> encoder_text("intfloat/e5-base")
    'intfloat/e5-base'
    """
    maker = encoder_maker(text, **more)
    values = {name: _absolute(value) for name, value in maker.keywords.items()}
    if list(values.values()) == [_absolute(text)]:  # the folder or the id itself says it all
        return str(_absolute(text))
    return str(Call(maker.func.name, (), values))


def _absolute(value: Any) -> Any:
    return str(Path(value).absolute()) if isinstance(value, str) and Path(value).is_dir() else value


def _maker(make: Any, call: Call, defaults: dict[str, Any]) -> partial[Any]:
    """Return ``make`` with the arguments of a call and the defaults that it has a parameter for."""
    signature = inspect.signature(make)
    for name in call.params:
        if name not in signature.parameters:
            raise UnknownNameError(f"parameter of {call.name}", name, signature.parameters)
    try:
        given = signature.bind(*call.args, **call.params).arguments
    except TypeError as error:
        raise InputError(f"encoder {str(call)!r}: {error}") from None
    check_parameters(getattr(make, "__name__", call.name), given, getattr(make, "_parameter_constraints", {}))
    values = defaults | given
    return partial(make, **{name: values[name] for name in signature.parameters if name in values})


def load_fitted(folder: Path | str) -> Any:
    """Load an encoder that was saved after it had been fitted, of any registered class."""
    name = _saved_class(Path(folder))
    kind = _class_named(name)
    if not hasattr(kind, "load"):
        raise FileFormatError(Path(folder) / MANIFEST, None, f"expected a saved encoder, found class {name!r}")
    return kind.load(folder)  # type: ignore[union-attr]


def rebuild(described: dict[str, Any], where: str) -> Any:
    """Make the encoder whose ``describe()`` this was, found ``where``; its model is named before it is loaded."""
    kind = _class_named(described.get("class"))
    if kind is None or hasattr(kind, "fit"):
        raise InputError(
            f"cannot load an encoder of class {described.get('class')!r} by its description; give the encoder itself"
        )
    announce_model(where, described.get("model"))
    values = described.get("parameters", described)
    return kind(**{name: values[name] for name in inspect.signature(kind).parameters if name in values})


def announce_model(where: str, name: Any) -> None:
    """Report, as a stage of no length, which model is named in what was opened, before it is loaded."""
    with timed(f"{where} names the model {name!r}"):
        pass


def _class_named(name: Any) -> type[Encoder] | None:
    return next((kind for _, kind in ENCODERS.items() if kind.__name__ == name), None)


def _saved_class(folder: Path) -> Any:
    """Return the class that the manifest of a saved encoder names; None where there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    found = parsed_json(path, path.read_bytes())
    return found.get("class") if isinstance(found, dict) else None
