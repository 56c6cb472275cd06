"""The rankers of a service by name: trained ones from folders, and texts that are fitted on the engine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import haybale
from haybale import Engine, Ranker
from haybale.errors import InputError


def named_ranker(ranker_text: str) -> tuple[str, str]:
    """Return the name and the text of a ranker; parameters of a ranker have an equals sign, too.

    >>> named_ranker("fused=rrf(bm25,knn)"), named_ranker("bm25(k1=0.9)")
    (('fused', 'rrf(bm25,knn)'), ('bm25(k1=0.9)', 'bm25(k1=0.9)'))
    """
    name, equals, text = ranker_text.partition("=")
    return (name, text) if equals and "(" not in name else (ranker_text, ranker_text)


def named_model(named_folder: str) -> tuple[str, Path]:
    """Return the name and the folder of a trained ranker; InputError for anything but ``NAME=FOLDER``."""
    name, equals, folder = named_folder.partition("=")
    if not equals or not name:
        raise InputError(f"--model must be NAME=FOLDER, found {named_folder!r}; give the ranker a name")
    return name, Path(folder)


def fitted_rankers(
    engine: Engine, models: Iterable[tuple[str, str | Path]], rankers: Iterable[tuple[str, str]]
) -> dict[str, Ranker]:
    """Return rankers by name, fitted on an engine.

    Parameters
    ----------
    engine : Engine
    models : iterable of (str, str or Path)
        Names and folders of trained rankers.
    rankers : iterable of (str, str)
        Names and texts of others.

    Raises
    ------
    HaybaleError
        If a ranker cannot be loaded or fitted, ranks no new texts, or has the name of another one.
    """
    fitted: dict[str, Ranker] = {}
    for name, folder in models:
        fitted[name] = haybale.load(folder, engine)
    for name, text in rankers:
        if name in fitted:
            raise InputError(f"rankers need different names, found {name!r} twice; use NAME=RANKER")
        unfitted = haybale.parse(text)
        unfitted._check_answers(None)
        fitted[name] = unfitted.fit(engine)
    return fitted
