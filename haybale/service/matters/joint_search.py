"""Search several matters at once, and merge what each finds by rank.

Scores of different engines cannot be compared: each has its own vocabulary, statistics and ranker. So the results are
merged by reciprocal rank fusion. A document belongs to one matter, so its only summand is that of its rank there;
documents with equal ranks are in the order of the names of their matters.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool

from haybale.errors import HaybaleError, InputError, StoppedError
from haybale.search import SearchResults
from haybale.search.search_hit import SearchHit
from haybale.service.matters.matter import Matter

WAIT_SECONDS = 10.0  # for matters to open
_LOGGER = logging.getLogger("haybale.service")


@dataclass(frozen=True)
class JointHit:
    """A document that a search over several matters has found.

    Parameters
    ----------
    rank : int
        Among the hits of all matters, from 1.
    matter : str
    hit : SearchHit
        The hit in its matter, with its rank and its score there.
    """

    rank: int
    matter: str
    hit: SearchHit

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = self.hit.to_dict()
        return {"rank": self.rank, "matter": self.matter, "rank_in_matter": values.pop("rank"), **values}


@dataclass(frozen=True)
class Unanswered:
    """A matter that did not answer a search, and why."""

    matter: str
    is_opening: bool
    detail: str


@dataclass(frozen=True)
class JointResults:
    """What a search over several matters has found.

    Parameters
    ----------
    hits : list of JointHit
        The best first.
    rankers : dict of str to str
        The rankers of the matters that have answered, as texts.
    unanswered : list of Unanswered
        The other ones.
    """

    hits: list[JointHit]
    rankers: dict[str, str]
    unanswered: list[Unanswered]


async def search_matters(
    matters: Sequence[Matter],
    text: str,
    k: int = 10,
    where: str | None = None,
    offset: int = 0,
    wait_seconds: float = WAIT_SECONDS,
) -> JointResults:
    """Return the best documents of several matters for a text, without the first ``offset`` ones.

    Each matter searches by its default ranker, all at once.

    Parameters
    ----------
    matters : sequence of Matter
        With different names.
    text : str
    k : int, default 10
    where : str, optional
        An SQL condition on the metadata. A matter without its columns does not answer.
    offset : int, default 0
    wait_seconds : float, default 10
        For which to wait for matters that are not open.

    Raises
    ------
    InputError
        If every matter refuses the search, such as one for more than 1,000 documents.
    StoppedError
        If nobody waits for the results any more.
    """
    answers = await asyncio.gather(*(_answer_of(matter, text, offset + k, where, wait_seconds) for matter in matters))
    by_matter = {matter.name: answer for matter, answer in zip(matters, answers, strict=True)}
    errors = [answer for answer in answers if isinstance(answer, InputError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    results = {name: answer for name, answer in by_matter.items() if isinstance(answer, SearchResults)}
    unanswered = [
        answer if isinstance(answer, Unanswered) else Unanswered(name, False, str(answer))
        for name, answer in by_matter.items()
        if not isinstance(answer, SearchResults)
    ]
    rankers = {name: matter_results.ranker for name, matter_results in results.items()}
    return JointResults(merged(results)[offset : offset + k], rankers, unanswered)


async def _answer_of(
    matter: Matter, text: str, k: int, where: str | None, wait_seconds: float
) -> SearchResults | InputError | Unanswered:
    async with matter.use(wait_seconds) as opened:
        if opened is None:
            detail = "this matter cannot be opened now" if matter.problem else "this matter is being opened"
            return Unanswered(matter.name, not matter.problem, detail)
        try:
            return await run_in_threadpool(opened.workspace.search, text, k, where)
        except StoppedError:
            raise
        except InputError as error:
            return error
        except (HaybaleError, OSError) as error:
            _LOGGER.error("the matter %r cannot be searched", matter.name, exc_info=error)
            return Unanswered(matter.name, False, "this matter cannot be searched now")


def merged(results: Mapping[str, SearchResults]) -> list[JointHit]:
    """Return the hits of several matters, by their ranks there and then by the names of the matters."""
    ordered = heapq.merge(
        *([(hit.rank, name, hit) for hit in hits] for name, hits in sorted(results.items())),
        key=lambda ranked: ranked[:2],
    )
    return [JointHit(rank, name, hit) for rank, (_, name, hit) in enumerate(ordered, 1)]
