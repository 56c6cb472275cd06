"""A ranker on documents that stay, and the digest by which a ranker is recognised later."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from haybale.collections import Queries
from haybale.engine import Engine
from haybale.errors import HaybaleError
from haybale.manifest import digest
from haybale.rankers import Explanation, QueryBatch, Ranker
from haybale.ranking.saved_rankers import MANIFEST
from haybale.retrieval import Run


@dataclass(eq=False)
class RankerOnDocuments:
    """A fitted ranker on a snapshot, or on a view of one, as :func:`haybale.search.searching.search` takes rankers.

    Parameters
    ----------
    ranker : Ranker
    engine_ : Engine
        The documents that it ranks.
    """

    ranker: Ranker
    engine_: Engine

    def __str__(self) -> str:
        return str(self.ranker)

    def _check_fitted(self) -> None:
        """Raise :class:`~haybale.NotFittedError` if the ranker has not been fitted."""
        self.ranker._check_fitted()

    def _check_answers(self, queries: Queries | None) -> None:
        """Raise :class:`~haybale.InputError` if the ranker cannot rank queries; None is a new text."""
        self.ranker._check_answers(queries)

    def run(self, batch: QueryBatch, depth: int) -> Run:
        """Return the first ``depth`` documents of each query of a batch."""
        return self.ranker.run(batch, depth)

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document for the only query of a batch."""
        return self.ranker.explained(batch, document)


def digest_of_ranker(ranker: Ranker) -> str:
    """Return the SHA-256 of the file ``ranker.json`` of a saved ranker, which has those of all that it has learned.

    A ranker that was not saved is saved to a temporary folder. If it cannot be saved, such as one with an encoder of
    the user's own, the digest is that of its parameters.
    """
    if ranker._saved is not None and ranker._saved[2] == ranker._cache_key():
        return ranker._saved[1]
    try:
        with tempfile.TemporaryDirectory(prefix="haybale-") as temporary:
            folder = Path(temporary) / "ranker"
            ranker.save(folder)
            return digest(folder / MANIFEST)
    except (HaybaleError, OSError, NotImplementedError):
        return hashlib.sha256(json.dumps(ranker.to_dict(), sort_keys=True).encode()).hexdigest()
