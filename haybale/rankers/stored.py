"""The rankings that another engine has made, as a ranker."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from haybale.collections import Queries
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import TEXT_OR_NONE, one_of
from haybale.ranking.external_documents import ExternalDocuments, named_ids
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.ranking.value_texts import shown
from haybale.retrieval import Run
from haybale.retrieval.ranked_lists import RankedLists, RunLike, joined_lists, ranked_lists, read_ranked_lists
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

_IN_MEMORY = "sha256:"  # the text of a run that is not in a file begins with it

RankFunction: TypeAlias = Callable[[Mapping[str, str], int], RunLike]
RunSource: TypeAlias = "str | Path | RunLike | Sequence[str | Path | RunLike] | Mapping[str, str | Path | RunLike]"
Source: TypeAlias = "str | tuple[str, ...] | RankedLists | RankFunction"  # what they become


class ChangedRunWarning(UserWarning):
    """A run file has changed since a ranker with it was saved."""


class Stored(Ranker):
    """Rank as another engine has ranked, from its run files; or call a function that ranks.

    It stands wherever a ranker stands, so haybale learns to fuse engines that it does not know: ``Learned(BM25(),
    Stored("elastic.trec"))``. In ranker texts it is ``run('elastic.trec')``.

    Documents are sorted by falling score; those with equal scores by their rank in the file, then by id. The document
    that a query was taken from is left out, and so are documents outside ``within`` and ``where``. The ranking of
    training queries is taken from the runs, too. If the other engine has learned from these queries, give its rankings
    out of fold for them, because rankers that learn from biased rankings trust them too much.

    Parameters
    ----------
    runs : str, Path, Run, frame, mapping, sequence or callable
        - the path of a TREC run file, plain or ``.gz``, or a list of such paths, which have different queries;
        - a run, a frame with the columns ``query_id``, ``doc_id``, ``score`` and, optionally, ``rank``, or a mapping of
          query ids to ``{document id: score}``, to a list of ``(document id, score)`` or to a list of document ids;
        - a mapping of splits to any of these, such as ``{"train": run, "test": run}``;
        - a function that gets ``{query id: text}`` and the number of documents, and returns a run, frame or mapping.

        Only a function ranks new texts; otherwise queries are found by their ids.
    unknown_queries : {"error", "empty"}, default "error"
        What a query is that no run has: an error, or a query for which the other engine found nothing.
    unknown_documents : {"error", "drop"}, default "error"
        Whether a ranked document that the engine does not have is an error, or is left out.
    label : str, optional
        The name of the run in tables and explanations, if it is in memory.

    Raises
    ------
    InputError
        From :meth:`fit` for a file that does not exist or has wrong lines; when ranking, for unknown queries and
        documents.
    """

    name = "run"
    variants: ClassVar = {"run": {}}
    uses_vectors = False
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = {
        "unknown_queries": one_of(["error", "empty"]),
        "unknown_documents": one_of(["error", "drop"]),
        "label": TEXT_OR_NONE,
    }

    def __init__(
        self,
        runs: RunSource | RankFunction,
        *,
        unknown_queries: str = "error",
        unknown_documents: str = "error",
        label: str | None = None,
    ) -> None:
        self.runs = runs
        self.unknown_queries = unknown_queries
        self.unknown_documents = unknown_documents
        self.label = label

    def _source(self) -> Source:
        """Return the paths of files as texts, a function as it is, and everything else as one run in memory."""
        converted = vars(self).get("_converted")
        if converted is None or converted[0] is not self.runs:
            self._converted = converted = self.runs, _source(self.runs)
        source: Source = converted[1]
        return source

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"runs": self._source()}

    def _check_params(self) -> None:
        """Check parameters as every ranker does, and that the runs have one of the forms."""
        super()._check_params()
        self._source()

    @property
    def _ranks_whole_batches(self) -> bool:
        """True, because looking up rankings is little work."""
        return True

    def fit_batch(self, training: Training) -> None:
        super().fit_batch(training)
        self._lists = self._read()
        self._documents = ExternalDocuments(self)

    def _read(self) -> RankedLists | None:
        """Return the rankings; None for a function."""
        source = self._source()
        if isinstance(source, RankedLists):
            return source
        if callable(source):
            return None
        if isinstance(source, str) and source.startswith(_IN_MEMORY):
            raise InputError(f"{self}: expected a run, found the digest of one that was in memory; give the run again")
        paths = [source] if isinstance(source, str) else source
        parts = [read_ranked_lists(path) for path in paths]
        return joined_lists(parts, hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest())

    def _check_answers(self, queries: Queries | None) -> None:
        """Raise :class:`~haybale.InputError` for a new text, or for queries that the runs do not have."""
        if callable(self.runs):
            return
        if queries is None or queries.numbered:
            raise InputError(
                f"{self} ranks only the queries of its run, by their ids, found a text without an id; give queries "
                "with ids, such as a split or a file, or rank new texts with remote(…)"
            )
        lists = vars(self).get("_lists") or self._read()
        assert lists is not None
        missing = [query_id for query_id in queries.ids.to_pylist() if query_id not in lists.row_of]
        if missing and self.unknown_queries == "error":
            raise InputError(
                f"{self}: expected rankings for all {len(queries):,} queries, found none for {len(missing):,}, such as "
                f"{named_ids(missing)}; add them to the run, or set unknown_queries='empty' if the other engine found "
                "nothing for them"
            )

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        lists = self._lists
        if lists is None:
            assert callable(self.runs)
            lists = ranked_lists(self.runs(dict(zip(batch.ids, batch.texts, strict=True)), depth))
        elif batch.queries.numbered or not lists.row_of.keys() >= set(batch.ids):
            self._check_answers(batch.queries)
        return self._documents.in_engine(lists, batch, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        return replace(base, shares=[Share("score in the run of another engine", base.score or 0.0)])

    def __str__(self) -> str:
        """Return the ranker text; instead of runs in memory, it has their digest, or only their label."""
        source = self._source()
        settings = {"unknown_queries": "error", "unknown_documents": "error", "label": None}
        parts = [
            f"{name}={shown(getattr(self, name))}"
            for name, default in settings.items()
            if getattr(self, name) != default
        ]
        in_files = isinstance(source, tuple) or (isinstance(source, str) and not source.startswith(_IN_MEMORY))
        if in_files or self.label is None:
            parts.insert(0, shown(_plain_source(source)))
        return f"run({','.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"runs": _plain_source(self._source())}

    @property
    def outside_state(self) -> dict[str, Any]:
        """The digest of the run files."""
        return {} if self._lists is None else {"runs": self._lists.sha256}

    def save_state(self, folder: Path) -> dict[str, Any]:
        if self._lists is None:
            raise InputError(
                f"{self}: expected files or runs to save, found a function; write a subclass of Ranker with a name"
            )
        if isinstance(self._source(), RankedLists):
            self._lists.write(folder)
        return {"sha256": self._lists.sha256}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self._documents = ExternalDocuments(self)
        if isinstance(self.runs, str) and self.runs.startswith(_IN_MEMORY):
            self.runs = self._lists = RankedLists.read(folder, state["sha256"])
            return
        self._lists = self._read()
        if self._lists is not None and self._lists.sha256 != state["sha256"]:
            message = (
                f"{self}: found another run file than the one that the ranker was saved with (SHA-256 "
                f"{state['sha256'][:12]}…), its rankings are used; if those of training queries have changed, fit again"
            )
            warnings.warn(message, ChangedRunWarning, stacklevel=2)


def _source(runs: Any) -> Source:
    """Return the paths of files as texts, a function as it is, and everything else as one run in memory."""
    if isinstance(runs, str | Path):
        return str(runs)
    if callable(runs):
        function: RankFunction = runs
        return function
    if isinstance(runs, Mapping) and any(map(_is_run, runs.values())):
        runs = list(runs.values())
    if not isinstance(runs, list | tuple):
        return ranked_lists(runs)
    if not runs:
        raise InputError("runs must have at least one run or path, found an empty list; give run('FILE'), for example")
    sources = [_source(part) for part in runs]
    if all(isinstance(source, str) for source in sources):
        return tuple(map(str, sources))
    return joined_lists(
        [source if isinstance(source, RankedLists) else read_ranked_lists(str(source)) for source in sources]
    )


def _is_run(value: Any) -> bool:
    """Return whether a value of a mapping is a run, and not the documents of a query."""
    if isinstance(value, Mapping):
        return any(isinstance(documents, Mapping | list | tuple) for documents in value.values())
    return not isinstance(value, list | tuple)


def _plain_source(source: Source) -> str | list[str]:
    """Return paths, the digest of a run in memory, or the name of a function."""
    if isinstance(source, tuple):
        return list(source)
    if callable(source):
        return str(getattr(source, "__qualname__", type(source).__qualname__))
    return str(source)
