"""One vector for each document that has a passage: the texts that are encoded, and their index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.collections import Collection, Passages
from haybale.collections.collection import Ints, take_strings
from haybale.device import to_numpy
from haybale.embeddings import encode_texts
from haybale.retrieval import PassageIndex
from haybale.vectors import Floats, Matrix, check_vectors


def index_documents(vectors: Matrix, part: Collection, device: str | None) -> PassageIndex:
    """Return an index with one vector for each document that has a passage."""
    offsets = np.concatenate(([0], np.cumsum(np.diff(part.passages.doc_offsets) > 0)))
    ids = {"passage_ids": take_strings(part.doc_ids, documents_with_passages(part)), "doc_ids": part.doc_ids}
    return PassageIndex(vectors, offsets, device=device, **ids)


def documents_with_passages(part: Collection) -> Ints:
    """Return the numbers of the documents that have a passage."""
    return np.flatnonzero(np.diff(part.passages.doc_offsets) > 0)


def documents_as_passages(part: Collection) -> Collection:
    """Return a collection in which each document that has a text is one passage."""
    full, whole = documents_with_passages(part), part.document_texts()
    ids = pa.chunked_array([pa.array(take_strings(part.doc_ids, full), type=pa.large_string())])
    texts = pa.chunked_array([pa.array([whole[document] for document in full], type=pa.large_string())])
    passages = Passages(ids, texts, np.arange(len(full) + 1))
    titles, queries = part.doc_titles.take(pa.array(full)), part.queries.take(np.empty(0, dtype=np.int64))
    return Collection(part.name, ids, titles, passages, queries, {}, language=part.language)


def document_encoder(encoder: Any, part: Collection, open_passages: Callable[[], PassageIndex]) -> Any:
    """Return an encoder of documents that reuses the vectors of passages of ``part`` for documents of one passage.

    An encoder that is fitted, or makes sparse vectors, is fast; it is returned as it is, and no passages are opened.
    """
    if hasattr(encoder, "fit") or getattr(encoder, "is_sparse", False):
        return encoder
    passages = open_passages()
    return encoder if passages.is_sparse else DocumentEncoder(encoder, part, passages.vectors)


class DocumentEncoder:
    """Encode texts of documents; a document of one passage has the vector of that passage, which is not encoded again.

    ``passages`` (n, d) are the vectors of the passages of ``part``. Other attributes are those of the encoder.
    """

    def __init__(self, encoder: Any, part: Collection, passages: Matrix) -> None:
        self.encoder, self.passages = encoder, to_numpy(passages)
        offsets = part.passages.doc_offsets
        alone = offsets[:-1][np.diff(offsets) == 1]
        self.passage_of = dict(zip(take_strings(part.passages.texts, alone), alone.tolist(), strict=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    @property
    def counts(self) -> Any:
        """What the encoder counts, of the texts that it sees."""
        return self.encoder.counts

    @counts.setter
    def counts(self, counts: Any) -> None:
        self.encoder.counts = counts

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the vectors (n, d) of texts; only texts that are not those of a passage are encoded."""
        passages = np.array([self.passage_of.get(text, -1) for text in texts], dtype=np.int64)
        vectors: Floats = self.passages[np.maximum(passages, 0)]
        is_new = passages < 0
        if is_new.any():
            encoded = encode_texts(self.encoder, [texts[row] for row in np.flatnonzero(is_new).tolist()])
            name = f"{type(self.encoder).__name__}.encode"
            vectors[is_new] = to_numpy(check_vectors(encoded, name, vectors.shape[1]))
        return vectors
