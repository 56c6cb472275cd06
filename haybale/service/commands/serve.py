"""``haybale serve``."""

from __future__ import annotations

import ipaddress
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import haybale
from haybale.cli.application import ENGINES, command
from haybale.cli.options import DEFAULT_RANKER, RANKING, RESULTS, argument, option
from haybale.cli.terminal import note, show
from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional

if TYPE_CHECKING:
    from fastapi import FastAPI

    from haybale.service.security import Access

ACCESS = "Access"  # a panel of the help
_MAX_PROCESSES = 4  # by default; each takes memory


@command(ENGINES)
def serve(
    engines: Annotated[
        list[Path],
        argument("The folder of an engine, written by haybale index. Several, or a folder of engines, are matters."),
    ],
    model: Annotated[
        list[str] | None,
        option(
            "NAME=FOLDER: a trained ranker, written by haybale train; with several engines MATTER/NAME=FOLDER. "
            "Repeatable; the first ranker of all is the default one. Default: none.",
            RANKING,
        ),
    ] = None,
    ranker: Annotated[
        list[str] | None,
        option(
            f"A ranker, or NAME=RANKER. Repeatable. Default: {DEFAULT_RANKER}, if there is no --model.",
            RANKING,
        ),
    ] = None,
    judgements: Annotated[
        Path | None,
        option(
            "The file that keeps the judgements of one engine. Default: ENGINE-judgements.sqlite beside each engine.",
            RESULTS,
        ),
    ] = None,
    models: Annotated[
        Path | None,
        option(
            "The folder of rankers that the page trains on one engine. Default: beside --judgements, named after it.",
            RESULTS,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        option(
            "Processes that search each open engine, so that searches use several cores; 0 to search in the service "
            "itself. Default: the number of cores, at most 4.",
            RANKING,
            min=0,
        ),
    ] = None,
    access_log: Annotated[
        Path | None,
        option(
            "A file that gets a line of JSON for each request; with several engines a folder, where each has a file; - "
            "for stderr. Default: none.",
            RESULTS,
        ),
    ] = None,
    log: Annotated[
        bool | None,
        option(
            "Turn the log of searches, openings, judgements, exports and trainings on or off. Default: as it is; off "
            "at first.",
            RESULTS,
            "--log/--no-log",
        ),
    ] = None,
    idle_minutes: Annotated[
        float,
        option(
            "With several engines: after how many minutes without a request one is closed; 0 for never. Default: 30.",
            RANKING,
            min=0,
        ),
    ] = 30.0,
    users: Annotated[
        Path | None, option("A file of users, written by haybale add-user. Default: no users.", ACCESS)
    ] = None,
    idle_hours: Annotated[
        float,
        option("After how many hours without a request browsers must log in again. Default: 12.", ACCESS, min=0.01),
    ] = 12.0,
    user_header: Annotated[
        str | None,
        option(
            "The header in which the proxies of --proxy name the user, after they have authenticated the user "
            "themselves. Default: none is believed.",
            ACCESS,
        ),
    ] = None,
    new_users: Annotated[
        str,
        option(
            "What users may do whom --user-header names and --users lacks: read, judge or administer; none to refuse "
            "them. Default: none.",
            ACCESS,
        ),
    ] = "none",
    token: Annotated[
        str | None,
        option("What everybody has to give. Default: nothing on this machine; made and printed elsewhere.", ACCESS),
    ] = None,
    host: Annotated[str, option("The address to listen on. Default: 127.0.0.1, this machine only.", ACCESS)] = (
        "127.0.0.1"
    ),
    port: Annotated[int, option("The port; 0 for any free one. Default: 8000.", ACCESS, min=0, max=65535)] = 8000,
    allow_host: Annotated[
        list[str] | None,
        option("A further name by which browsers reach the service, as behind a proxy. Repeatable.", ACCESS),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        option(
            "The address or network of a proxy that says who asks, and whether by HTTPS (X-Forwarded-For and "
            "X-Forwarded-Proto). Repeatable. Default: none is believed.",
            ACCESS,
        ),
    ] = None,
    https_only: Annotated[
        bool,
        option(
            "Redirect browsers that come by HTTP, as --proxy says, to HTTPS, and tell them to stay there. Default: no.",
            ACCESS,
            "--https-only",
        ),
    ] = False,
    root_path: Annotated[
        str, option("The path under which a proxy serves the pages, such as /cases. Default: none.", ACCESS)
    ] = "",
) -> None:
    """Serve pages for search, review and training, and the same as a REST interface.

    Several engines, or a folder that has engines or gets them, are matters: each has its own address, judgements,
    rankers, log and rights of users. Judgements are on disk as soon as they are given. Ctrl-C ends the service when
    running requests have finished.
    """
    import_optional("fastapi", "serve")
    import_optional("uvicorn", "serve")
    from haybale.parallel import cpus
    from haybale.service.https_only import HttpsOnly
    from haybale.service.matters.matter_folders import is_single
    from haybale.service.named_rankers import named_model, named_ranker
    from haybale.service.security import LOOPBACK
    from haybale.service.serving import run

    if users is not None and token is not None:
        raise InputError("expected --users or --token, found both; omit --token")
    made = None
    if host not in LOOPBACK and users is None and token is None and user_header is None:
        token = made = secrets.token_urlsafe(32)
    if https_only and not proxy:
        raise InputError("--https-only needs --proxy, found none; give the address of the proxy that has HTTPS")
    if user_header is not None and not proxy:
        raise InputError("--user-header needs --proxy; give the address from which the header is believed")
    access = _access(users, token, [host, *(allow_host or [])], idle_hours, user_header, new_users)
    n_processes = min(_MAX_PROCESSES, cpus()) if processes is None else processes
    named = _NamedRankers(list(map(named_model, model or [])), list(map(named_ranker, ranker or [])))
    with ExitStack() as block:
        if is_single(engines):
            served = _one(block, engines[0], named, n_processes, judgements, models, access_log, log, access, root_path)
        elif judgements is not None or models is not None:
            raise InputError("--judgements and --models need one engine, found several or a folder; omit them")
        else:
            served = _several(block, engines, named, n_processes, idle_minutes, access_log, log, access, root_path)
        application, about = served

        def ready(address: str) -> None:
            show(address)
            if made is not None:
                show(f"token: {made}")
            note(f"{about} Ctrl-C ends the service.")

        guarded = HttpsOnly(application, access, root_path) if https_only else application
        run(guarded, host, port, ready, _proxies(proxy or []))


def _proxies(proxies: list[str]) -> list[str]:
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise InputError(f"--proxy must be an address or a network, found {proxy!r}: {error}; correct it") from None
    return proxies


def _access(
    users: Path | None, token: str | None, hosts: list[str], idle_hours: float, user_header: str | None, new_users: str
) -> Access:
    from haybale.service.roles import RIGHTS
    from haybale.service.security import LOOPBACK, Access
    from haybale.service.sessions import Sessions, sessions_file_of
    from haybale.service.users import Users, only_token
    from haybale.service.users_file import UsersFile

    if new_users not in RIGHTS:
        raise UnknownNameError("right", new_users, RIGHTS)
    admitted: Users | None = None
    if users is not None:
        admitted = UsersFile(users)
        if not admitted.by_name() and user_header is None:
            raise InputError(f"{users}: expected users, found none; add one with haybale add-user")
    elif token is not None:
        admitted = only_token(token)
    elif user_header is not None:
        admitted = Users()
    sessions = Sessions(None if users is None else sessions_file_of(users), idle_hours * 3600)
    is_any = admitted is not None
    return Access(admitted, [*LOOPBACK, *hosts], is_any, sessions, user_header, new_users)


class _NamedRankers(NamedTuple):
    """Names with folders of trained rankers, and names with texts of others."""

    models: list[tuple[str, Path]]
    texts: list[tuple[str, str]]


def _one(
    block: ExitStack,
    folder: Path,
    named: _NamedRankers,
    n_processes: int,
    judgements: Path | None,
    models: Path | None,
    access_log: Path | None,
    log: bool | None,
    access: Access,
    root_path: str,
) -> tuple[FastAPI, str]:
    """Return the application of one engine, and what to say about it; what it needs is closed with the block."""
    from haybale.review import JudgementStore, judgement_file_of
    from haybale.review.interrupted_restore import finish_restore
    from haybale.service import Workspace, create_app
    from haybale.service.named_rankers import fitted_rankers

    finish_restore(judgements or judgement_file_of(folder))
    engine = haybale.Engine.open(folder).prepare()
    texts = named.texts if named.texts or named.models else [(DEFAULT_RANKER, DEFAULT_RANKER)]
    rankers = fitted_rankers(engine, named.models, texts)
    path = judgements or judgement_file_of(engine)
    requests = sys.stderr if access_log is not None and str(access_log) == "-" else None
    if access_log is not None and requests is None:
        requests = block.enter_context(access_log.open("a", encoding="utf-8"))
    workspace = Workspace(engine, rankers, block.enter_context(JudgementStore(path)), models, n_processes)
    block.callback(workspace.close)
    workspace.log.begin(log)
    about = f"{engine.collection.n_documents:,} documents; judgements are in {path}."
    return create_app(workspace, access, requests, root_path), about


def _several(
    block: ExitStack,
    engines: list[Path],
    named: _NamedRankers,
    n_processes: int,
    idle_minutes: float,
    access_log: Path | None,
    log: bool | None,
    access: Access,
    root_path: str,
) -> tuple[FastAPI, str]:
    """Return the application of several matters, and what to say about it."""
    from haybale.service.matters.kept_matters import Matters
    from haybale.service.matters.matter_folders import MatterFolders
    from haybale.service.matters.matters_application import create_matters_app
    from haybale.service.matters.opened_matter import MatterOpener
    from haybale.service.released_memory import map_large_arrays

    models: dict[str, list[tuple[str, Path]]] = {}
    for name, folder in named.models:
        matter, slash, model = name.rpartition("/")
        if not slash:
            raise InputError(
                f"--model must be MATTER/NAME=FOLDER with several engines, found {name!r}; name the matter"
            )
        models.setdefault(matter, []).append((model, folder))
    for _, text in named.texts:
        haybale.parse(text)._check_answers(None)
    texts = named.texts or [(DEFAULT_RANKER, DEFAULT_RANKER)]
    map_large_arrays()
    requests = None if access_log is None else "-" if str(access_log) == "-" else access_log
    opener = MatterOpener(access, texts, models, n_processes, requests, log)
    matters = Matters(MatterFolders(engines), opener, 60 * idle_minutes or None)
    names = ", ".join(matter.name for matter in matters.all())
    about = f"Matters: {names or 'none yet; put engines into the folder'}."
    return create_matters_app(matters, access, block.enter_context(opener.log_of("")), root_path), about
