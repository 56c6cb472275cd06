"""The folder of a saved ranker: JSON, safetensors and Parquet files, with the SHA-256 of each.

ranker.json        format, version, the ranker as plain values, its engine, SHA-256 of every other file
fitted/0/ …        what each ranker learned, nested rankers first; a shared ranker is saved once
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder, write_json
from haybale.manifest import check_all_files, digest, read_manifest, with_checksum
from haybale.ranking.contract import RankerContract
from haybale.ranking.twins import Twins
from haybale.returned_values import method_of, returned_json

FORMAT, VERSION, MANIFEST = "haybale ranker", 2, "ranker.json"  # version 1 had a different SVR
_FITTED_KINDS = {"ranker": (str, dict), "within": [range(2**20)], "digest": (str, None), "facts": dict}
_MANIFEST_KINDS = {"engine": str, "fitted": [_FITTED_KINDS]}

R = TypeVar("R", bound=RankerContract)


def save(ranker: RankerContract, folder: str | Path) -> None:
    """Write a fitted ranker, without its engine, to a new folder, which appears only when it is complete."""
    ranker._check_fitted()
    order = innermost_first(ranker)
    numbers = {id(inner): number for number, inner in enumerate(order)}
    with whole_folder(Path(folder)) as aside:
        fitted = []
        for number, inner in enumerate(order):
            state_folder = aside / "fitted" / str(number)
            state_folder.mkdir(parents=True)
            within = [numbers[id(nested)] for nested in inner.rankers_]
            facts = returned_json(inner.save_state(state_folder), method_of(inner, "save_state"))
            entry = {"ranker": inner.to_dict(), "within": within, "digest": inner._training_digest}
            # Version 2 of the format calls the saved state "facts".
            fitted.append(entry | inner.twins_.to_dict() | {"facts": facts})
            if not any(state_folder.iterdir()):
                state_folder.rmdir()
        files = {str(path.relative_to(aside)): digest(path) for path in sorted(aside.rglob("*")) if path.is_file()}
        head = {"format": FORMAT, "version": VERSION, "ranker": ranker.to_dict(), "engine": ranker.engine_.id}
        write_json(aside / MANIFEST, with_checksum(head | {"fitted": fitted, "files": files}))
        manifest_digest = digest(aside / MANIFEST)
    unchanged = [inner for inner in order if inner._fitted_key == inner._cache_key()]
    for inner, state in zip(order, _state_digests(fitted, files), strict=True):
        if _saves_state(inner) and inner._state_key is not None:  # rankers that are loaded from the folder share it
            inner._state_key = state
    for inner in unchanged:
        inner._fitted_key = inner._cache_key()
    ranker._saved = Path(folder).absolute(), manifest_digest, ranker._fitted_key


def saved_in(ranker: RankerContract) -> Path | None:
    """Return the folder that a ranker was saved in or loaded from, if both are still the same."""
    if ranker._saved is None:
        return None
    folder, manifest_digest, key = ranker._saved
    is_same = (
        key == ranker._cache_key() and (folder / MANIFEST).is_file() and digest(folder / MANIFEST) == manifest_digest
    )
    return folder if is_same else None


def read_ranker_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a saved ranker, with the digest of the file; check all other files of the folder."""
    manifest_digest = digest(folder / MANIFEST) if (folder / MANIFEST).is_file() else ""
    head = {"format": FORMAT, "version": VERSION}
    manifest = read_manifest(folder, "ranker", head, _MANIFEST_KINDS, name=MANIFEST)
    check_all_files(folder, manifest, MANIFEST)
    return manifest | {"manifest digest": manifest_digest}


def restored(rankers: Iterable[R], folder: Path, manifest: Mapping[str, Any], engine: Engine) -> R:
    """Return the last of unfitted rankers, all with what was saved of them; nested rankers come first.

    ``manifest`` is that of :func:`read_ranker_manifest`.
    """
    if manifest["engine"] != engine.id:
        raise InputError(
            f"{folder}: this ranker was fitted on another engine ({manifest['engine'][:12]}…) than {engine!r} "
            f"({engine.id[:12]}…); open that engine or fit the ranker again"
        )
    loaded: list[R] = []
    try:
        states = _state_digests(manifest["fitted"], manifest["files"])
        for number, (ranker, entry) in enumerate(zip(rankers, manifest["fitted"], strict=True)):
            if entry["within"]:
                ranker.rankers_ = [loaded[nested_number] for nested_number in entry["within"]]
            ranker._training_digest, ranker.twins_ = entry["digest"], Twins.from_dict(entry)
            ranker.load_state(folder / "fitted" / str(number), entry["facts"], engine)
            ranker._finish_fit(engine, states[number] if _saves_state(ranker) else object())
            loaded.append(ranker)
        outer = loaded[-1]
        outer._saved = folder.absolute(), manifest["manifest digest"], outer._fitted_key
        return outer
    except FileFormatError:
        raise
    except (KeyError, IndexError, TypeError, OSError, InputError) as error:
        message = f"fitted ranker {len(loaded)} cannot be loaded ({error}); save the ranker again"
        raise FileFormatError(folder / MANIFEST, None, message) from None


def innermost_first(ranker: RankerContract) -> list[RankerContract]:
    """Return the fitted nested rankers, each once, followed by the ranker."""
    nested = (inner for outer in ranker.rankers_ for inner in innermost_first(outer))
    return [*{id(inner): inner for inner in nested}.values(), ranker]


def _saves_state(ranker: RankerContract) -> bool:
    """Return whether the class of a ranker saves what it learns."""
    return type(ranker).save_state is not RankerContract.save_state


def _state_digests(fitted: Sequence[Mapping[str, Any]], files: Mapping[str, str]) -> list[str]:
    """Return a digest of what each fitted ranker in a saved folder has learned, in the order of the manifest.

    The digests distinguish rankers with equal parameters. ``fitted`` has an entry for each ranker, and ``files`` has
    the SHA-256 of each file, by its path.
    """
    digests = []
    for number, entry in enumerate(fitted):
        begin = f"fitted/{number}/"
        ranker_files = {path.removeprefix(begin): sha256 for path, sha256 in files.items() if path.startswith(begin)}
        # Keys become text, as they are when the manifest is read.
        values = json.loads(json.dumps([entry["digest"], entry["facts"], ranker_files]))
        digests.append(hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest())
    return digests
