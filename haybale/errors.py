"""Errors and warnings.

    HaybaleError
    ├── InputError            (ValueError)       bad input; the message names what and what was expected
    │   ├── FileFormatError                      a file: carries path and line
    │   ├── UnknownNameError                     a ranker, layout, measure … that does not exist
    │   └── VectorError                          NaN, infinity, or the wrong width
    ├── NotFittedError        (ValueError)       a ranker that has to be fitted on an engine first
    ├── MissingExtraError     (ImportError)      a package is not installed; the message is the pip line
    ├── DeviceError           (RuntimeError)     a device that is not there, two that mix, memory too small
    ├── ClusterError          (ConnectionError)  a cluster that cannot be reached, or went away
    ├── OutputExistsError     (FileExistsError)  an output folder that is not empty
    └── StoreError            (OSError)          a store of embeddings that cannot be written or read as it is

Every error is also an instance of the fitting builtin, so code that does not know haybale can catch it, and every
error can be pickled, so that it crosses from a worker process.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from copyreg import __newobj__  # type: ignore[attr-defined]
from difflib import SequenceMatcher, get_close_matches
from os import PathLike
from typing import Any

_FEW = 12  # names that a message lists beside a suggestion


class HaybaleError(Exception):
    """Base class of all errors that haybale raises on purpose."""

    def __str__(self) -> str:
        # An OSError of one argument may print "[Errno None] …", and a quoted message of another library several lines.
        return " ".join(str(self.args[0]).splitlines()).strip() if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return __newobj__, (type(self), *self.args), dict(self.__dict__)  # not through __init__, whose arguments differ


class InputError(HaybaleError, ValueError):
    """Input that cannot be used; nothing was written."""


class FileFormatError(InputError):
    """A file whose content does not fit its layout.

    >>> str(FileFormatError("qrels.tsv", 3, "expected 2 tab-separated columns, found 1"))
    'qrels.tsv, line 3: expected 2 tab-separated columns, found 1'
    """

    def __init__(self, path: str | PathLike[str], line: int | None, message: str) -> None:
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {message}")
        self.path = str(path)
        self.line = line


class UnknownNameError(InputError):
    """A name that is not one of the known ones; the message suggests similar names, or lists those there are.

    >>> str(UnknownNameError("ranker", "bm26", ["bm25", "knn"]))
    "unknown ranker 'bm26' (did you mean bm25?); known: bm25, knn"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        message = f"unknown {kind} {told_apart(name, known)}"
        similar = _similar(str(name), known)
        if similar:
            message += f" (did you mean {' or '.join(similar)}?)"
        if not similar or len(known) <= _FEW:
            message += f"; known: {', '.join(known) or 'none'}"
        super().__init__(message)


def _similar(name: str, known: list[str]) -> list[str]:
    """Return up to three known names that a mistyped one may stand for, the likeliest first.

    A name that differs only in hyphens, underscores or case is the only suggestion. Names that contain the mistyped
    text, or that it contains between hyphens, come before names that are spelled alike.

    >>> _similar("bm25doc", ["bm25", "bm25-doc"]), _similar("vrrf", ["rrf", "parm-vrrf"])
    (['bm25-doc'], ['parm-vrrf', 'rrf'])
    """
    same = [each for each in known if _letters(each) == _letters(name)]
    if same:
        return same[:3]
    related = [each for each in known if (len(name) > 2 and name in each) or f"-{each}-" in f"-{name}-"]
    related.sort(key=lambda each: SequenceMatcher(None, name, each).ratio(), reverse=True)
    return list(dict.fromkeys([*related, *get_close_matches(name, known, cutoff=0.7)]))[:3]


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


class VectorError(InputError):
    """Vectors with NaN or infinity, or of an unexpected width."""


class MissingExtraError(HaybaleError, ImportError):
    """A package that is not installed; ``extra`` is the extra that brings it; None: the base install.

    >>> str(MissingExtraError("torch", "neural"))
    'torch is not installed; pip install "haybale[neural]"'
    >>> str(MissingExtraError("zarr", None))
    'zarr is not installed; pip install zarr'
    """

    def __init__(self, package: str, extra: str | None) -> None:
        what = package if extra is None else f'"haybale[{extra}]"'
        super().__init__(f"{package} is not installed; pip install {what}")
        self.package = package
        self.extra = extra


class NotFittedError(HaybaleError, ValueError, AttributeError):
    """A ranker that has not been fitted: call ``fit(engine)`` first."""


class DeviceError(HaybaleError, RuntimeError):
    """A device that does not exist, arrays on different devices, or memory too small for the smallest tile."""


class ClusterError(HaybaleError, ConnectionError):
    """A cluster that cannot be reached, has no worker, or went away while it worked."""


class OutputExistsError(HaybaleError, FileExistsError):
    """An output folder that exists and is not empty."""


class StoreError(HaybaleError, OSError):
    """A store that another process is writing, that was begun with other settings or input, or that is damaged or full.

    The content of the store is not changed; the message names the next step.
    """


class TruncationWarning(UserWarning):
    """Texts were longer than the model's limit and were cut; the message counts them."""


def told_apart(name: str, known: Iterable[str]) -> str:
    """Return an unknown name as messages show it, with the known name that looks the same, if there is one.

    >>> print(told_apart("e\\u0301", ["x", "\\xe9"]))
    'e\\u0301' (there is '\\xe9': the same in another normalisation of Unicode)
    """
    same = unicodedata.normalize("NFC", str(name))
    for other in known if isinstance(name, str) else ():
        if unicodedata.normalize("NFC", other) == same:
            return f"{name!a} (there is {other!a}: the same in another normalisation of Unicode)"
    return repr(name)
