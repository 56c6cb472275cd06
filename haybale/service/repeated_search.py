"""Repeat a search of the log on the documents that the engine had then, and say what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from haybale.errors import HaybaleError
from haybale.rankers import Ranker
from haybale.search import SearchResults
from haybale.search.searching import search
from haybale.service.logged_actions import MAX_LOGGED
from haybale.service.matter_log import LogEntry
from haybale.service.matter_store import MatterFile
from haybale.service.ranker_on_documents import RankerOnDocuments
from haybale.service.request_errors import NotFoundError
from haybale.service.request_texts import paragraphs

MAX_NAMED = 100  # documents of each kind that are named


@dataclass(frozen=True)
class RepeatedSearch:
    """A search of the past, repeated.

    Parameters
    ----------
    entry : LogEntry
        The line of the log.
    results : SearchResults or None
        Its hits among the documents that the engine had then and still has; None if it cannot be repeated.
    problem : str
        Why it cannot be repeated, or not among the documents of then; empty if it was.
    n_added : int
        Documents, or new texts of documents, that were added since; they were not searched.
    n_changed, n_removed : int
        Documents of then that have another text now, or that are gone; they cannot be searched.
    changed, removed : list of str
        The ids of at most 100 of each.
    differences : list of str
        What else may differ from then, in sentences.
    lost, gained : list of str
        Hits of then, of those that the line names, that are none now; hits now that were none then.
    is_same : bool
        Whether the hits are those of then, in their order, as far as the line names them.
    """

    entry: LogEntry
    results: SearchResults | None
    problem: str = ""
    n_added: int = 0
    n_changed: int = 0
    n_removed: int = 0
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    gained: list[str] = field(default_factory=list)
    is_same: bool = False


def repeat(
    entry: LogEntry, file: MatterFile, ranker: Callable[[str], Ranker], digest_of: Callable[[str], str]
) -> RepeatedSearch:
    """Repeat a search.

    Parameters
    ----------
    entry : LogEntry
        NotFoundError is raised for a line about anything else.
    file : MatterFile
        It has the states of the documents.
    ranker : callable
        Returns a ranker by its name.
    digest_of : callable
        Returns the digest of a ranker by its name.
    """
    details = entry.details
    if entry.action != "search":
        raise NotFoundError(f"expected the number of a search in the log, found {entry.number}; choose a search")
    engine = file.engine.snapshot()
    earlier = file.store.state(str(details.get("documents")))
    since = None if earlier is None else file.states.since(engine, earlier)
    if since is None or not since.is_certain:
        problem = "the engine no longer has the documents of then: it was built again, or restored from a backup"
        return RepeatedSearch(entry, None, problem)
    assert earlier is not None
    was_there, name = since.was_there, str(details["ranker"])
    numbers: dict[str, Any] = {
        "n_added": since.n_added_since,
        "n_changed": len(since.changed),
        "n_removed": len(since.removed),
        "changed": since.changed[:MAX_NAMED],
        "removed": since.removed[:MAX_NAMED],
    }
    try:
        results = _searched(RankerOnDocuments(ranker(name), engine.within(was_there)), details)
    except HaybaleError as error:
        return RepeatedSearch(entry, None, f"it cannot be repeated: {error}", **numbers)
    differences = _differences(details, digest_of(name), numbers)
    if file.states.state(engine).metadata != earlier.metadata:
        differences.append("Metadata has changed since, so that filters may leave other documents.")
    then, now = [str(doc_id) for doc_id in details.get("hits", [])], [hit.doc_id for hit in results[:MAX_LOGGED]]
    return RepeatedSearch(
        entry,
        results,
        "",
        **numbers,
        differences=differences,
        lost=[doc_id for doc_id in then if doc_id not in now],
        gained=[doc_id for doc_id in now if doc_id not in then],
        is_same=then == now,
    )


def _searched(fixed: RankerOnDocuments, details: Mapping[str, Any]) -> SearchResults:
    where, together = details.get("where"), details.get("together")
    k, offset = int(details["k"]), int(details.get("offset", 0))
    return search(fixed, paragraphs(str(details["text"])), k, where, offset, together)


def _differences(details: Mapping[str, Any], ranker_digest: str, numbers: Mapping[str, Any]) -> list[str]:
    """Return what may differ from then, beside the documents."""
    differences = []
    if "ranker_digest" in details and details["ranker_digest"] != ranker_digest:
        differences.append("The ranker of this name is another one now, or has learned from other judgements.")
    if "topic" in details:
        differences.append("The judgements of the topic ranked, too; this repetition is without them.")
    if "documents_before" in details:
        differences.append("Documents were added while the search ran; it may have been without them.")
    if numbers["n_added"] or numbers["n_changed"] or numbers["n_removed"]:
        differences.append(
            "Weights of terms are those of all documents that were ever added, so that ranks may differ by them."
        )
    return differences
