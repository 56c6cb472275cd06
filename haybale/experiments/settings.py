"""Everything that decides the outcome of a comparison, in one place that is written beside its results."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from haybale.analysis import LANGUAGES
from haybale.collections import PARAGRAPHS
from haybale.embeddings import Chunking
from haybale.ensemble import PROTOCOLS, SVREnsemble
from haybale.errors import InputError, UnknownNameError

DEFAULT_RANKERS = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-vrrf", "svr-doc", "learned")
COUNTS = (
    *("width", "depth", "parm_hits", "train_candidates", "candidates", "train_document_candidates"),
    *("document_candidates", "fusion_queries", "fusion_depth"),
)


@dataclass(frozen=True)
class Settings:
    """What :func:`haybale.experiments.compare` does. Counts are of passages unless they say documents."""

    split: str = "dev"
    rankers: tuple[str, ...] = DEFAULT_RANKERS
    protocol: str = "end-to-end"
    encoder: str = "lsa"  # or "tfidf", a hub id, a folder: see haybale.embeddings.find_encoder
    store: str | None = None  # a store of embeddings: its vectors, pieces and encoder instead of `encoder`
    paragraphs: str | None = None  # documents and queries are split anew: see haybale.collections.with_paragraphs
    device: str = "cpu"  # of the index, the ensembles and PARM: "cuda", … for dense vectors; see haybale.device
    chunking: Chunking | None = None  # passages are cut into pieces
    query_prompt: str = ""  # of a neural encoder
    passage_prompt: str = ""
    width: int = 1024  # of LSA
    language: str | None = None  # None: the collection's own, else guessed
    k1: float = 1.2
    b: float = 0.75
    k1_document: float | None = None  # of bm25-doc; None: as k1
    b_document: float | None = None  # likewise, as b
    depth: int = 1000  # documents a run keeps
    parm_hits: int = 1000  # hits of each query paragraph (N)
    train_candidates: int = 20  # of a training query, from BM25 and from kNN each
    candidates: int = 60  # of a query that is ranked, likewise
    train_split: str = "train"
    train_document_candidates: int = 10  # documents of a training query, from each search of svr-doc
    document_candidates: int = 60  # of a query that is ranked, likewise
    fusion_queries: int = 3000  # training queries, drawn at random, that learned(…) weighs its rankers on
    fusion_depth: int = 100  # documents of each ranker that it looks at
    cold: float = 0.3  # share of its loss that queries new to the memories carry; see LearnedFusion
    rows_per_bag: int | None = None  # None: all
    ensemble: dict[str, Any] = field(default_factory=dict)  # parameters of SVREnsemble, over its defaults
    baseline: str = "bm25"
    random_state: int = 0
    n_jobs: int = -1

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UnknownNameError("protocol", self.protocol, PROTOCOLS)
        if self.paragraphs is not None and self.paragraphs not in PARAGRAPHS:
            raise UnknownNameError("way to split paragraphs", self.paragraphs, PARAGRAPHS)
        if self.language is not None and self.language not in LANGUAGES:
            raise UnknownNameError("language", self.language, LANGUAGES)
        for name in COUNTS:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, found {getattr(self, name)}")
        if not 0 <= self.cold <= 1:
            raise InputError(f"cold is a share, 0 to 1, found {self.cold}")
        if self.store is not None and self.chunking is not None:
            raise InputError("a store says itself how its passages were cut; leave chunking out")
        unknown = sorted(set(self.ensemble) - set(SVREnsemble().get_params()))
        if unknown:
            raise UnknownNameError("ensemble parameter", unknown[0], sorted(SVREnsemble().get_params()))

    def bm25_parameters(self, unit: str) -> tuple[float, float]:
        """``(k1, b)`` over passages or whole documents.

        >>> Settings(k1=0.9, b_document=0.3).bm25_parameters("document")
        (0.9, 0.3)
        """
        if unit != "document":
            return self.k1, self.b
        k1, b = self.k1_document, self.b_document
        return self.k1 if k1 is None else k1, self.b if b is None else b

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)
