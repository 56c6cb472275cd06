"""Damage saved files, or change them and update their digests."""

from __future__ import annotations

import json
import math
import random
import shutil
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
from hostile.target import CORRECT, SAVED, Cases, Target, finite
from support.damage import damaged

from haybale.manifest import digest, with_checksum

VALUES = (None, -1, 0, 1.5, 10**13, 2**70, "", "x", [], {}, [1], True, "../../x", math.nan)


def saved(target: Target, rng: random.Random) -> Cases:
    """A damaged folder must be rejected, or give the results of the intact folder."""
    intact = {name: target.results(name, target.folder / name) for name in SAVED}
    for number in count():
        name = rng.choice(SAVED)
        yield f"{name} {number}", partial(_damaged, target, name, rng.randrange(2**32), intact[name])


def _damaged(target: Target, name: str, seed: int, intact: pd.DataFrame) -> str:
    rng, folder = random.Random(seed), target.copy(name)
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        path, kind = rng.choice(files), rng.random()
        if kind < 0.1:
            path.unlink()
        elif kind < 0.25:
            other = rng.choice(files)
            held = path.read_bytes()
            path.write_bytes(other.read_bytes())
            other.write_bytes(held)
        else:
            path.write_bytes(damaged(path.read_bytes(), rng))
        pd.testing.assert_frame_equal(target.results(name, folder), intact)
        return CORRECT
    finally:
        shutil.rmtree(folder)


def manifests(target: Target, rng: random.Random) -> Cases:
    """A changed manifest with a correct checksum must be rejected, or give finite results."""
    for number in count():
        name = rng.choice(SAVED)
        yield f"{name} {number}", partial(_forged, target, name, rng.randrange(2**32))


def _forged(target: Target, name: str, seed: int) -> str:
    rng, folder = random.Random(seed), target.copy(name)
    try:
        path = rng.choice(sorted(folder.rglob("*.json")))
        content = json.loads(path.read_text())
        at: Any = content
        while isinstance(at, dict | list) and at:
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], dict | list) or rng.random() < 0.3:
                at[key] = rng.choice(VALUES)
                break
            at = at[key]
        if isinstance(content, dict) and "sha256" in content:
            content = with_checksum(content)
        path.write_text(json.dumps(content))
        above = path.parent
        while above != folder.parent:  # manifests in parent folders have digests of this file
            for manifest in above.glob("*.json"):
                if manifest != path:
                    _update_digests(manifest)
            above = above.parent
        found = target.results(name, folder)
        return finite(*(found[column] for column in found.select_dtypes("number")))
    finally:
        shutil.rmtree(folder)


def _update_digests(manifest: Path) -> None:
    listing = json.loads(manifest.read_text())
    if isinstance(listing, dict) and isinstance(listing.get("files"), dict):
        for listed in listing["files"]:
            if (manifest.parent / listed).is_file():
                listing["files"][listed] = digest(manifest.parent / listed)
        manifest.write_text(json.dumps(with_checksum(listing) if "sha256" in listing else listing))
