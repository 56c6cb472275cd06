"""Where the judgements of an engine are kept if no file is named."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from haybale.engine import Engine
from haybale.errors import InputError
from haybale.review.engine_of_judgements import belongs_to
from haybale.review.judgement_store import APPLICATION, JudgementStore

SHARED_NAME = "judgements.sqlite"  # the default of earlier versions, for all engines in one parent folder


def judgement_file_of(engine: Engine | str | Path) -> Path:
    """Return the file that keeps the judgements of an engine if no other is named.

    It is ``NAME-judgements.sqlite`` beside the engine's folder, where NAME is the name of the folder without symbolic
    links. Earlier versions used ``judgements.sqlite`` beside the folder for all engines there; such a file is still
    used for the engine that it belongs to, until a file of the new name exists, and for no other engine.

    Parameters
    ----------
    engine : Engine, str or Path
        An engine in a folder, or its folder.

    Raises
    ------
    InputError
        For an engine in memory.
    StoreError
        If the file of earlier versions is damaged, so that nobody knows whose judgements it has.
    """
    folder = engine.folder if isinstance(engine, Engine) else Path(engine)
    if folder is None:
        raise InputError("an engine in memory has no file of judgements; give judgements=")
    real = Path(os.path.realpath(folder))
    path = real.with_name(f"{real.name}-judgements.sqlite")
    if path.exists():
        return path
    earlier = dict.fromkeys(each.parent / SHARED_NAME for each in (real, Path(os.path.abspath(folder))))
    for candidate in earlier:
        if candidate.is_file() and _is_store(candidate):
            opened = engine if isinstance(engine, Engine) else Engine.open(folder)
            with JudgementStore(candidate, read_only=True) as store:
                if (store.owner is not None or store.topics()) and belongs_to(store, opened):
                    return candidate
    return path


def _is_store(path: Path) -> bool:
    """Return whether a file is a store of judgements, and not a database of another program."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION)
    except sqlite3.DatabaseError:
        return True  # perhaps one that is damaged: opening it says so
