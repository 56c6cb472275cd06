"""Packages that may be absent, of an extra or the base install: imported where they are used, named where missing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from haybale.errors import MissingExtraError

_DISTRIBUTIONS = {"Stemmer": "PyStemmer", "faiss": "faiss-cpu"}  # where they are not named as the module is


def import_optional(module: str, extra: str | None = None) -> ModuleType:
    """Import ``module``, or raise :class:`~haybale.errors.MissingExtraError` with its pip line.

    That is the line of ``extra``, or, without one, of the distribution itself, which is part of the base install.

    >>> import_optional("no_such_package", "neural")
    Traceback (most recent call last):
    haybale.errors.MissingExtraError: no_such_package is not installed; pip install "haybale[neural]"
    >>> import_optional("no_such_package.part")
    Traceback (most recent call last):
    haybale.errors.MissingExtraError: no_such_package is not installed; pip install no_such_package
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only "the package itself is absent" is ours to explain; a broken install speaks for itself.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(package if extra else _DISTRIBUTIONS.get(package, package), extra) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' report of missing heads, and its bars: what matters of a model is checked, and raised."""
    logging = import_optional("transformers.utils.logging", "neural")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
