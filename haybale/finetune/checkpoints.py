"""Write and read the checkpoints of a training; incomplete ones are removed, and damaged ones are refused.

run.json             what identifies the training, written first
before.json          the measures before the first step, with a checksum
checkpoint-STEP/     weights, optimizer, schedule, random state and trainer state, as the trainer writes them
  manifest.json      the SHA-256 of these files and of run.json; written last, so a checkpoint without it is incomplete
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from haybale.errors import FileFormatError, StoreError
from haybale.folders import replace_json
from haybale.manifest import MANIFEST, check_all_files, digest, read_manifest, verify_checksum, with_checksum
from haybale.text_files import read_json

RUN, BEFORE = "run.json", "before.json"
_HEAD = {"format": "haybale training checkpoint", "version": 1}
_MAX_CHECKPOINTS = 2  # the last checkpoint and the best one, or the one before it


def checkpoint_at(work: Path, step: int) -> Path:
    """Return the folder of the checkpoint after a step."""
    return work / f"checkpoint-{step}"


def finish_checkpoint(work: Path, step: int, best_step: int | None) -> None:
    """Complete a checkpoint by writing its manifest, then remove old checkpoints except for the best."""
    folder = checkpoint_at(work, step)
    files = {path.name: digest(path) for path in sorted(folder.iterdir())}
    replace_json(folder / MANIFEST, with_checksum({**_HEAD, "run": digest(work / RUN), "files": files}))
    kept = {step, step if best_step is None else best_step}
    others = [other for other in sorted(_checkpoints(work)) if other not in kept]
    for old in others[: max(0, len(others) + len(kept) - _MAX_CHECKPOINTS)]:
        shutil.rmtree(checkpoint_at(work, old))


def last_checkpoint(work: Path) -> Path | None:
    """Return the last complete checkpoint; remove later ones, which a killed training left incomplete.

    Raise :class:`StoreError` if it is damaged or belongs to another training.
    """
    for step in sorted(_checkpoints(work), reverse=True):
        folder = checkpoint_at(work, step)
        if folder.is_dir() and not (folder / MANIFEST).exists():
            shutil.rmtree(folder)
            continue
        check_checkpoint(folder, f"{folder} to resume from an earlier checkpoint, or ")
        best = read_json(folder / "trainer_state.json").get("best_global_step")
        if best is not None:
            check_checkpoint(checkpoint_at(work, best))
        return folder
    return None


def check_checkpoint(folder: Path, other_step: str = "") -> None:
    """Raise :class:`StoreError` if a checkpoint is damaged or belongs to another training.

    ``other_step`` is put into the message: the files that may be removed instead of all checkpoints.
    """
    try:
        manifest = read_manifest(folder, "checkpoint", _HEAD, {"run": str})
        check_all_files(folder, manifest, MANIFEST)
    except FileFormatError as error:
        raise StoreError(
            f"{error.path}: this file of a checkpoint is missing or damaged; restore it, or remove {other_step}"
            f"{folder.parent} to begin again"
        ) from error
    if manifest["run"] != digest(folder.parent / RUN):
        raise StoreError(
            f"{folder} belongs to another training than {folder.parent / RUN}; remove {folder.parent} to begin again"
        )


def check_run(work: Path, identity: dict[str, Any]) -> None:
    """Begin the folder of checkpoints; raise :class:`StoreError` if it belongs to another training."""
    if not (work / RUN).exists():
        replace_json(work / RUN, identity)
        return
    begun = _read(work / RUN, f"remove {work} to begin again")
    for name, value in identity.items():
        if begun.get(name) != value:
            key = ""
            if name == "recipe" and isinstance(begun.get(name), dict):
                key = next((f" ({key})" for key in value if begun[name].get(key) != value[key]), "")
            raise StoreError(
                f"{work}: expected the {name}{key} that this training was begun with, found another; "
                "give the same as before, or remove that folder"
            )


def write_before(work: Path, measures: dict[str, float]) -> None:
    """Write the measures before the first step."""
    replace_json(work / BEFORE, with_checksum(measures))


def read_before(work: Path) -> dict[str, Any] | None:
    """Return the measures before the first step; None if they have not been written."""
    if not (work / BEFORE).exists():
        return None
    return _read(work / BEFORE, "remove it, then it is measured again", verify_checksum)


def _read(path: Path, other_step: str, checked: Callable[[Path, Any], dict[str, Any]] | None = None) -> dict[str, Any]:
    """Read a JSON file; raise :class:`StoreError` if it is damaged."""
    try:
        values = read_json(path)
        return values if checked is None else checked(path, values)
    except FileFormatError as error:
        raise StoreError(
            f"{path}: expected what this training wrote, found a damaged file; restore it, or {other_step}"
        ) from error


def _checkpoints(work: Path) -> list[int]:
    """Return the steps of all checkpoints, complete or not."""
    matches = (re.fullmatch(r"checkpoint-(\d+)", path.name) for path in work.glob("checkpoint-*"))
    return [int(match[1]) for match in matches if match]
