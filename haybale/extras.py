"""Optional packages: imported where they are used, and named by their pip line where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from haybale.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, or raise :class:`~haybale.errors.MissingExtraError` with the pip line of ``extra``.

    >>> require("json", "neural").__name__
    'json'
    >>> require("no_such_package", "neural")
    Traceback (most recent call last):
    haybale.errors.MissingExtraError: no_such_package is not installed; pip install "haybale[neural]"
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only "the package itself is absent" is ours to explain; a broken install speaks for itself.
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtraError(module.partition(".")[0], extra) from error
