"""The links between documents that a ranker hides from a query, because they can reveal its relevant documents."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from haybale.context.document_graph import Mask
from haybale.engine import Engine
from haybale.parameters import one_of
from haybale.rankers import Training

MASKS = one_of(("own", "relevant", "off"))


class Masking(Protocol):
    """A ranker that hides links."""

    mask: str
    mask_: dict[str, list[str]] | None  # relevant documents, by the document that the training queries were taken from
    _state_key: object  # identifies what the ranker has learned


def relevant_by_own(ranker: Masking, training: Training) -> dict[str, list[str]] | None:
    """Return the relevant documents of the queries taken from each document, by id; None unless the mask uses them."""
    if ranker.mask != "relevant":
        return None
    ids, relevant_of_document = training.batch.engine.collection.doc_ids, dict[str, set[str]]()
    for document, relevant in zip(training.batch.own.tolist(), training.relevant, strict=True):
        if document >= 0:
            relevant_of_document.setdefault(str(ids[document].as_py()), set()).update(relevant)
    return {doc_id: sorted(relevant) for doc_id, relevant in sorted(relevant_of_document.items())}


def hidden_links(ranker: Masking, engine: Engine) -> Mask | None:
    """Return the mask of a fitted ranker on the documents of an engine; None if no link is hidden."""
    collection = engine.collection
    if ranker.mask == "off":
        return None
    if ranker.mask_ is None:
        return Mask(None, collection.n_documents)

    def find() -> Mask:
        pairs = [(own_id, doc_id) for own_id, doc_ids in (ranker.mask_ or {}).items() for doc_id in doc_ids]
        documents = collection.find_documents([doc_id for pair in pairs for doc_id in pair]).reshape(-1, 2)
        documents = documents[(documents >= 0).all(axis=1)]
        return Mask(np.unique(documents[:, 0] * collection.n_documents + documents[:, 1]), collection.n_documents)

    return engine.cached(("mask", ranker._state_key or ranker), find)
