"""Opens rankers that were saved; :meth:`haybale.rankers.Ranker.save` says what their folders hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.rankers.grammar import from_spec
from haybale.rankers.ranker import FORMAT, MANIFEST, VERSION, Ranker
from haybale.sealed import check_signed, digest


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
    manifest = _manifest(folder)
    if manifest["engine"] != engine.id:
        raise InputError(
            f"{folder}: this ranker was fitted on another engine ({manifest['engine'][:12]}…) than {engine!r} "
            f"({engine.id[:12]}…); fit it anew"
        )
    if not manifest["fitted"]:
        raise FileFormatError(folder / MANIFEST, None, "expected fitted rankers, found none")
    made: list[Ranker] = []
    for number, entry in enumerate(manifest["fitted"]):
        try:
            ranker = from_spec(entry["ranker"])
            within = [made[place] for place in entry["within"]]
            facts, training = entry["facts"], entry["digest"]
        except (KeyError, IndexError, TypeError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"fitted ranker {number}: {error}") from None
        if within:
            ranker.rankers_ = within  # type: ignore[attr-defined]
        ranker.training_digest = training
        try:
            ranker._restore(folder / "fitted" / str(number), facts, engine)
        except (KeyError, TypeError, OSError, InputError) as error:
            if isinstance(error, InputError):
                raise
            raise FileFormatError(folder / MANIFEST, None, f"fitted ranker {number}: {error}") from None
        ranker.engine_, ranker.fitted_key = engine, ranker.key()
        made.append(ranker)
    return made[-1]


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileFormatError(path, None, f"not found: {folder} is no saved ranker")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(path, None, f"expected JSON: {error}") from None
    for name, value in (("format", FORMAT), ("version", VERSION)):
        found = manifest.get(name) if isinstance(manifest, dict) else None
        if found != value:
            raise FileFormatError(path, None, f"expected {name} {value!r}, found {found!r}")
    manifest = check_signed(path, manifest)
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} - {MANIFEST}
    for name in sorted(there ^ set(manifest["files"])):
        what = "the manifest does not list it" if name in there else "not found, the manifest lists it"
        raise FileFormatError(folder / name, None, what)
    for name, expected in manifest["files"].items():
        if digest(folder / name) != expected:
            raise FileFormatError(folder / name, None, "its content is not what was saved: the SHA-256 differs")
    return manifest
