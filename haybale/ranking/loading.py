"""Load rankers that :meth:`haybale.rankers.Ranker.save` wrote."""

from __future__ import annotations

from pathlib import Path

from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.manifest import check_all_files, digest, read_manifest
from haybale.ranking.learned_state import state_digests
from haybale.ranking.ranker import FORMAT, MANIFEST, VERSION, Ranker
from haybale.ranking.ranker_texts import from_spec
from haybale.ranking.twins import Twins

_FITTED_KINDS = {"ranker": (str, dict), "within": [range(2**20)], "digest": (str, None), "facts": dict}
_MANIFEST_KINDS = {"engine": str, "fitted": [_FITTED_KINDS]}


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
    head = {"format": FORMAT, "version": VERSION}
    manifest_digest = digest(folder / MANIFEST) if (folder / MANIFEST).is_file() else ""
    manifest = read_manifest(folder, "ranker", head, _MANIFEST_KINDS, name=MANIFEST)
    check_all_files(folder, manifest, MANIFEST)
    if manifest["engine"] != engine.id:
        raise InputError(
            f"{folder}: this ranker was fitted on another engine ({manifest['engine'][:12]}…) than {engine!r} "
            f"({engine.id[:12]}…); open that engine or fit the ranker again"
        )
    loaded: list[Ranker] = []
    try:
        states = state_digests(manifest["fitted"], manifest["files"])
        for number, entry in enumerate(manifest["fitted"]):
            ranker = from_spec(entry["ranker"])
            if entry["within"]:
                ranker.rankers_ = [loaded[nested_number] for nested_number in entry["within"]]
            ranker.training_digest, ranker.twins_ = entry["digest"], Twins.from_dict(entry)
            ranker.load_state(folder / "fitted" / str(number), entry["facts"], engine)
            ranker.finish(engine, states[number] if ranker.saves_state else object())
            loaded.append(ranker)
        loaded[-1].remember_folder(folder, manifest_digest)
        return loaded[-1]
    except FileFormatError:
        raise
    except (KeyError, IndexError, TypeError, OSError, InputError) as error:
        message = f"fitted ranker {len(loaded)} cannot be loaded ({error}); save the ranker again"
        raise FileFormatError(folder / MANIFEST, None, message) from None
