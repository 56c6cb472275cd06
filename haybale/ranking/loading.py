"""Load rankers that :meth:`haybale.rankers.Ranker.save` wrote."""

from __future__ import annotations

from pathlib import Path

from haybale.engine import Engine
from haybale.ranking.ranker import Ranker
from haybale.ranking.ranker_texts import from_spec
from haybale.ranking.saved_rankers import read_ranker_manifest, restored


def load(folder: str | Path, engine: Engine) -> Ranker:
    """Load a saved ranker on the engine that it was fitted on.

    Parameters
    ----------
    folder : str or Path
        The folder that :meth:`Ranker.save <haybale.rankers.Ranker.save>` wrote.
    engine : Engine
        The same engine. Documents may have been added or removed since.

    Raises
    ------
    FileFormatError
        If files are missing or changed, or have another format or version.
    InputError
        If the ranker was fitted on another engine.
    """
    folder = Path(folder)
    manifest = read_ranker_manifest(folder)
    return restored((from_spec(entry["ranker"]) for entry in manifest["fitted"]), folder, manifest, engine)
