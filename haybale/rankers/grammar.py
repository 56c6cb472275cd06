"""Rankers as text: ``learned(bm25-doc(k1=6),svr)`` to objects and back, and as plain values for JSON and YAML.

    ranker = name [ "(" [ ranker { "," ranker } ] { "," parameter "=" value } ")" ]
    value  = number | true | false | none | 'text' | "[" value { "," value } "]" | ranker

Names come from the registry of :mod:`haybale.rankers.ranker`, where each class of rankers registers itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.grammar import Call, Word, parse_values
from haybale.rankers.ranker import RANKERS, Ranker
from haybale.text_files import read_text


def ranker_names() -> list[str]:
    """Return the names of all rankers, those of installed packages outside haybale too."""
    return [name for name, (kind, _) in RANKERS.items() if name in kind.variants]


def parse(text: str) -> Ranker:
    """Parse the ranker that a text names.

    Parameters
    ----------
    text : str
        A name, with other rankers and settings in parentheses; :class:`InputError` for any other text.

    Examples
    --------
    >>> parse("rrf(bm25-doc(k1=6), knn)")
    RRF(BM25(unit='document', k1=6), KNN())
    >>> parse("bm26")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown ranker 'bm26' (did you mean bm25?)
    """
    found = parse_values(text, "ranker")
    if len(found) != 1:
        raise InputError(f"ranker {text!r}: expected one ranker, found {len(found)}")
    return _ranker(found[0], text)


def parse_all(text: str) -> list[Ranker]:
    """Parse rankers separated by commas.

    >>> parse_all("bm25, rrf(bm25,knn)")
    [BM25(), RRF(BM25(), KNN())]
    """
    return [_ranker(each, text) for each in parse_values(text, "ranker")]


def parse_value(text: str) -> Any:
    """Parse a value of ``--set name=value``: a number, true, false, none, a list, a ranker, or the text itself."""
    try:
        found = parse_values(text, "value")
        return _with_rankers(found[0], text) if len(found) == 1 else text
    except InputError:
        return text


def _ranker(value: Any, text: str) -> Ranker:
    """Make the ranker that a name or call stands for."""
    if isinstance(value, Word):
        return made(value, [], {})
    if isinstance(value, Call):
        params = {name: _with_rankers(each, text) for name, each in value.params.items()}
        return made(value.name, [_ranker(each, text) for each in value.args], params)
    raise InputError(f"ranker {text!r}: expected the name of a ranker, found {value!r}")


def _with_rankers(value: Any, text: str) -> Any:
    """Replace names and calls of rankers in a value by the rankers."""
    if isinstance(value, tuple):
        return tuple(_with_rankers(each, text) for each in value)
    if isinstance(value, Call) or (isinstance(value, Word) and _is_ranker(value)):
        return _ranker(value, text)
    return str(value) if isinstance(value, Word) else value


def read_yaml(path: Path) -> Ranker:
    """Read the ranker that a YAML or JSON file describes, in the form of :func:`from_spec` or as a saved one's JSON."""
    text = read_text(path)
    try:
        spec = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # of dates, long numbers, or lists in lists in lists
        raise FileFormatError(path, None, f"expected YAML: {' '.join(str(error).split())}") from None
    if not isinstance(spec, str | dict):
        raise FileFormatError(path, None, "expected the name of a ranker, or an object with 'ranker'")
    if isinstance(spec, dict) and isinstance(spec.get("ranker"), dict):  # what saving a ranker writes
        spec = spec["ranker"]
    return from_spec(spec)


def made(name: str, args: Sequence[Any], params: Mapping[str, Any]) -> Ranker:
    """Make the ranker of a name; parameters that it does not have are refused."""
    found = RANKERS.find(name)
    if found is None:
        raise UnknownNameError("ranker", name, ranker_names())
    kind, fixed = found
    known = [parameter for parameter in kind.parameters() if parameter != "rankers"]
    for parameter in params:
        if parameter not in known:
            raise UnknownNameError(f"parameter of {name}", parameter, known)
    try:
        ranker = kind(*args, **{**fixed, **params})
    except TypeError as error:
        raise InputError(f"{name}: {str(error).removeprefix(f'{kind.__name__}.__init__() ')}") from None
    ranker.check_params()
    return ranker


