"""Errors of requests that name what does not exist, or that their user may not make."""

from __future__ import annotations

from haybale.engine import Engine
from haybale.errors import InputError


class NotFoundError(InputError):
    """A document, topic or training that does not exist."""


class NotAllowedError(InputError):
    """A request that its user may not make."""


class TooManyGuessesError(InputError):
    """A wrong token while many others are being answered."""


def check_document(engine: Engine, doc_id: str) -> None:
    """Raise NotFoundError if an engine does not have a document."""
    if engine.snapshot().collection.find_documents([doc_id])[0] < 0:
        raise NotFoundError(f"expected the id of a document of the engine, found {doc_id!r:.200}; search for documents")
