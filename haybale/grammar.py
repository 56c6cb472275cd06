"""Parse and write configured objects as text, ``name(value, key=value)``, as on the command line.

    call  = name [ "(" [ value { "," value } ] { "," key "=" value } ")" ]
    value = number | true | false | none | 'text' | word | "[" value { "," value } "]" | call

Names and words may contain hyphens. Quoted texts have no escape sequences. A text has at most 20,000 characters.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from haybale.errors import InputError, UnknownNameError

_MAX_LENGTH = 20_000  # characters; longer texts would take minutes
_HYPHEN = "__"  # replaces hyphens in names for Python's parser
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}


class BareWord(str):
    """A text without quotes, which may be a name."""

    __slots__ = ()


@dataclass(frozen=True)
class Call:
    """A name with positional and named values.

    >>> str(Call("lsa", (256,), {"language": "german", "char_ngrams": (3, 4)}))
    "lsa(256,language='german',char_ngrams=[3,4])"
    """

    name: str
    args: tuple[Any, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        inside = [*map(_written, self.args), *(f"{name}={_written(value)}" for name, value in self.params.items())]
        return f"{self.name}({','.join(inside)})" if inside else self.name

    def bind(self, make: Callable[..., Any], kind: str) -> dict[str, Any]:
        """Return the values by the names of the parameters of ``make``; ``kind`` is for error messages.

        >>> Call("lsa", (256,), {"language": "german"}).bind(lambda n_components, language: None, "encoder")
        {'n_components': 256, 'language': 'german'}
        """
        signature = inspect.signature(make)
        for name in self.params:
            if name not in signature.parameters:
                raise UnknownNameError(f"parameter of {self.name}", name, signature.parameters)
        try:
            return signature.bind(*self.args, **self.params).arguments
        except TypeError as error:
            names = ", ".join(signature.parameters)
            raise InputError(f"{kind} {str(self)!r}: {error}; set its parameters by name (known: {names})") from None


def parse_call(text: str, kind: str) -> Call:
    """Parse one call, or a name without values; ``kind`` is for error messages.

    >>> parse_call("lsa(256, char_ngrams=[3, 4], language=german)", "encoder")
    Call(name='lsa', args=(256,), params={'char_ngrams': (3, 4), 'language': 'german'})
    >>> parse_call("lsa(256", "encoder")
    Traceback (most recent call last):
    haybale.errors.InputError: encoder 'lsa(256' cannot be read: '(' was never closed; write name(value, key=value)
    """
    [call] = parse_values(text, kind)[:1]
    if isinstance(call, BareWord):
        return Call(call)
    if not isinstance(call, Call):
        raise InputError(f"{kind} {text!r} cannot be read: expected a name; write name(value, key=value)")
    return call


def parse_values(text: str, kind: str) -> list[Any]:
    """Parse values separated by commas; a name without parentheses becomes a :class:`BareWord`.

    >>> parse_values("bm25, rrf(knn), 0.5", "ranker")
    ['bm25', Call(name='rrf', args=('knn',), params={}), 0.5]
    """
    if len(text) > _MAX_LENGTH:
        shown = f"{text[:30]!r}… of {len(text):,} characters"
        raise InputError(f"{kind}: expected a text of at most {_MAX_LENGTH:,} characters, found {shown}; shorten it")
    written = re.sub(
        r"""'([^']*)'|"([^"]*)"|(?<=[A-Za-z_\d])-(?=[A-Za-z_])""",
        lambda match: _HYPHEN if match[0] == "-" else repr(match[1] or match[2] or ""),
        text.strip(),
    )
    try:
        body = ast.parse(written, mode="eval").body
        return [_value(node) for node in (body.elts if isinstance(body, ast.Tuple) else [body])]
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = getattr(error, "msg", error)
        raise InputError(f"{kind} {text!r} cannot be read: {reason}; write name(value, key=value)") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=values):
            return tuple(map(_value, values))
        case ast.Name():
            name = _name(node)
            return _CONSTANTS.get(name.lower(), BareWord(name))
        case ast.Call(func=ast.Name() as name, args=args, keywords=keywords):
            params = {keyword.arg or "": _value(keyword.value) for keyword in keywords}
            if len(params) < len(keywords) or "" in params:
                names = ", ".join(keyword.arg or f"**{ast.unparse(keyword.value)}" for keyword in keywords)
                raise InputError(f"parameters must have distinct names, found {names}")
            return Call(_name(name), tuple(map(_value, args)), params)
    raise InputError(f"expected a value, found {ast.unparse(node).replace(_HYPHEN, '-')!r}; put texts in quotes")


def _name(node: ast.Name) -> str:
    return node.id.replace(_HYPHEN, "-")


def _written(value: Any) -> str:
    """Return the text of a value, which :func:`parse_call` reads."""
    if isinstance(value, str):
        quote = "'" if "'" not in value else '"'
        if quote in value:
            raise InputError(f"a text must not contain both ' and \", found {value!r}")
        return f"{quote}{value}{quote}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_written, value))}]"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
