"""The parameters of rankers: the arguments of their constructors, which may be rankers themselves."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np

from haybale.errors import UnknownNameError
from haybale.ranking.value_texts import shown


class RankerParameters:
    """The base of rankers: gets, sets, copies, compares and prints the arguments of their constructors."""

    name: ClassVar[str]
    variants: ClassVar[dict[str, dict[str, Any]]]

    @classmethod
    @cache
    def parameters(cls) -> dict[str, inspect.Parameter]:
        """Return the parameters of the constructor, by name."""
        return {
            name: parameter for name, parameter in inspect.signature(cls.__init__).parameters.items() if name != "self"
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with ``deep`` also those of nested rankers, as ``ranker__parameter``."""
        params = {name: getattr(self, name) for name in self.parameters()}
        nested = {name: value for name, value in params.items() if deep and isinstance(value, RankerParameters)}
        return params | {
            f"{name}__{key}": value for name, ranker in nested.items() for key, value in ranker.get_params(deep).items()
        }

    def _values(self) -> dict[str, Any]:
        """Return the parameters by name, in the hashable form in which they are compared, printed and saved."""
        return self.get_params(deep=False)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of nested rankers as ``ranker__parameter``; InputError for unknown names."""
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in self.parameters():
                raise UnknownNameError(f"parameter of {type(self).__name__}", outer, self.parameters())
            getattr(self, outer).set_params(**{inner: value}) if inner else setattr(self, outer, value)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy, with unfitted copies of the nested rankers."""
        params = {name: _cloned(value) for name, value in self.get_params(deep=False).items()}
        return type(self)(*params.pop("rankers", ()), **params)

    __sklearn_clone__ = clone

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the name as ``ranker``, and every parameter; a nested ranker as ``rankers``."""
        values = {name: _plain(value) for name, value in self._values().items()}
        nested = {"rankers": [values.pop("ranker")]} if "ranker" in values else {}
        return {"ranker": self.name} | nested | values

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and comparable(self) == comparable(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        args: list[str] = []
        for name, value in self._values().items():
            default = self.parameters()[name].default
            if name == "rankers":
                args += map(repr, value)
            elif value is not default and value != default:
                args.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(args)})"

    def __str__(self) -> str:
        """Return the ranker text, with the variant that needs the fewest further parameters."""
        texts = []
        for name, fixed in self.variants.items():
            expected = {key: parameter.default for key, parameter in self.parameters().items()} | fixed
            parts: list[str] = []
            for key, value in self._values().items():
                if key == "rankers":
                    parts += map(str, value)
                elif value is not expected[key] and shown(value) != shown(expected[key]):
                    parts.append(str(value) if key == "ranker" else f"{key}={shown(value)}")
            texts.append((len(parts), name + (f"({','.join(parts)})" if parts else "")))
        return min(texts, key=itemgetter(0))[1]


def _plain(value: Any) -> Any:
    if isinstance(value, RankerParameters):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return value.item() if isinstance(value, np.generic) else value


def comparable(value: Any) -> Any:
    """Return a hashable form that equal values share: rankers by class and parameters, lists as tuples."""
    if isinstance(value, RankerParameters):
        return type(value), *map(comparable, value._values().values())
    if isinstance(value, Mapping):
        return "mapping", *((name, comparable(value[name])) for name in sorted(value))
    return tuple(map(comparable, value)) if isinstance(value, list | tuple) else value


def _cloned(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_cloned, value))
    return value.clone() if isinstance(value, RankerParameters) else value
