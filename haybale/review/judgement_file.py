"""Where the judgements of an engine are kept if no file is named."""

from __future__ import annotations

import os
from pathlib import Path

from haybale.engine import Engine
from haybale.errors import InputError, StoreError
from haybale.review.judgement_store import JudgementStore


def judgement_file_of(engine: Engine | str | Path) -> Path:
    """Return the file that keeps the judgements of an engine if no other is named.

    It is ``NAME-judgements.sqlite`` beside the engine's folder, where NAME is the name of the folder without symbolic
    links.

    Parameters
    ----------
    engine : Engine, str or Path
        An engine in a folder, or its folder.

    Raises
    ------
    InputError
        For an engine in memory.
    StoreError
        If there is no such file, and ``judgements.sqlite`` beside it, the name that earlier builds used for all engines
        in a folder, has the judgements of this engine.
    """
    folder = engine.folder if isinstance(engine, Engine) else Path(engine)
    if folder is None:
        raise InputError("an engine in memory has no file of judgements; give judgements=")
    real = Path(os.path.realpath(folder))
    path, shared = real.with_name(f"{real.name}-judgements.sqlite"), real.with_name("judgements.sqlite")
    if shared.is_file() and not path.exists():
        with JudgementStore(shared, read_only=True) as store:
            if store.owner is not None and store.owner.folder == str(real):
                raise StoreError(f"{path}: expected the judgements of {real}, found them in {shared}; rename that file")
    return path
