"""Settings of an engine from the options of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import haybale
from haybale.cli.options import given
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale import Chunking


def engine_settings(language: str | None, **settings: Any) -> dict[str, Any]:
    """Return the settings that were given, with an absolute folder for a store."""
    from haybale.analysis import Analyzer

    if language is not None:
        Analyzer(language)  # refuses an unknown one
    if settings["store"] is not None and Path(settings["store"]).is_dir():
        settings["store"] = str(Path(settings["store"]).absolute())
    return given(language=language, **settings)


def chunking_of(length: int | None, stride: int | None, **how: Any) -> Chunking | None:
    """Return how passages are cut into pieces, or None if they stay whole."""
    for name in given(stride=stride, **how):
        if length is None:
            raise InputError(f"{name} is of pieces: say how long with --pieces")
    return None if length is None else haybale.Chunking(length, stride, **how)
