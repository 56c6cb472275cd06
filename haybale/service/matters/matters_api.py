"""The REST interface of a service of several matters: the list of them, and searches over several."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from haybale.service.answers import Answer, HitAnswer, answers
from haybale.service.api import Body, LongText, Text, Where, api_router
from haybale.service.matters.joint_search import search_matters
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter_addresses import matter_address
from haybale.service.matters.readable_matters import readable, summary_of
from haybale.service.own_addresses import document_address
from haybale.service.roles import NONE, needs
from haybale.service.taken_along import origin_of
from haybale.service.users_file import MAX_MATTER
from haybale.service.workspace import MAX_RESULTS

MAX_MATTERS, MAX_MATTERS_IN_ADDRESS = 1000, 50  # of a search
MatterName = Annotated[str, Field(max_length=MAX_MATTER)]


class MatterAnswer(Answer):
    """A matter that the user may read."""

    name: str
    right: Literal["read", "judge", "administer"] = Field(description="What the user may do in it.")
    status: Literal["open", "opening", "closed", "broken"] = Field(
        description="A closed matter is opened when it is asked for; a broken one cannot be opened."
    )
    detail: str = Field(description="For administrators, why a matter is broken; otherwise empty.")
    documents: int | None = Field(description="The number of documents; null while the matter is not open.")
    address: str = Field(description="Where its pages begin; its interface is below, at api/.")


class MattersAnswer(Answer):
    """The matters that the user may read, by name."""

    matters: list[MatterAnswer]


class JointSearchBody(Body):
    """A search whose text is too long for an address."""

    q: LongText
    k: int = Field(10, ge=1, le=MAX_RESULTS)
    where: str | None = Field(None, max_length=2000)
    offset: int = Field(0, ge=0, le=MAX_RESULTS)
    matters: list[MatterName] | None = Field(
        None, min_length=1, max_length=MAX_MATTERS, description="Default: all that the user may read."
    )


class JointHitAnswer(HitAnswer):
    """A document that a search over several matters has found."""

    rank: int = Field(ge=1, description="Among the hits of all matters.")
    matter: str
    rank_in_matter: int = Field(ge=1, description="By which hits of several matters are merged.")
    score: float = Field(description="In its matter; scores of different matters cannot be compared.")
    address: str = Field(description="The page of the document.")


class UnansweredAnswer(Answer):
    """A matter that has not answered a search."""

    matter: str
    is_opening: bool = Field(description="Whether it is being opened, so that it answers later.")
    detail: str


class JointSearchAnswer(Answer):
    """The documents that a search over several matters has found, the best first."""

    query: str
    hits: list[JointHitAnswer]
    rankers: dict[str, str] = Field(description="By matter that has answered, its ranker.")
    unanswered: list[UnansweredAnswer]


def matters_api(matters: Matters) -> APIRouter:
    """Return the routes of several matters."""
    router = api_router()

    @router.get("/matters", **answers(MattersAnswer))
    @needs(NONE)
    def list_matters(request: Request) -> dict[str, Any]:
        """Return the matters that the user may read, without opening any."""
        user, root = request.state.user, request.scope.get("root_path", "")
        return {
            "matters": [
                summary_of(matter, user).to_dict() | {"address": matter_address(root, matter.name, "/")}
                for matter in readable(matters, user)
            ]
        }

    @router.get("/search", **answers(JointSearchAnswer))
    @needs(NONE)
    async def search_several(
        request: Request,
        q: Text,
        k: Annotated[int, Query(ge=1, le=MAX_RESULTS)] = 10,
        where: Where = None,
        offset: Annotated[int, Query(ge=0, le=MAX_RESULTS)] = 0,
        matter: Annotated[
            list[MatterName] | None,
            Query(max_length=MAX_MATTERS_IN_ADDRESS, description="Default: all that the user may read. POST more."),
        ] = None,
    ) -> dict[str, Any]:
        """Return the best documents of several matters for a text, each with its matter.

        Each matter searches by its default ranker. The hits are merged by their ranks, since scores of different
        engines cannot be compared. Matters that are not open are opened; those that take longer than ten seconds are
        listed as unanswered.
        """
        root, chosen = request.scope.get("root_path", ""), readable(matters, request.state.user, matter)
        results = await search_matters(chosen, q, k, where, offset)
        hits = []
        for hit in results.hits:
            address = matter_address(root, hit.matter, document_address(hit.hit.doc_id))
            hits.append(hit.to_dict() | {"address": address, "link": origin_of(request) + address})
        unanswered = [vars(matter) for matter in results.unanswered]
        return {"query": q, "hits": hits, "rankers": results.rankers, "unanswered": unanswered}

    @router.post("/search", **answers(JointSearchAnswer))
    @needs(NONE)
    async def search_several_long(request: Request, body: JointSearchBody) -> dict[str, Any]:
        """Search several matters for a long text, such as a whole document."""
        return await search_several(request, body.q, body.k, body.where, body.offset, body.matters)

    return router
