"""Requests to the service: odd spellings by users of every right, odd numbers, bodies, files and cookies."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import cache, partial
from itertools import count
from typing import Any

from hostile.target import CORRECT, REJECTED, Cases, Target
from support.decisions import decisions
from support.odd_requests import odd_requests
from support.spellings import FORBIDDEN, VISITOR, random_requests, spied, status_of

import haybale
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app
from haybale.service.security import Access


def requests(target: Target, rng: random.Random) -> Cases:
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    for number in count():
        kind = rng.choice((_spelled, _spelled, _odd))
        yield f"{kind.__name__} {number}", partial(kind, rng.randrange(2**32))


@cache
def _spied() -> tuple[Any, Access, list[str]]:
    calls: list[str] = []
    store = JudgementStore()
    store.add_topic("dogs", "dogs")
    engine = haybale.Engine(decisions(12), language="english", encoder="tfidf(min_df=1)").prepare()
    return *spied(engine, store, calls), calls


@cache
def _served() -> tuple[Any, Access]:
    engine = haybale.Engine(decisions(12), language="english", encoder="tfidf(min_df=1)").prepare()
    workspace, access = Workspace(engine, {"bm25": haybale.parse("bm25").fit(engine)}, JudgementStore()), Access()
    workspace.create_topic("dogs")
    return create_app(workspace, access), access


def _spelled(seed: int) -> str:
    """Ten requests: no right has an effect, or reads, what it may not."""
    application, access, calls = _spied()
    asked = random_requests(application, access, random.Random(seed))

    async def ask() -> None:
        for _ in range(10):
            right, name, scope, body = next(asked)
            calls.clear()
            status, _ = await status_of(application, scope, body)
            assert not FORBIDDEN[right] & set(calls), f"{name}: {calls}"
            assert 200 <= status < 500, f"{name}: {status}"

    asyncio.run(ask())
    return CORRECT


def _odd(seed: int) -> str:
    """A request with odd values is answered, but not by a failure."""
    application, access = _served()
    paths = [route.path for route in application.routes]
    name, scope, body = next(odd_requests(paths, random.Random(seed), [("x-csrf-token", access.form_token(VISITOR))]))
    status, _ = asyncio.run(status_of(application, scope, body))
    assert 200 <= status < 500, f"{name}: {status}"
    return CORRECT if status < 400 else REJECTED
