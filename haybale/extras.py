"""Import optional packages where they are used; the error for a missing package has the pip command."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from haybale.errors import InputError, MissingExtraError

_HUB_TIMEOUT_SECONDS = 5.0
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


def hub_options(name: str) -> dict[str, Any]:
    """Return the options with which the libraries of Hugging Face load a model: none, or only what is in their cache.

    One short request finds out whether the hub can be reached; the libraries themselves would retry for minutes. A path
    that does not exist raises :class:`~haybale.InputError`.

    >>> hub_options(".")
    {}
    >>> hub_options("./no-such-folder")
    Traceback (most recent call last):
    haybale.errors.InputError: './no-such-folder': expected a folder with a model, found none; check the path
    """
    if os.path.exists(name):
        return {}
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"{name!r}: expected a folder with a model, found none; check the path")
    hub = import_optional("huggingface_hub", "neural")
    constants = import_optional("huggingface_hub.constants", "neural")
    if constants.HF_HUB_OFFLINE:
        return {"local_files_only": True}
    try:
        hub.get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT_SECONDS)
    except Exception:  # of requests or of httpx, whichever the installed version uses
        return {"local_files_only": True}
    return {}


@contextmanager
def loading_model(what: str, name: str, options: dict[str, Any]) -> Iterator[None]:
    """Turn the errors of libraries that load a model with the given :func:`hub_options` into InputError."""
    try:
        yield
    except (MissingExtraError, MemoryError):
        raise
    except Exception as error:  # damaged files raise errors of almost every class
        why = f"{' '.join(str(error).split()) or type(error).__name__:.300}"
        if options:
            raise InputError(
                f"cannot load the {what} {name!r}: the hub cannot be reached, and the model is not in its cache; give "
                f"the folder of a model ({why})"
            ) from error
        raise InputError(f"cannot load the {what} {name!r}; check the hub id or folder ({why})") from error


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
