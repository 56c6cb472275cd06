"""Vectors of any number that behave like embeddings, made on the device: topics, documents in them, passages in those.

A passage is a unit vector: its topic, its document and noise. A query is a passage of another wording: the same topic
and document with other noise, so that its nearest passages are of its document and of its topic, as in a collection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haybale import PassageIndex
from haybale.device import Device, to_numpy

BLOCK = 2**17  # rows made at once
TOPIC, DOCUMENT, NOISE = 1.0, 0.25, 1.3  # about 4 of 50 neighbours are of the query's document


@dataclass(frozen=True)
class Synthetic:
    """(n, d) passages of documents, those of a document side by side."""

    vectors: Any  # (n, d) float32 of the device's library
    doc_offsets: np.ndarray  # (n_documents + 1,)
    seed: int
    device: Device

    @property
    def n_documents(self) -> int:
        return len(self.doc_offsets) - 1

    def queries(self, m: int, seed: int) -> tuple[Any, np.ndarray]:
        """(m, d) float32 queries, and the document (m,) that each is about."""
        about = np.random.default_rng(seed).integers(self.n_documents, size=m)
        return _rows(about, int(self.vectors.shape[1]), self.seed, seed + 1, self.device), about


def collection(n: int, d: int, per_document: int, device: Device, seed: int = 0) -> Synthetic:
    """``n`` passages, about ``per_document`` of them a document."""
    n_documents = max(1, n // per_document)
    offsets = np.linspace(0, n, n_documents + 1).astype(np.int64)
    document = np.repeat(np.arange(n_documents), np.diff(offsets))
    return Synthetic(_rows(document, d, seed, seed + 1000, device), offsets, seed, device)


@dataclass(frozen=True)
class Pairs:
    """(query, passage) rows (n,) over vectors of queries (m, d) and passages (p, d)."""

    queries: Any
    passages: Any
    query: np.ndarray
    passage: np.ndarray
    label: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        return np.where(self.label > 0, 3.0, 1.0)

    def features(self, xp: Any) -> Any:
        """(n, 2d) float32 [q ; p], on the device."""
        return xp.concatenate([self.queries[xp.asarray(self.query)], self.passages[xp.asarray(self.passage)]], axis=1)


def pairs(n: int, n_new: int, d: int, device: Device, candidates: int = 50) -> tuple[Pairs, Pairs]:
    """n rows to learn from and some new ones, whole queries as a search gives them: a row is relevant where the
    passage is of the query's document. The collection is about as large as they need."""
    m, extra = -(-n // candidates), -(-n_new // candidates)
    made = collection(max(4 * n, 2000), d, 24, device)
    queries, about = made.queries(m + extra, 1)
    index = PassageIndex(made.vectors, made.doc_offsets, device=device)
    found = to_numpy(index.search(queries, min(candidates, len(index))).passages)

    def of(part: slice) -> Pairs:
        query = np.repeat(np.arange(part.start, part.stop), found.shape[1])[:n]
        passage = found[part].ravel()[:n]
        label = (index.doc_of[passage] == about[query]).astype(np.float64)
        used, where = np.unique(passage, return_inverse=True)
        return Pairs(queries[part], made.vectors[device.xp.asarray(used)], query - part.start, where, label)

    return of(slice(0, m)), of(slice(m, m + extra))


def _rows(document: np.ndarray, d: int, seed: int, noise_seed: int, device: Device) -> Any:
    xp = device.xp
    with device.current():
        out = xp.empty((len(document), d), dtype=np.float32)
        n_topics = 1 + int(document.max()) // 200
        topics = _normal(xp, seed, (n_topics, d))
        for start in range(0, len(document), BLOCK):
            here = document[start : start + BLOCK]
            distinct, where = np.unique(here, return_inverse=True)
            # A document's own direction comes from its number alone, whichever block it is made in.
            own = xp.asarray(_directions(distinct, d, seed))[xp.asarray(where)]
            rows = TOPIC * topics[xp.asarray(here % n_topics)] + DOCUMENT * own
            rows += NOISE * _normal(xp, noise_seed + start, (len(here), d))
            out[start : start + len(here)] = rows / xp.sqrt((rows * rows).sum(axis=1))[:, None]
    return out


def _normal(xp: Any, seed: int, shape: tuple[int, int]) -> Any:
    if xp is np:
        return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return xp.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _directions(numbers: np.ndarray, d: int, seed: int) -> np.ndarray:
    """(len(numbers), d) of length about √d: each number's own, by a counter-based generator."""
    few = np.random.default_rng(seed + 7).standard_normal((64, d), dtype=np.float32)
    # Four of 64 directions with signs: enough to tell documents apart, and made without a generator a document.
    mixed = (numbers.astype(np.uint64)[:, None] + np.uint64(1)) * np.array(
        [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], dtype=np.uint64
    )
    which = (mixed >> np.uint64(58)).astype(np.int64)
    sign = 1 - 2 * ((mixed >> np.uint64(57)) & np.uint64(1)).astype(np.float32)
    return np.einsum("nk,nkd->nd", sign / 2, few[which])
