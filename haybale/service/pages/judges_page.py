"""The page of a topic's judges: what they judge differently, who resolves it, and how far they agree."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError, MissingExtraError
from haybale.review import Conflict, Judges
from haybale.review.judge_agreement import WINDOW
from haybale.service.pages.agreement_chart import agreement_charts
from haybale.service.pages.rendering import Renderer, address, document_address, judge_of
from haybale.service.roles import ADMINISTER, JUDGE, READ, needs
from haybale.service.workspace import Workspace

_CONFLICTS_PER_PAGE = 50


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of a topic's judges."""

    def page(request: Request, topic: int, offset: int = 0, error: str = "") -> HTMLResponse:
        judges, root = workspace.judges(topic), request.scope.get("root_path", "")
        name, here = judge_of(request), f"{root}/topics/{topic}/judges"
        conflicts, resolved = judges.conflicts(), judges.conflicts(resolved=True)
        shown = conflicts[offset : offset + _CONFLICTS_PER_PAGE]
        titles = workspace.titles([conflict.doc_id for conflict in (*shown, *resolved)])
        progress = workspace.progress(topic, [])
        return renderer.page(
            request,
            "judges.html",
            422 if error else 200,
            here="/topics",
            here_link=here,
            topic=workspace.topic(topic),
            plan=judges.plan,
            progress=progress,
            learns_from=progress.learns_from[:1].upper() + progress.learns_from[1:],
            conflicts=[_view(conflict, titles, name) for conflict in shown],
            n_conflicts=len(conflicts),
            resolved=[_view(conflict, titles, name) for conflict in resolved],
            offset=offset,
            size=_CONFLICTS_PER_PAGE,
            part_link=lambda start: address(here, offset=start or None),
            document_link=lambda doc_id: root + document_address(doc_id, {"topic": topic}),
            window=WINDOW,
            error=error,
            **_agreement(judges),
        )

    @router.get("/topics/{topic}/judges")
    @needs(READ)
    def shown(request: Request, topic: int, offset: int = 0) -> HTMLResponse:
        return page(request, topic, max(0, offset))

    @router.post("/topics/{topic}/judges")
    @needs(JUDGE)
    def resolve(
        request: Request,
        topic: int,
        doc_id: Annotated[str, Form(max_length=1000)],
        grade: Annotated[str, Form(pattern="0|1|undo")],
        note: Annotated[str, Form(max_length=10_000)] = "",
        together_with: Annotated[str | None, Form(max_length=500)] = None,
    ) -> Response:
        judges, name = workspace.judges(topic), judge_of(request)
        try:
            if grade == "undo":
                judges.undo_resolution(doc_id, name)
            else:
                judges.resolve(doc_id, int(grade), name, note.strip() or None, together_with)
        except HaybaleError as error:
            return page(request, topic, error=str(error))
        return RedirectResponse(f"{request.scope.get('root_path', '')}/topics/{topic}/judges", 303)

    @router.post("/topics/{topic}/screening")
    @needs(ADMINISTER)
    def change_screening(
        request: Request, topic: int, percent: Annotated[float, Form(ge=0, le=100)] = 100.0
    ) -> Response:
        try:
            workspace.change_screening(topic, percent / 100, judge=judge_of(request))
        except HaybaleError as error:
            return page(request, topic, error=str(error))
        return RedirectResponse(f"{request.scope.get('root_path', '')}/topics/{topic}/judges", 303)


def _view(conflict: Conflict, titles: dict[str, str], name: str) -> dict[str, Any]:
    """Return what the template shows of a conflict; ``others`` are the judges whom the reader contradicts."""
    grades = {row.judge: (row.grade or 0) > 0 for row in conflict.judgements}
    return {
        "doc_id": conflict.doc_id,
        "title": titles.get(conflict.doc_id, conflict.doc_id),
        "judgements": conflict.judgements,
        "resolution": conflict.resolution,
        "resolved_by": " and ".join(conflict.resolved_by),
        "is_own": name in grades,
        "others": [other for other in grades if other and name in grades and grades[other] != grades[name]],
    }


def _agreement(judges: Judges) -> dict[str, Any]:
    """Return a row for each pair of judges, and a chart of each pair over time."""
    try:
        table, over_time = judges.agreement(), judges.agreement_over_time()
    except MissingExtraError:
        return {"agreement": [], "charts": []}
    rows = [
        {
            "judges": f"{row['judge'] or 'no name'} and {row['other'] or 'no name'}",
            "counts": [f"{row[name]:,}" for name in ("documents", "only_judge", "only_other")],
            "agree": f"{row['agreement']:.0%}",
            "kappas": [f"{row[name]:.2f}" if row[name] == row[name] else "–" for name in ("kappa", "pabak")],
        }
        for row in table.to_dict("records")
    ]
    return {"agreement": rows, "charts": agreement_charts(over_time)}