def from_spec(spec: Ranker | Mapping[str, Any] | str) -> Ranker:
    """Make a ranker of plain values, as :meth:`Ranker.to_dict` gives them, or of a text; a ranker is returned as it is.

    Any name of the grammar is accepted; parameters that are left out have their defaults.

    >>> from_spec({"ranker": "rrf", "rankers": ["bm25-doc", {"ranker": "bm25", "k1": 0.9}]})
    RRF(BM25(unit='document'), BM25(k1=0.9))
    """
    if isinstance(spec, Ranker):
        return spec
    if isinstance(spec, str):
        return parse(spec)
    if not isinstance(spec, Mapping) or not isinstance(spec.get("ranker"), str):
        raise InputError(f"a ranker is a name, or an object with 'ranker', found {spec!r}")
    params = {str(name): _unplain(value) for name, value in spec.items() if name != "ranker"}
    for name, default in RANKERS[spec["ranker"]].ranker.removed_parameters.items():
        if (value := params.pop(name, default)) != default:
            raise InputError(f"{spec['ranker']}: {name}={value!r} was removed, only {default!r} is left; fit it anew")
    args = params.pop("rankers", ())
    if not isinstance(args, tuple):
        raise InputError(f"{spec['ranker']}: 'rankers' is a list of rankers, found {args!r}")
    return made(spec["ranker"], args, params)


def _unplain(value: Any) -> Any:
    if isinstance(value, Mapping) and "ranker" in value:
        return from_spec(value)
    if isinstance(value, list | tuple):
        items = map(_unplain, value)
        return tuple(parse(each) if isinstance(each, str) and _is_ranker(each) else each for each in items)
    return value


def _is_ranker(text: str) -> bool:
    return re.split(r"[(\s]", text.strip(), maxsplit=1)[0] in RANKERS


def set_values(ranker: Ranker, values: Mapping[str, Any]) -> Ranker:
    """Set parameters by name, here and in every ranker within that has them.

    ``k1`` is set in every ranker that has it; ``bm25-doc.k1`` only in rankers of that name; ``bm25.k1`` in BM25 over
    passages, also where PARM searches it. Default rankers within a ranker, as in ``learned`` and ``svr``, become its
    parameters if a value changes them. An unknown name raises.

    >>> set_values(parse("learned(bm25,bm25-doc)"), {"bm25-doc.k1": 6, "unseen_share": 0.5})
    Learned(BM25(), BM25(unit='document', k1=6), unseen_share=0.5)
    """
    return set_all([ranker], values)[0]


def set_all(rankers: Sequence[Ranker], values: Mapping[str, Any]) -> list[Ranker]:
    """Set parameters of several rankers, at least one of which has each name."""
    copies = [ranker.clone() for ranker in rankers]
    for name, value in values.items():
        whose, _, parameter = name.rpartition(".")
        if not sum(_set(ranker, whose, parameter, value) for ranker in copies):
            raise _unknown(whose, parameter, rankers)
    for ranker in copies:
        ranker.check_params()
    return copies


def _unknown(whose: str, parameter: str, rankers: Sequence[Ranker]) -> UnknownNameError:
    """Return the error for ``whose.parameter``, which no ranker has: the ranker or the parameter is unknown."""
    within = [inner for ranker in rankers for inner in _all(ranker)]
    if whose and RANKERS.find(whose) is None:
        return UnknownNameError("ranker", whose, ranker_names())
    called = [each for each in within if not whose or _is_called(each, whose, parameter)]
    if not called:
        names = dict.fromkeys(str(each).partition("(")[0] for each in within)
        return UnknownNameError(f"ranker within {', '.join(map(str, rankers))}", whose, names)
    known = sorted({name for each in called for name in each.parameters() if name != "rankers"})
    return UnknownNameError(f"parameter of {whose or ', '.join(map(str, rankers))}", parameter, known)


def _set(ranker: Ranker, whose: str, parameter: str, value: Any) -> int:
    """Set one value, and return in how many rankers."""
    found = 0
    if parameter in ranker.parameters() and (not whose or _is_called(ranker, whose, parameter)):
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
    """Return whether a name of the grammar, or else of a class, is the ranker's."""
    if ranker.answers_to(name, parameter):
        return True
    found = RANKERS.find(name)
    return (
        str(ranker).partition("(")[0] if found is not None and name in found.ranker.variants else ranker.name
    ) == name
