"""Rankers as text: ``learned(bm25-doc(k1=6),svr-doc)`` to objects and back, and as plain values for JSON and YAML.

    ranker   = name [ "(" argument { "," argument } ")" ]
    argument = ranker | parameter "=" value
    value    = number | true | false | none | 'text' | "[" value { "," value } "]" | ranker

This is the one place where names become rankers: a new one has its names in its class, and a place in :data:`KINDS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.rankers.bm25 import BM25
from haybale.rankers.cross_encoder import CrossEncoder
from haybale.rankers.knn import KNN
from haybale.rankers.learned import Learned
from haybale.rankers.parm import PARM
from haybale.rankers.ranker import Ranker
from haybale.rankers.rrf import RRF
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.svr import SVR

KINDS: tuple[type[Ranker], ...] = (BM25, KNN, SimilarQueries, SVR, PARM, RRF, Learned, CrossEncoder)
RANKERS: dict[str, tuple[type[Ranker], dict[str, Any]]] = {
    name: (kind, fixed) for kind in KINDS for name, fixed in kind.names.items()
}
SHORT = {"vrrf": "parm-vrrf"}


def parse(text: str) -> Ranker:
    """The ranker that a text names.

    Parameters
    ----------
    text : str
        A name, with settings and other rankers in parentheses; :class:`InputError` for any other text.

    Examples
    --------
    >>> parse("rrf(bm25-doc(k1=6), knn)")
    RRF(BM25('document', k1=6), KNN())
    >>> parse("bm26")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown ranker 'bm26'; known: bm25, bm25-doc, ...
    """
    reader = _Reader(text)
    found = reader.ranker()
    reader.end()
    return found


def parse_all(text: str) -> list[Ranker]:
    """Rankers separated by commas.

    >>> parse_all("bm25, rrf(bm25,knn)")
    [BM25(), RRF(BM25(), KNN())]
    """
    reader = _Reader(text)
    found = [reader.ranker()]
    while reader.accept(","):
        found.append(reader.ranker())
    reader.end()
    return found


def find_ranker(given: Ranker | str | Mapping[str, Any]) -> Ranker:
    """A ranker as it is, by name, or from plain values."""
    if isinstance(given, Ranker):
        return given
    return parse(given) if isinstance(given, str) else from_spec(given)


def read_yaml(path: Path) -> Ranker:
    """The ranker that a YAML or JSON file describes, as :func:`from_spec` takes it; or that was saved, by its JSON."""
    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FileFormatError(path, None, f"expected YAML: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not isinstance(spec, str | dict):
        raise FileFormatError(path, None, "expected the name of a ranker, or an object with 'ranker'")
    if isinstance(spec, dict) and isinstance(spec.get("ranker"), dict):  # what saving a ranker writes
        spec = spec["ranker"]
    return find_ranker(spec)


class _Reader:
    """Reads the grammar from left to right."""

    _TOKEN = re.compile(
        r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w-]))"
        r"|(?P<name>[A-Za-z_][\w-]*)|(?P<mark>[(),=\[\]]))"
    )

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._split())
        self.place = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        place, text = 0, self.text.rstrip()
        while place < len(text):
            match = self._TOKEN.match(text, place)
            if match is None:
                raise InputError(f"ranker {self.text!r}: cannot read {text[place:].strip()[:20]!r}")
            kind = str(match.lastgroup)
            yield kind, match[kind]
            place = match.end()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else ("end", "")

    def accept(self, mark: str) -> bool:
        if self.peek() == ("mark", mark):
            self.place += 1
            return True
        return False

    def end(self) -> None:
        if self.place < len(self.tokens):
            self._refuse("the end")

    def _refuse(self, expected: str) -> None:
        found = repr(self.peek()[1]) if self.peek()[0] != "end" else "the end"
        raise InputError(f"ranker {self.text!r}: expected {expected}, found {found}; parentheses may not match")

    def ranker(self) -> Ranker:
        kind, name = self.peek()
        if kind != "name":
            self._refuse("the name of a ranker")
        self.place += 1
        args: list[Ranker] = []
        params: dict[str, Any] = {}
        if self.accept("(") and not self.accept(")"):
            while True:
                if self.peek()[0] == "name" and self.peek(1) == ("mark", "="):
                    parameter = self.peek()[1]
                    if parameter in params:
                        raise InputError(f"ranker {self.text!r}: {parameter} stands there twice")
                    self.place += 2
                    params[parameter] = self.value()
                else:
                    args.append(self.ranker())
                if self.accept(")"):
                    break
                if not self.accept(","):
                    self._refuse("',' or ')'")
        return made(name, args, params)

    def value(self) -> Any:
        kind, text = self.peek()
        if kind == "text":
            self.place += 1
            return text[1:-1]
        if kind == "number":
            self.place += 1
            return float(text) if re.search(r"[.eE]", text) else int(text)
        if kind == "name" and text.lower() in _WORDS:
            self.place += 1
            return _WORDS[text.lower()]
        if self.accept("["):
            items = []
            while not self.accept("]"):
                items.append(self.value())
                if self.peek() != ("mark", "]") and not self.accept(","):
                    self._refuse("',' or ']'")
            return tuple(items)
        if kind == "name":
            following = self.peek(1)
            if text in RANKERS or text in SHORT or following == ("mark", "("):
                return self.ranker()
            self.place += 1
            return text
        self._refuse("a value")
        return None


_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}


def made(name: str, args: list[Ranker], params: Mapping[str, Any]) -> Ranker:
    """The ranker of that name; parameters that it does not have are refused."""
    name = SHORT.get(name, name)
    if name not in RANKERS:
        by_class: dict[str, tuple[type[Ranker], dict[str, Any]]] = {kind.name: (kind, {}) for kind in KINDS}
        if name not in by_class:
            raise UnknownNameError("ranker", name, [*RANKERS, *SHORT])
    kind, fixed = RANKERS[name] if name in RANKERS else by_class[name]
    known = [p.name for p in kind._parameters().values() if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    for parameter in params:
        if parameter not in known:
            raise UnknownNameError(f"parameter of {name}", parameter, known)
    try:
        ranker = kind(*args, **{**fixed, **params})
    except TypeError:
        needs = [p.name for p in kind._parameters().values() if p.default is p.empty and p.name in known]
        wanted = f" wants {' and '.join(needs)}" if needs else " fuses no rankers"
        raise InputError(
            f"{name}{wanted}; found {len(args)} rankers and {', '.join(params) or 'no parameters'}"
        ) from None
    ranker.check_params()
    return ranker


def from_spec(spec: Mapping[str, Any] | str) -> Ranker:
    """The ranker of plain values, as :meth:`Ranker.to_dict` gives them; any name of the grammar will do.

    Parameters that are left out are as by default.

    >>> from_spec({"ranker": "rrf", "rankers": ["bm25-doc", {"ranker": "bm25", "k1": 0.9}]})
    RRF(BM25('document'), BM25(k1=0.9))
    """
    if isinstance(spec, str):
        return parse(spec)
    if not isinstance(spec, Mapping) or not isinstance(spec.get("ranker"), str):
        raise InputError(f"a ranker is a name, or an object with 'ranker', found {spec!r}")
    params = {str(name): _unplain(value) for name, value in spec.items() if name != "ranker"}
    args = params.pop("rankers", ())
    if not isinstance(args, tuple):
        raise InputError(f"{spec['ranker']}: 'rankers' is a list of rankers, found {args!r}")
    return made(str(spec["ranker"]), list(args), params)


def _unplain(value: Any) -> Any:
    if isinstance(value, Mapping) and "ranker" in value:
        return from_spec(value)
    if isinstance(value, list | tuple):
        items = tuple(_unplain(each) for each in value)
        return tuple(parse(each) if isinstance(each, str) and _is_ranker(each) else each for each in items)
    return value


def _is_ranker(text: str) -> bool:
    return re.split(r"[(\s]", text.strip(), maxsplit=1)[0] in {*RANKERS, *SHORT}


def set_values(ranker: Ranker, values: Mapping[str, Any]) -> Ranker:
    """Set parameters by name, here and in every ranker within that has them.

    ``k1`` is set wherever there is a k1; ``bm25-doc.k1`` only in rankers of that name, ``bm25.k1`` in BM25 over
    passages wherever it is, PARM over BM25 included. Rankers that a ranker makes itself, as ``learned`` and
    ``svr-doc`` do, become its parameters where a value changes them. A name that nothing has raises.

    >>> set_values(parse("learned(bm25,bm25-doc)"), {"bm25-doc.k1": 6, "unseen_share": 0.5})
    Learned(BM25(), BM25('document', k1=6), unseen_share=0.5)
    """
    return set_all([ranker], values)[0]


def set_all(rankers: Sequence[Ranker], values: Mapping[str, Any]) -> list[Ranker]:
    """The same for several rankers at once, of which one at least has each name.

    >>> set_all([parse("bm25"), parse("bm25-doc"), parse("knn")], {"bm25.k1": 0.9})
    [BM25(k1=0.9), BM25('document'), KNN()]
    """
    copies = [ranker.clone() for ranker in rankers]
    for name, value in values.items():
        whose, _, parameter = name.rpartition(".")
        if not sum(_set(ranker, whose, parameter, value) for ranker in copies):
            inside = sorted({p for each in rankers for r in _all(each) for p in r._parameters() if p != "rankers"})
            raise UnknownNameError(f"parameter of {', '.join(map(str, rankers))}", name, inside)
    for ranker in copies:
        ranker.check_params()
    return copies


def _set(ranker: Ranker, whose: str, parameter: str, value: Any) -> int:
    """In how many rankers it was set."""
    found = 0
    if parameter in ranker._parameters() and (not whose or _is_called(ranker, whose, parameter)):
        setattr(ranker, parameter, value)
        found += 1
    for name, made in ranker.implied().items():
        changed = sum(_set(each, whose, parameter, value) for each in made)
        if changed:
            setattr(ranker, name, made)
            return found + changed
    return found + sum(_set(inner, whose, parameter, value) for inner in ranker.nested())


def _all(ranker: Ranker) -> Iterator[Ranker]:
    yield ranker
    for inner in [*ranker.nested(), *(each for made in ranker.implied().values() for each in made)]:
        yield from _all(inner)


def _is_called(ranker: Ranker, name: str, parameter: str) -> bool:
    """Whether a name of the grammar is the ranker's; a name that is none of the grammar's is that of a class."""
    name = SHORT.get(name, name)
    if name == "bm25" and isinstance(ranker, PARM) and ranker.over == "bm25" and parameter in ("k1", "b"):
        return True
    return (str(ranker).partition("(")[0] if name in RANKERS else ranker.name) == name


def parse_value(text: str) -> Any:
    """A value of ``--set name=value``: a number, true, false, none, a list, a ranker, or the text itself."""
    try:
        reader = _Reader(text)
        found = reader.value()
        reader.end()
    except InputError:
        return text
    return found
