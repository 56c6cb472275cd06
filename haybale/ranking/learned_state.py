"""Digests of what fitted rankers have saved, which distinguish rankers with equal parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def state_digests(fitted: Sequence[Mapping[str, Any]], files: Mapping[str, str]) -> list[str]:
    """Return a digest of what each fitted ranker in a saved folder has learned, in the order of the manifest.

    Parameters
    ----------
    fitted : sequence of mapping
        An entry for each ranker, as :meth:`Ranker.save <haybale.rankers.Ranker.save>` writes it.
    files : mapping of str to str
        The SHA-256 of each file of the folder, by its path.
    """
    digests = []
    for number, entry in enumerate(fitted):
        begin = f"fitted/{number}/"
        ranker_files = {path.removeprefix(begin): sha256 for path, sha256 in files.items() if path.startswith(begin)}
        # Keys become text, as they are when the manifest is read.
        values = json.loads(json.dumps([entry["digest"], entry["facts"], ranker_files]))
        digests.append(hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest())
    return digests
