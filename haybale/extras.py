"""Import optional packages where they are used; the error for a missing package has the pip command."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from haybale.errors import MissingExtraError

_DISTRIBUTIONS = {"Stemmer": "PyStemmer"}  # modules whose distribution has another name


def import_optional(module: str, extra: str | None = None) -> ModuleType:
    """Import a module, or raise :class:`~haybale.errors.MissingExtraError` if its package is not installed.

    ``extra`` is the extra of haybale that installs the package; without it, the message names the package itself.

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
        # If the package is installed but one of its dependencies is missing, the original error says more.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(package if extra else _DISTRIBUTIONS.get(package, package), extra) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars of transformers and its report about missing heads, which haybale checks itself."""
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
