"""The page of a document: its passages with the matching ones marked, what it cites, and how it was judged."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from haybale.review import ReviewProtocol
from haybale.search import Snippet
from haybale.service.opened_document import passage_number
from haybale.service.own_addresses import original_address
from haybale.service.pages.protocol_page import keyword_values
from haybale.service.pages.rendering import AT_PASSAGE, Renderer, address, document_address, judge_of, view_address
from haybale.service.pages.search_page import SearchState
from haybale.service.roles import READ, needs
from haybale.service.workspace import Workspace

_PASSAGES_PER_PAGE = 200
_MAX_TOPICS = 12  # that the page offers to judge for, the latest ones


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the route of documents."""

    @router.get("/documents")
    @needs(READ)
    def by_parameter(request: Request, id: str) -> HTMLResponse:
        return shown(request, id)

    @router.get("/documents/{doc_id:path}")
    @needs(READ)
    def shown(request: Request, doc_id: str) -> HTMLResponse:
        state, root = SearchState.of(request, workspace), request.scope.get("root_path", "")
        topic = None if state.topic_number is None else workspace.topic(state.topic_number)
        query = state.query or (topic.text if topic else "")
        searched = query, state.condition(workspace), state.ranker or None
        at = passage_number(workspace.engine, doc_id, request.query_params.get("passage", ""))
        offset = state.offset if at is None else at // _PASSAGES_PER_PAGE * _PASSAGES_PER_PAGE
        document = workspace.document(doc_id, *searched, offset, _PASSAGES_PER_PAGE, judge_of(request))
        kept = state.parameters("offset")
        anchors = {
            passage.passage_id: AT_PASSAGE if n == at else f"p{n}"
            for n, passage in enumerate(document.passages, document.offset)
        }

        def matching_link(match: Snippet) -> str:
            # A matching passage may be a piece of a longer one, which is then elsewhere on this page.
            anchor = anchors.get(match.passage_id) or next(
                (anchors[passage.passage_id] for passage in document.passages if match.text in passage.text), "main"
            )
            return f"#{anchor}"

        if state.query or state.is_list:
            back = address(root + "/", state.parameters("offset"))
        else:
            back = f"{root}/topics/{topic.id}/review" if topic else ""
        texts = {match.text for match in document.matching}
        topics = [summary for summary in workspace.topics() if not summary.is_closed]
        topics.sort(key=lambda summary: summary.last or summary.time, reverse=True)
        return renderer.page(
            request,
            "document.html",
            document=document,
            unread=[part for part in workspace.engine.unread if part.file == document.metadata.get("file")],
            file_problem=workspace.files.problem(doc_id),
            original_link=root + original_address(doc_id),
            is_drawable=workspace.files.is_drawable(doc_id, document.metadata),
            view_link=lambda passage: root + view_address(doc_id, passage.passage_id, None, kept),
            headings=_headings(document.passages),
            anchors=anchors,
            matching={part.passage_id for part in document.passages if any(text in part.text for text in texts)},
            matching_link=matching_link,
            query=query,
            limit=_PASSAGES_PER_PAGE,
            back=back,
            topics=topics[:_MAX_TOPICS],
            here_link=root + document_address(doc_id, state.parameters()),
            why_link=address(root + "/why", {"id": doc_id}, kept or [("q", query)]),
            **keyword_values(workspace.desk.protocol(topic.id) if topic else ReviewProtocol()),
            link_to=lambda other: root + document_address(other),
            part_link=lambda offset: root + document_address(doc_id, kept, {"offset": max(0, offset) or None}),
        )


def _headings(passages: list[Snippet]) -> list[str]:
    """Return the place of each passage where it differs from that of the passage before, else an empty text."""
    places = [passage.place for passage in passages]
    return [now if now != before else "" for now, before in zip(places, ["", *places], strict=False)]
