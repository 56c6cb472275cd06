"""Packages that may be missing: they are imported where they are used, and an error names the pip line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from haybale.errors import MissingExtraError

_DISTRIBUTIONS = {"Stemmer": "PyStemmer"}  # distributions with another name than their module


def import_optional(module: str, extra: str | None = None) -> ModuleType:
    """Import ``module``, or raise :class:`~haybale.errors.MissingExtraError` with its pip line.

    ``extra`` is the extra that brings the package; a package without one belongs to the base install.

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
        # A broken install, which lacks another module, keeps its own message.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(package if extra else _DISTRIBUTIONS.get(package, package), extra) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and its report of missing heads, which haybale checks itself."""
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
