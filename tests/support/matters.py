"""Engines of a few documents as the matters of a service; every text and title of a matter has its own word."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from haybale import Engine
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter_folders import MatterFolders
from haybale.service.matters.opened_matter import MatterOpener
from haybale.service.security import Access

WORDS = {"plover": "zebra", "heron": "walrus"}  # that only the documents and topics of a matter have


def build_matter(folder: Path, word: str, n_documents: int = 4) -> None:
    """Build an engine whose documents have a word, and others that those of all matters have."""
    subjects = ("lease", "damage", "income", "road")
    documents = {
        f"{word}/{number}": {
            "text": [f"The {word} pays for the {subjects[number % 4]}.", f"A {word} was here {number} times."],
            "title": f"{word.title()} {number}",
            "court": f"Court of the {word}",
        }
        for number in range(n_documents)
    }
    Engine.build(documents, folder, language="english", encoder="tfidf(min_df=1)").prepare()


def matters_of(
    *folders: Path,
    access: Access | None = None,
    idle_seconds: float | None = None,
    log: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Matters:
    """Return the matters in folders, ranked by BM25, with searches in the service itself."""
    opener = MatterOpener(access or Access(), [("bm25", "bm25")], log=log)
    return Matters(MatterFolders(folders), opener, idle_seconds, clock)
