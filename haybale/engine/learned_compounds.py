"""Learn the compounds of an engine: from its texts, or by tasks from those in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haybale.analysis import Analyzer, splits_compounds
from haybale.collections import Collection
from haybale.embeddings.counting import strings
from haybale.engine.changes import LiveDocuments
from haybale.engine.indexing_segments import learned_analyzer
from haybale.engine.segment import Segment
from haybale.engine.snapshot import Snapshot
from haybale.engine.storage import Storage


def learn_here(whole: Collection, language: str, settings: Mapping[str, Any], compounds: bool | None) -> Analyzer:
    """Return the analyzer of an engine with these documents."""
    return Analyzer.learned(language, strings(whole.passages.texts), compounds)


def learn_by_tasks(
    folder: Path,
    settings_of_folder: Mapping[str, Any] | None,
    whole: Collection,
    language: str,
    settings: Mapping[str, Any],
    compounds: bool | None,
) -> Analyzer:
    """Return the analyzer of an engine whose words are counted by tasks; its collection is written for them first.

    ``settings_of_folder`` are the settings of the engine in the folder, if there is one; its analyzer may have been
    learned already.
    ``settings`` are those that the engine will have. ``compounds`` says whether compounds are split, None for the
    default of the language.
    """
    if not splits_compounds(language, compounds):
        return Analyzer(language)
    if settings_of_folder is not None and settings_of_folder["analyzer"] is not None:
        return Analyzer.from_dict(settings_of_folder["analyzer"])
    first = Segment.first(whole, settings, language, None, encoder=None, storage=Storage(), device=None)
    LiveDocuments(Snapshot([first])).begin_build(folder, settings)
    return learned_analyzer(first.texts, language)
