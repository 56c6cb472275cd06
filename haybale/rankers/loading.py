"""Opens rankers that were saved; :meth:`haybale.rankers.Ranker.save` says what their folders hold."""

from __future__ import annotations

from pathlib import Path

from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.manifest import check_all_files, read_manifest
from haybale.rankers.grammar import from_spec
from haybale.rankers.ranker import FORMAT, MANIFEST, VERSION, Ranker

_FITTED = {"ranker": (str, dict), "within": [range(2**20)], "digest": (str, None), "facts": dict}
_KINDS = {"engine": str, "fitted": [_FITTED]}


def load(folder: str | Path, engine: Engine) -> Ranker:
    """A ranker that was saved, on the engine that it was fitted on.

    Parameters
    ----------
    folder : str or Path
    engine : Engine
        The same engine, opened anew, and grown or limited since, if need be.

    Raises
    ------
    FileFormatError
        Files that are missing, changed, of another kind or version.
    InputError
        The ranker was fitted on another engine.
    """
    folder = Path(folder)
    head = {"format": FORMAT, "version": VERSION}
    manifest = read_manifest(folder, "ranker", head, _KINDS, name=MANIFEST, unsigned=False)
    check_all_files(folder, manifest, MANIFEST)
    if manifest["engine"] != engine.id:
        raise InputError(
            f"{folder}: this ranker was fitted on another engine ({manifest['engine'][:12]}…) than {engine!r} "
            f"({engine.id[:12]}…); fit it anew"
        )
    made: list[Ranker] = []
    try:
        for number, entry in enumerate(manifest["fitted"]):
            ranker = from_spec(entry["ranker"])
            if entry["within"]:
                ranker.rankers_ = [made[place] for place in entry["within"]]
            ranker.training_digest = entry["digest"]
            within = folder / "fitted" / str(number)
            ranker.load_state(within, entry["facts"], engine)
            ranker.engine_, ranker.fitted_key = engine, ranker.key()
            made.append(ranker)
        return made[-1]
    except FileFormatError:
        raise
    except (KeyError, IndexError, TypeError, OSError, InputError) as error:
        raise FileFormatError(folder / MANIFEST, None, f"fitted ranker {len(made)}: {error}") from None
