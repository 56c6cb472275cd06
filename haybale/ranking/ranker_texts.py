"""Make rankers from ranker texts such as ``learned(bm25-doc(k1=6),svr)``, and from plain values of JSON and YAML.

    ranker = name [ "(" [ argument { "," argument } ] { "," parameter "=" value } ")" ]
    argument = ranker | 'text' | "[" 'text' { "," 'text' } "]"
    value  = number | true | false | none | 'text' | "[" value { "," value } "]" | ranker

Each class of rankers registers its names in :data:`haybale.rankers.RANKERS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.grammar import BareWord, Call, parse_values
from haybale.ranking.contract import RankerContract
from haybale.ranking.ranker import RANKERS, Ranker
from haybale.ranking.ranker_parameters import comparable
from haybale.text_files import read_text

_MAX_NESTING = 32  # levels of rankers in rankers; deeper ones would take minutes to rank
_MAX_FILE_BYTES = 2**20  # of a YAML or JSON file


def ranker_names() -> list[str]:
    """Return the names of all rankers, including those of other installed packages."""
    return [name for name, (kind, _) in RANKERS.items() if name in kind.variants]


def parse(text: str) -> Ranker:
    """Parse a ranker text.

    Parameters
    ----------
    text : str
        The name of a ranker, with nested rankers and parameters in parentheses.

    Raises
    ------
    InputError
        If the text cannot be parsed, or if a name or parameter is unknown or out of range.

    Examples
    --------
    >>> parse("rrf(bm25-doc(k1=6), knn)")
    RRF(BM25(unit='document', k1=6), KNN())
    >>> parse("bm26")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown ranker 'bm26' (did you mean bm25?)
    """
    values = parse_values(text, "ranker")
    if len(values) != 1:
        raise InputError(f"ranker {text!r}: expected one ranker, found {len(values)}")
    return _ranker(values[0], text)


def parse_all(text: str) -> list[Ranker]:
    """Parse rankers separated by commas.

    >>> parse_all("bm25, rrf(bm25,knn)")
    [BM25(), RRF(BM25(), KNN())]
    """
    return [_ranker(value, text) for value in parse_values(text, "ranker")]


def parse_value(text: str) -> Any:
    """Parse the value of ``--set name=value``: a number, true, false, none, a list, a ranker, or else a text."""
    try:
        values = parse_values(text, "value")
        return _with_rankers(values[0], text) if len(values) == 1 else text
    except InputError:
        return text


def _ranker(value: Any, text: str) -> Ranker:
    """Make the ranker of a parsed name or call."""
    if isinstance(value, BareWord):
        return _make(value, [], {})
    if isinstance(value, Call):
        params = {name: _with_rankers(parameter, text) for name, parameter in value.params.items()}
        return _make(value.name, [_argument(value.name, arg, text) for arg in value.args], params)
    raise InputError(f"ranker {text!r}: expected the name of a ranker, found {value!r}")


def _argument(name: str, value: Any, text: str) -> Any:
    """Return an argument without a name: a ranker, or texts for a class whose first parameter is no ranker."""
    variant = RANKERS.find(name)
    values = value if isinstance(value, tuple) else (value,)
    if variant is not None and all(isinstance(part, str) and not isinstance(part, BareWord) for part in values):
        first_parameter = next(iter(variant.ranker.parameters()), "rankers")
        if first_parameter not in ("ranker", "rankers"):
            return value
    return _ranker(value, text)


def _with_rankers(value: Any, text: str) -> Any:
    """Replace the names and calls of rankers in a parsed value by rankers."""
    if isinstance(value, tuple):
        return tuple(_with_rankers(element, text) for element in value)
    if isinstance(value, Call) or (isinstance(value, BareWord) and _is_ranker(value)):
        return _ranker(value, text)
    return str(value) if isinstance(value, BareWord) else value


def read_yaml(path: Path) -> Ranker:
    """Read a ranker from a YAML or JSON file: a value for :func:`from_spec`, or the ``ranker.json`` of a saved ranker.

    Raises :class:`~haybale.FileFormatError` if the file is not YAML or holds no ranker. YAML aliases (``*name``) are
    refused, because a few of them can stand for gigabytes. So are files of more than 1 MiB, and lists and objects
    nested more than 128 levels deep.
    """
    from haybale.ranking.plain_yaml import load_plain_yaml

    text = read_text(path, _MAX_FILE_BYTES)
    try:
        spec = load_plain_yaml(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            path, None, f"expected YAML, found a syntax error: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(spec, str | dict):
        raise FileFormatError(
            path, None, f"expected the name of a ranker, or an object with 'ranker', found {spec!r:.80}"
        )
    if isinstance(spec, dict) and isinstance(spec.get("ranker"), dict):  # as Ranker.save writes it
        spec = spec["ranker"]
    return from_spec(spec)


def _make(name: str, args: Sequence[Any], params: Mapping[str, Any]) -> Ranker:
    """Make a ranker by its name, and check its parameters."""
    variant = RANKERS.find(name)
    if variant is None:
        raise UnknownNameError("ranker", name, ranker_names())
    kind, fixed = variant
    parameter_names = [parameter for parameter in kind.parameters() if parameter != "rankers"]
    for parameter in params:
        if parameter not in parameter_names:
            raise UnknownNameError(f"parameter of {name}", parameter, parameter_names)
    try:
        ranker = kind(*args, **{**fixed, **params})
    except TypeError as error:
        raise _misfit(kind, name, args, {**fixed, **params}, str(error)) from None
    if _nesting(ranker) > _MAX_NESTING:
        raise InputError(
            f"at most {_MAX_NESTING} rankers can be nested in each other, found {name} above more; use fewer"
        )
    ranker._check_params()
    return ranker


def _misfit(kind: type[Ranker], name: str, args: Sequence[Any], params: Mapping[str, Any], reason: str) -> InputError:
    """Return the error for the arguments of a constructor, which raised a TypeError for ``reason``."""
    parameters, args_text = [*kind.parameters().values()], ", ".join(map(str, args))
    required = [
        parameter.name
        for parameter in parameters[len(args) :]
        if parameter.default is parameter.empty and parameter.kind != parameter.VAR_POSITIONAL
    ]
    missing = [required_name for required_name in required if required_name not in params]
    if missing:
        values = [
            "bm25" if missing_name == "ranker" else f"{missing_name}='{missing_name.upper()}'"
            for missing_name in missing
        ]
        example = ",".join([*map(str, args), *values])
        what = " and ".join(
            "a ranker" if missing_name == "ranker" else f"the parameter {missing_name}" for missing_name in missing
        )
        return InputError(f"{name} needs {what}; write {name}({example}), for example")
    n_unnamed = sum(parameter.kind == parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
    if len(args) > n_unnamed:
        return InputError(
            f"{name} takes at most {n_unnamed} values without a name, found {args_text}; write the others as name=value"
        )
    taken = [parameter.name for parameter in parameters[: len(args)] if parameter.name in params]
    if taken:
        return InputError(f"{name} must get {taken[0]} once, found {args_text} and {params[taken[0]]}; omit one")
    names = ", ".join(parameter.name for parameter in parameters)
    return InputError(f"{name} cannot be made, found {reason}; give its parameters: {names}")


def _nesting(ranker: RankerContract) -> int:
    """Return the number of levels of nested rankers, this one included."""
    return 1 + max(map(_nesting, ranker.nested()), default=0)


def from_spec(spec: Ranker | Mapping[str, Any] | str) -> Ranker:
    """Make a ranker from a ranker text or from plain values like those of :meth:`Ranker.to_dict`.

    Omitted parameters have their defaults. A ranker is returned unchanged. Raises :class:`InputError` as :func:`parse`
    does.

    >>> from_spec({"ranker": "rrf", "rankers": ["bm25-doc", {"ranker": "bm25", "k1": 0.9}]})
    RRF(BM25(unit='document'), BM25(k1=0.9))
    """
    if isinstance(spec, Ranker):
        return spec
    if isinstance(spec, str):
        return parse(spec)
    if not isinstance(spec, Mapping) or not isinstance(spec.get("ranker"), str):
        raise InputError(f"expected the name of a ranker, or an object with 'ranker', found {spec!r}")
    params = {str(name): _from_plain(value) for name, value in spec.items() if name != "ranker"}
    args = params.pop("rankers", ())
    if not isinstance(args, tuple):
        raise InputError(f"{spec['ranker']}: 'rankers' must be a list of rankers, found {args!r}")
    return _make(spec["ranker"], args, params)


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping) and "ranker" in value:
        return from_spec(value)
    if isinstance(value, list | tuple):
        elements = map(_from_plain, value)
        return tuple(
            parse(element) if isinstance(element, str) and _is_ranker(element) else element for element in elements
        )
    return value


def _is_ranker(text: str) -> bool:
    return re.split(r"[(\s]", text.strip(), maxsplit=1)[0] in RANKERS


def set_values(ranker: Ranker, values: Mapping[str, Any]) -> Ranker:
    """Return a copy with parameters set by name, in the ranker and its nested rankers.

    ``k1`` is set in every ranker that has it, ``bm25-doc.k1`` in BM25 over documents, weighted or not, and ``bm25.k1``
    in BM25 over passages and in PARM over BM25. If a value changes default rankers, such as those of ``learned`` and
    ``svr``, they become explicit parameters; those that have a value other than the default keep it, and of equal ones
    the first stays. Raises :class:`UnknownNameError` for a ranker or parameter that no ranker has.

    >>> set_values(parse("learned(bm25,bm25-doc)"), {"bm25-doc.k1": 6, "unseen_share": 0.5})
    Learned(BM25(), BM25(unit='document', k1=6), unseen_share=0.5)
    """
    return set_all([ranker], values)[0]


def set_all(rankers: Sequence[Ranker], values: Mapping[str, Any]) -> list[Ranker]:
    """Return copies of rankers with parameters set as by :func:`set_values`; some ranker must have each name."""
    copies = [ranker.clone() for ranker in rankers]
    names_set = {name for ranker in copies for name in _set(ranker, values)}
    for name in values:
        if name not in names_set:
            owner, _, parameter = name.rpartition(".")
            raise _unknown(owner, parameter, rankers)
    for ranker in copies:
        ranker._check_params()
    return copies


def _unknown(owner: str, parameter: str, rankers: Sequence[Ranker]) -> UnknownNameError:
    """Return the error for ``owner.parameter``, which no ranker has."""
    nested = [inner for ranker in rankers for inner in _with_nested(ranker)]
    texts = ", ".join(map(str, rankers))
    if owner and RANKERS.find(owner) is None:
        return UnknownNameError("ranker", owner, ranker_names())
    owners = [ranker for ranker in nested if not owner or _is_called(ranker, owner, parameter)]
    if not owners:
        return UnknownNameError(f"ranker within {texts}", owner, dict.fromkeys(map(_variant, nested)))
    names = sorted({name for ranker in owners for name in ranker.parameters() if name != "rankers"})
    return UnknownNameError(f"parameter of {owner or texts}", parameter, names)


def _set(ranker: RankerContract, values: Mapping[str, Any], *, is_default: bool = False) -> set[str]:
    """Set values by name, and return the names of those that were set in some ranker.

    ``is_default`` says that the ranker stands in for an omitted parameter of another one.
    """
    names = [name for name in values if _takes(ranker, name, is_default)]
    for name in names:
        setattr(ranker, name.rpartition(".")[2], values[name])
    for parameter, defaults in ranker._implied().items():
        names_of_defaults = {name for default in defaults for name in _set(default, values, is_default=True)}
        if names_of_defaults:
            distinct: dict[Any, RankerContract] = {}
            for default in defaults:
                distinct.setdefault(comparable(default), default)
            ranker._make_explicit(parameter, tuple(distinct.values()))
            return names_of_defaults.union(names)
    return {*names}.union(*(_set(inner, values, is_default=is_default) for inner in ranker.nested()))


def _takes(ranker: RankerContract, name: str, is_default: bool) -> bool:
    """Return whether a value with a name such as ``k1`` or ``bm25.k1`` is set in this ranker."""
    owner, _, parameter = name.rpartition(".")
    if parameter not in ranker.parameters() or (owner and not _is_called(ranker, owner, parameter)):
        return False
    default_value = ranker.parameters()[parameter].default
    return not is_default or default_value is inspect.Parameter.empty or getattr(ranker, parameter) == default_value


def _with_nested(ranker: RankerContract) -> Iterator[RankerContract]:
    """Yield a ranker and all nested rankers, default ones too."""
    yield ranker
    for inner in [*ranker.nested(), *(default for defaults in ranker._implied().values() for default in defaults)]:
        yield from _with_nested(inner)


def _is_called(ranker: RankerContract, name: str, parameter: str) -> bool:
    """Return whether ``name.parameter`` means this ranker: ``name`` is its variant, or else the name of its class."""
    if ranker._answers_to(name, parameter):
        return True
    variant = RANKERS.find(name)
    return name == (_variant(ranker) if variant is not None and name in variant.ranker.variants else ranker.name)


def _variant(ranker: RankerContract) -> str:
    return str(ranker).partition("(")[0]
