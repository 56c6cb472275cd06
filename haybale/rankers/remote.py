"""An OpenSearch or Elasticsearch service as a ranker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from haybale.errors import InputError
from haybale.parameters import COUNT, FROM_0, POSITIVE, TEXT_OR_NONE, one_of
from haybale.ranking.external_documents import ExternalDocuments
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.ranked_lists import ranked_lists
from haybale.retrieval.search_endpoint import SearchEndpoint
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

_TEXT = "{text}"  # what stands for the text of a query in a template
_DEFAULT_QUERY = '{"query": {"match": {"text": "{text}"}}}'


class Remote(Ranker):
    """Rank as an OpenSearch or Elasticsearch service ranks, which is asked through its interface.

    haybale's engine has the same documents under the same ids. So :class:`~haybale.Learned` fuses the service with
    other rankers, and :class:`~haybale.SVR` learns on top of it: ``Learned(Remote("http://localhost:9200/laws"),
    KNN(), SVR())``. In ranker texts it is ``remote('http://localhost:9200/laws')``.

    Documents are in the order of the service. The document that a query was taken from is left out, and so are
    documents outside ``within`` and ``where``, which are not sent to the service. The address is saved with the ranker,
    and each ranking is a request to it.

    Parameters
    ----------
    url : str
        The address of an index (or an alias), without a password.
    query : str or mapping, default ``{"query": {"match": {"text": "{text}"}}}``
        The body of a search, as ``_search`` takes it; ``{text}`` in any text of it stands for the text of the query.
    id_field : str, optional
        The field of the index that has haybale's document id, such as ``"doc_id"`` or ``"meta.id"``. Default: ``_id``.
        If several hits are passages of one document, its first one counts.
    n_hits : int, default 100
        Hits of each query (``size``).
    authorization : str, optional
        The name of an environment variable with ``user:password``, or with the value of the header ``Authorization``,
        such as ``ApiKey …``. Only the name is saved.
    unknown_documents : {"error", "drop"}, default "error"
        Whether a hit that the engine does not have is an error, or is left out.
    batch_size : int, default 32
        Queries of one request (``_msearch``).
    timeout : float, default 30
        Seconds that a request may take.
    retries : int, default 2
        How often a request is sent again if the service is busy (429, 502, 503, 504) or the connection breaks.

    Raises
    ------
    InputError
        From :meth:`fit` for an address or a query that cannot be used; when ranking, for unknown documents.
    SearchServiceError
        If the service cannot be reached, refuses a search, or answers with a part of the results.
    """

    name = "remote"
    variants: ClassVar = {"remote": {}}
    uses_vectors = False
    _parameter_constraints: ClassVar = {
        "url": [str],
        "query": [str, Mapping],
        "id_field": TEXT_OR_NONE,
        "n_hits": COUNT,
        "authorization": TEXT_OR_NONE,
        "unknown_documents": one_of(["error", "drop"]),
        "batch_size": COUNT,
        "timeout": POSITIVE,
        "retries": FROM_0,
    }

    def __init__(
        self,
        url: str,
        query: str | Mapping[str, Any] = _DEFAULT_QUERY,
        *,
        id_field: str | None = None,
        n_hits: int = 100,
        authorization: str | None = None,
        unknown_documents: str = "error",
        batch_size: int = 32,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        self.url = url
        self.query = query
        self.id_field = id_field
        self.n_hits = n_hits
        self.authorization = authorization
        self.unknown_documents = unknown_documents
        self.batch_size = batch_size
        self.timeout = timeout
        self.retries = retries

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"query": self._query_text()}

    def _query_text(self) -> str:
        """Return the body of a search as JSON."""
        return self.query if isinstance(self.query, str) else json.dumps(self.query)

    @property
    def _ranks_whole_batches(self) -> bool:
        """True, because the service does the work."""
        return True

    def _check_params(self) -> None:
        """Check parameters as every ranker does, the address, and that the query is JSON with a place for the text."""
        super()._check_params()
        self._endpoint().check()
        if _TEXT not in self._query_text() or not isinstance(self._template(), dict):
            raise InputError(
                f"query must be a JSON object with {_TEXT!r} in a text, found {self.query!r}; the default is an "
                f"example, {_DEFAULT_QUERY}"
            )

    def _template(self) -> Any:
        """Return the query as plain values; None if it is not JSON."""
        try:
            return json.loads(self._query_text())
        except ValueError:
            return None

    def _endpoint(self) -> SearchEndpoint:
        return SearchEndpoint(self.url, self.authorization, self.id_field, float(self.timeout), self.retries)

    def fit_batch(self, training: Training) -> None:
        """Ask the service for one hit, so that a wrong address is an error before any work."""
        super().fit_batch(training)
        self._documents = ExternalDocuments(self)
        self._endpoint().search_all([{"query": {"match_all": {}}, "size": 1}])

    def load_state(self, folder: Any, state: dict[str, Any], engine: Any) -> None:
        self._documents = ExternalDocuments(self)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        template, endpoint, documents = self._template(), self._endpoint(), {}
        for start in range(0, len(batch), self.batch_size):
            rows = range(start, min(start + self.batch_size, len(batch)))
            # The document that a query was taken from is left out, so that one more is needed.
            bodies = [
                {"size": self.n_hits + int(batch.own[row] >= 0)} | _filled(template, batch.texts[row]) for row in rows
            ]
            with batch.timed("search remotely"):
                for row, hits in zip(rows, endpoint.search_all(bodies), strict=True):
                    documents[batch.ids[row]] = list(zip(hits.doc_ids, hits.scores, strict=True))
        return self._documents.in_engine(ranked_lists(documents), batch, min(depth, self.n_hits))

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        return replace(base, shares=[Share(f"score by {self.url}", base.score or 0.0)])


def _filled(template: Any, text: str) -> Any:
    """Return a template with the text of a query in the place of ``{text}``.

    >>> _filled({"query": {"match": {"body": "{text}"}}, "size": 3}, 'a "b"')
    {'query': {'match': {'body': 'a "b"'}}, 'size': 3}
    """
    if isinstance(template, dict):
        return {name: _filled(value, text) for name, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, text) for value in template]
    return template.replace(_TEXT, text) if isinstance(template, str) else template
