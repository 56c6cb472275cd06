"""Define errors and warnings; :class:`HaybaleError` is the base class of all errors.

Every error is also an instance of a matching builtin error, so that code that does not know haybale can catch it. Every
error can be pickled, so that worker processes can raise it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from copyreg import __newobj__  # type: ignore[attr-defined]
from difflib import SequenceMatcher, get_close_matches
from os import PathLike
from typing import Any

_MAX_LISTED_NAMES = 12  # if there are more valid names, a message with a suggestion does not list them


class HaybaleError(Exception):
    """Base class of all errors that haybale raises on purpose."""

    def __str__(self) -> str:
        # OSError would print "[Errno None] …", and quoted messages of other libraries may have several lines.
        return " ".join(str(self.args[0]).splitlines()).strip() if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return __newobj__, (type(self), *self.args), dict(self.__dict__)  # __init__ has other arguments than args


class InputError(HaybaleError, ValueError):
    """Invalid input; nothing was written."""


class FileFormatError(InputError):
    """Invalid content of a file; ``path`` and ``line`` say where.

    >>> str(FileFormatError("qrels.tsv", 3, "expected 2 tab-separated columns, found 1"))
    'qrels.tsv, line 3: expected 2 tab-separated columns, found 1'
    """

    def __init__(self, path: str | PathLike[str], line: int | None, message: str) -> None:
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {message}")
        self.path = str(path)
        self.line = line


class UnknownNameError(InputError):
    """An unknown name; the message suggests similar names, or lists the known ones.

    >>> str(UnknownNameError("ranker", "bm26", ["bm25", "knn"]))
    "unknown ranker 'bm26' (did you mean bm25?); known: bm25, knn"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        valid_names = list(known)
        message = f"unknown {kind} {told_apart(name, valid_names)}"
        similar = _similar(str(name), valid_names)
        if similar:
            message += f" (did you mean {' or '.join(similar)}?)"
        if not similar or len(valid_names) <= _MAX_LISTED_NAMES:
            message += f"; known: {', '.join(valid_names) or 'none'}"
        super().__init__(message)


def _similar(name: str, valid_names: list[str]) -> list[str]:
    """Return up to three valid names that are similar to a mistyped name, the most likely first.

    Names that differ only in hyphens, underscores or case exclude all others. Names that contain the mistyped name, or
    that it contains between hyphens, come before names with a similar spelling.

    >>> _similar("bm25doc", ["bm25", "bm25-doc"]), _similar("vrrf", ["rrf", "parm-vrrf"])
    (['bm25-doc'], ['parm-vrrf', 'rrf'])
    """
    same = [other for other in valid_names if _letters(other) == _letters(name)]
    if same:
        return same[:3]
    related = [other for other in valid_names if (len(name) > 2 and name in other) or f"-{other}-" in f"-{name}-"]
    related.sort(key=lambda other: SequenceMatcher(None, name, other).ratio(), reverse=True)
    return list(dict.fromkeys([*related, *get_close_matches(name, valid_names, cutoff=0.7)]))[:3]


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


class VectorError(InputError):
    """Vectors with NaN or infinity, or of the wrong width."""


class MissingExtraError(HaybaleError, ImportError):
    """A package that is not installed; ``extra`` is the extra of haybale that installs it, or None if there is none.

    >>> str(MissingExtraError("torch", "neural"))
    'torch is not installed; pip install "haybale[neural]"'
    >>> str(MissingExtraError("zarr", None))
    'zarr is not installed; pip install zarr'
    """

    def __init__(self, package: str, extra: str | None, needed: str = "") -> None:
        what = package if extra is None else f'"haybale[{extra}]"'
        super().__init__(f"{package} is not installed{needed and f' ({needed})'}; pip install {what}")
        self.package = package
        self.extra = extra


class NotFittedError(HaybaleError, ValueError, AttributeError):
    """A ranker that has not been fitted; call ``fit(engine)`` first."""


class DeviceError(HaybaleError, RuntimeError):
    """A device that does not exist, arrays on different devices, or too little memory."""


class ClusterError(HaybaleError, ConnectionError):
    """A cluster that cannot be reached, has no worker, or was lost during the computation."""


class SearchServiceError(HaybaleError, ConnectionError):
    """A search service that cannot be reached, refuses a search, or answers with a part of the results."""


class OutputExistsError(HaybaleError, FileExistsError):
    """An output folder that exists and is not empty."""


class StoreError(HaybaleError, OSError):
    """An embedding store that is in use by another process, has other settings or input, or is damaged or full.

    The store has not been changed; the message says what to do next.
    """


class StoppedError(HaybaleError):
    """Work that was stopped before its end, because nobody waits for it any more or its time was over."""


class TruncationWarning(UserWarning):
    """Texts were truncated to the limit of the model; the message counts them."""


def told_apart(name: str, known: Iterable[str]) -> str:
    """Return the repr of an unknown name; if a known name looks the same, show how the two differ.

    >>> print(told_apart("e\\u0301", ["x", "\\xe9"]))
    'e\\u0301' (there is '\\xe9', which is the same in another Unicode normalisation)
    """
    same = unicodedata.normalize("NFC", str(name))
    for other in known if isinstance(name, str) else ():
        if unicodedata.normalize("NFC", other) == same:
            return f"{name!a} (there is {other!a}, which is the same in another Unicode normalisation)"
    return repr(name)
