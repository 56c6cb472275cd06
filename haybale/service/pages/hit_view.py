"""The documents of the search page as its template shows them: where links lead, files, copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haybale.search import SearchHit, SearchResults, Snippet
from haybale.search.hit_groups import COPIES
from haybale.service.document_list import ListedDocument
from haybale.service.own_addresses import original_address, picture_address
from haybale.service.pages.file_words import FileWords, file_words
from haybale.service.pages.rendering import address, document_address, passage_address, view_address
from haybale.service.workspace import Workspace

_MAX_COPIES = 20  # of a document, that are listed


@dataclass(frozen=True)
class HitCopy:
    """A copy of a document."""

    title: str
    link: str
    file: FileWords | None


@dataclass(frozen=True)
class HitPage:
    """The page of a file that has a passage."""

    number: int
    link: str
    picture: str


@dataclass(frozen=True)
class HitView:
    """A document that was found or listed.

    Parameters
    ----------
    number : int
        Its rank, or its number in the list.
    doc_id, title : str
    link : str
        Leads to the document at its best passage: to the page of its file, or into its text.
    metadata : dict
        Without the name of the file.
    passages : list of (Snippet, HitPage or None)
    file : FileWords, optional
    original : str
        The address of the file, at the page; empty if there is none.
    why : str
        The address of the reasons; empty in a list.
    below : int, optional
        The rank of the hit that it is shown together with.
    copies : list of HitCopy
    n_more : int
        How many others belong together with it that are not shown.
    """

    number: int
    doc_id: str
    title: str
    link: str
    metadata: Mapping[str, Any]
    passages: list[tuple[Snippet, HitPage | None]]
    file: FileWords | None
    original: str = ""
    why: str = ""
    below: int | None = None
    copies: list[HitCopy] = field(default_factory=list)
    n_more: int = 0


class HitViews:
    """Makes the views of documents.

    Parameters
    ----------
    workspace : Workspace
    root : str
        The path under which the service is.
    kept : sequence of pair
        The parameters of the search, which links to documents hand on.
    """

    def __init__(self, workspace: Workspace, root: str, kept: Sequence[tuple[str, Any]]) -> None:
        self.workspace, self.root, self.kept = workspace, root, kept

    def of_results(self, results: SearchResults, together: str | None, why: Sequence[tuple[str, Any]]) -> list[HitView]:
        """Return the hits of a search; ``why`` are the parameters of the page of reasons."""
        groups = {group.shown[-1]: group for group in results.groups or ()}
        below = {rank: group.ranks[0] for group in groups.values() for rank in group.shown[1:]}
        views = []
        for hit in results:
            group, reasons = groups.get(hit.rank), address(self.root + "/why", {"id": hit.doc_id}, why)
            others = [] if group is None else group.doc_ids[len(group.shown) :]
            copies = self._copies(others) if together == COPIES else []
            more = {"below": below.get(hit.rank), "copies": copies, "n_more": len(others) - len(copies)}
            views.append(self._view(hit.rank, hit, why=reasons, **more))
        return views

    def of_list(self, documents: Sequence[ListedDocument], offset: int) -> list[HitView]:
        """Return the documents of a list that begins at ``offset``."""
        return [self._view(number, document) for number, document in enumerate(documents, offset + 1)]

    def _view(self, number: int, document: SearchHit | ListedDocument, **more: Any) -> HitView:
        doc_id, metadata, files = document.doc_id, document.metadata, self.workspace.files
        pages = [self._page(doc_id, metadata, snippet) for snippet in document.snippets]
        first = pages[0] if pages else None
        passage_id = document.snippets[0].passage_id if document.snippets else None
        link = self.root + passage_address(doc_id, passage_id, self.kept) if first is None else first.link
        at_page = "" if first is None else f"#page={first.number}"
        file = file_words(doc_id, metadata)
        original = self.root + original_address(doc_id) + at_page if file and files.has_files else ""
        shown = {name: value for name, value in metadata.items() if not (name == "file" and file)}
        passages = list(zip(document.snippets, pages, strict=True))
        return HitView(number, doc_id, document.title, link, shown, passages, file, original, **more)

    def _page(self, doc_id: str, metadata: dict[str, Any], snippet: Snippet) -> HitPage | None:
        if snippet.page is None or not self.workspace.files.is_drawable(doc_id, metadata, snippet):
            return None
        link = self.root + view_address(doc_id, snippet.passage_id, None, self.kept)
        return HitPage(snippet.page, link, self.root + picture_address(doc_id, snippet.passage_id, None))

    def _copies(self, doc_ids: Sequence[str]) -> list[HitCopy]:
        collection = self.workspace.engine.snapshot().collection
        titles = self.workspace.titles(doc_ids[:_MAX_COPIES])
        copies = []
        for doc_id, title in titles.items():
            row = int(collection.find_documents([doc_id])[0])
            metadata = {} if collection.metadata is None else collection.metadata.slice(row, 1).to_pylist()[0]
            copies.append(HitCopy(title, self.root + document_address(doc_id, self.kept), file_words(doc_id, metadata)))
        return copies
