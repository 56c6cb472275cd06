"""One vector for each document that has a passage: the texts that are encoded, and their index."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from haybale.collections import Collection, Passages
from haybale.collections.collection import Ints, take_strings
from haybale.retrieval import PassageIndex
from haybale.vectors import Matrix


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
