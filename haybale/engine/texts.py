"""The texts of a segment: its documents as they came, cut into pieces, and their terms counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from haybale.analysis import Analyzer
from haybale.collections import Collection
from haybale.collections.saved import load_collection, save_collection
from haybale.embeddings import Chunking, TfidfEncoder, cut
from haybale.embeddings.counting import TermCounts
from haybale.engine.storage import Storage
from haybale.timing import timed


@dataclass(eq=False)
class Texts:
    """Documents that came to an engine at once.

    ``whole`` are the documents before their passages are cut into pieces by ``chunking``; ``number`` is the segment's,
    from 0; ``analyzer`` makes terms of texts, for BM25.
    """

    whole: Collection
    number: int
    storage: Storage
    analyzer: Analyzer
    chunking: Chunking | None

    def folder(self, name: str) -> Path | None:
        """Return the folder of an index or collection of the segment, whether or not it exists; None in memory."""
        return None if self.storage.folder is None else self.storage.folder / str(self.number) / name

    @cached_property
    def cut(self) -> Collection:
        """The documents as they are indexed: with pieces as passages, if there is a chunking."""
        if self.chunking is None:
            return self.whole
        folder = self.folder("pieces")
        if folder is not None and folder.exists():
            return load_collection(folder)
        with timed("cut passages"):
            found = cut(self.whole, self.chunking)
        self.storage.keep(folder, lambda path: save_collection(found, path))
        return found

    @cached_property
    def passage_counts(self) -> TermCounts:
        """The counts of terms in each passage, made once for BM25 and TF-IDF."""
        with timed("count terms"):
            return TermCounts.of(self.cut.passages.texts, self.analyzer)

    def forget_counts(self) -> None:
        """Free the memory of :attr:`passage_counts`, once all indexes are made."""
        self.__dict__.pop("passage_counts", None)

    def counts(self, unit: str) -> TermCounts:
        """Return the counts of terms in each ``"passage"`` or ``"document"``."""
        counts = self.passage_counts
        return counts if unit == "passage" else counts.merged(self.cut.passages.doc_offsets)

    def are_counted_for(self, encoder: Any) -> bool:
        """Return whether :meth:`counts` are what an encoder would count: the same texts, the same analyzer."""
        if self.number or self.chunking is not None or type(encoder) is not TfidfEncoder:
            return False
        return encoder.chosen_analyzer() == self.analyzer
