"""The texts of a segment: its documents, their passages cut into pieces, and their term counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from haybale.analysis import Analyzer
from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.saved import load_collection, save_collection
from haybale.embeddings import Chunking, TfidfEncoder, cut
from haybale.embeddings.counting import TermCounts
from haybale.engine.storage import Storage
from haybale.timing import timed


@dataclass(eq=False)
class Texts:
    """The texts of the documents of a segment."""

    whole: Collection  # before passages are cut into pieces
    number: int  # the number of the segment, from 0
    storage: Storage
    analyzer: Analyzer  # for BM25
    chunking: Chunking | None
    n_segments: int = 1  # in which the documents are indexed: haybale.engine.indexing_segments
    mark: bytes | None = None  # the manifest of the collection in the folder, which tells segments apart

    def __post_init__(self) -> None:
        self.storage.in_use.add(self)

    @property
    def root(self) -> Path:
        """The folder of the engine, which an engine in parts has."""
        assert self.storage.folder is not None
        return self.storage.folder

    def folder(self, name: str) -> Path | None:
        """Return the path for an index or collection of the segment; None in memory."""
        return None if self.storage.folder is None else self.storage.folder / str(self.number) / name

    @cached_property
    def indexed(self) -> Collection:
        """The documents as indexed: with pieces as passages, if there is a chunking."""
        if self.chunking is None:
            return self.whole
        folder = self.folder("pieces")
        if folder is not None and folder.exists():
            unchanged = partial(self.storage.unchanged, self.number)
            with unchanged():
                return load_collection(folder, unchanged)
        with timed("cut passages"):
            pieces = cut(self.whole, self.chunking)
        self.storage.save_if_writable(folder, lambda path: save_collection(pieces, path))
        return pieces

    @cached_property
    def passage_counts(self) -> TermCounts:
        """The term counts of each passage, shared by BM25 and TF-IDF."""
        with timed("count terms"):
            return TermCounts.of(self.indexed.passages.texts, self.analyzer)

    def take_counts(self, other: Texts) -> None:
        """Take over the term counts that were made for the same texts, if they are needed for an index."""
        folder = self.folder("bm25-passage")
        if "passage_counts" in vars(other) and folder is not None and not folder.exists():
            vars(self)["passage_counts"] = vars(other)["passage_counts"]

    def forget_counts(self) -> None:
        """Free the memory of :attr:`passage_counts`."""
        self.__dict__.pop("passage_counts", None)

    def counts(self, unit: str) -> TermCounts:
        """Return the term counts of each ``"passage"`` or ``"document"``."""
        counts = self.passage_counts
        return counts if unit == "passage" else counts.merged(self.indexed.passages.doc_offsets)

    def has_counts_for(self, encoder: Any) -> bool:
        """Return whether an encoder would count the same terms of the same texts as :meth:`counts`."""
        if self.number or self.chunking is not None or type(encoder) is not TfidfEncoder:
            return False
        return encoder.chosen_analyzer() == self.analyzer
