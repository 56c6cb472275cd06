"""What can go wrong, as one tree.

    HaybaleError
    ├── InputError            (ValueError)       bad input; the message names what and what was expected
    │   ├── FileFormatError                      a file: carries path and line
    │   ├── UnknownNameError                     a ranker, layout, measure … that does not exist; lists the known
    │   └── VectorError                          NaN, infinity, or the wrong width
    ├── NotFittedError        (ValueError)       a ranker that has to be fitted on an engine first
    ├── MissingExtraError     (ImportError)      a package is not installed; the message is the pip line
    ├── DeviceError           (RuntimeError)     a device that is not there, two that mix, memory too small
    ├── ClusterError          (ConnectionError)  a cluster that cannot be reached, or went away
    ├── OutputExistsError     (FileExistsError)  an output folder that is not empty
    └── StoreError            (OSError)          a store of embeddings that cannot be written or read as it is

Every error also is the fitting builtin, so code that knows nothing of haybale can catch it, and every one can be
pickled, as a worker must. One warning has a name of its own, :class:`TruncationWarning`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from copyreg import __newobj__  # type: ignore[attr-defined]
from os import PathLike
from typing import Any


class HaybaleError(Exception):
    """Base of every error haybale raises on purpose."""

    def __str__(self) -> str:
        # An OSError may print "[Errno None] …" for one argument; what is quoted of other libraries may have lines.
        return " ".join(str(self.args[0]).splitlines()).strip() if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return __newobj__, (type(self), *self.args), dict(self.__dict__)  # some have an __init__ of other arguments


class InputError(HaybaleError, ValueError):
    """Input that cannot be used; nothing was written."""


class FileFormatError(InputError):
    """A file whose content is not what its layout asks for.

    >>> str(FileFormatError("qrels.tsv", 3, "expected 2 tab-separated columns, found 1"))
    'qrels.tsv, line 3: expected 2 tab-separated columns, found 1'
    """

    def __init__(self, path: str | PathLike[str], line: int | None, message: str) -> None:
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {message}")
        self.path = str(path)
        self.line = line


class UnknownNameError(InputError):
    """A name that is not one of the known ones.

    >>> str(UnknownNameError("ranker", "bm26", ["bm25", "knn"]))
    "unknown ranker 'bm26'; known: bm25, knn"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        super().__init__(f"unknown {kind} {told_apart(name, known)}; known: {', '.join(known) or 'none'}")


class VectorError(InputError):
    """Vectors with NaN or infinity, or of another width than asked for."""


class MissingExtraError(HaybaleError, ImportError):
    """A package that is not installed: one of an extra, or, with ``extra=None``, the distribution of that name.

    >>> str(MissingExtraError("torch", "neural"))
    'torch is not installed; pip install "haybale[neural]"'
    >>> str(MissingExtraError("bm25s", None))
    'bm25s is not installed; pip install bm25s'
    """

    def __init__(self, package: str, extra: str | None) -> None:
        what = package if extra is None else f'"haybale[{extra}]"'
        super().__init__(f"{package} is not installed; pip install {what}")
        self.package = package
        self.extra = extra


class NotFittedError(HaybaleError, ValueError, AttributeError):
    """A ranker that has not been fitted: call ``fit(engine)`` first."""


class DeviceError(HaybaleError, RuntimeError):
    """A device that does not exist, arrays on different ones, or memory too small for the smallest tile."""


class ClusterError(HaybaleError, ConnectionError):
    """A cluster that cannot be reached, has no worker, or went away while it worked."""


class OutputExistsError(HaybaleError, FileExistsError):
    """An output folder that exists and is not empty."""


class StoreError(HaybaleError, OSError):
    """A store that another process writes, that was begun with other settings or input, that is damaged or full.

    What it holds is left as it is; the message says what would go on.
    """


class TruncationWarning(UserWarning):
    """Texts were longer than a model reads, and were cut there; the message counts them."""


def told_apart(name: str, known: Iterable[str]) -> str:
    """A name that is none of the known ones, for a message; with the one that looks the same, if there is one.

    >>> print(told_apart("e\\u0301", ["x", "\\xe9"]))
    'e\\u0301' (there is '\\xe9': the same in another normalisation of Unicode)
    """
    same = unicodedata.normalize("NFC", str(name))
    for other in known if isinstance(name, str) else ():
        if unicodedata.normalize("NFC", other) == same:
            return f"{name!a} (there is {other!a}: the same in another normalisation of Unicode)"
    return repr(name)
