"""``haybale serve``."""

from __future__ import annotations

import ipaddress
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import DEFAULT_RANKER, RANKING, RESULTS, option
from haybale.cli.terminal import note, show
from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional

if TYPE_CHECKING:
    from haybale import Engine, Ranker
    from haybale.service.security import Access

ACCESS = "Access"  # a panel of the help
_MAX_PROCESSES = 4  # by default; each takes memory


@command(ENGINES)
def serve(
    engine: options.EngineFolder,
    model: Annotated[
        list[str] | None,
        option(
            "NAME=FOLDER: a trained ranker, written by haybale train. Repeatable; the first ranker of all is the "
            "default one. Default: none.",
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
        option("The file that keeps the judgements. Default: ENGINE-judgements.sqlite beside the engine.", RESULTS),
    ] = None,
    models: Annotated[
        Path | None,
        option("The folder of rankers that the page trains. Default: beside --judgements, named after it.", RESULTS),
    ] = None,
    processes: Annotated[
        int | None,
        option(
            "Processes that search, so that searches use several cores; 0 to search in the service itself. Default: "
            "the number of cores, at most 4.",
            RANKING,
            min=0,
        ),
    ] = None,
    access_log: Annotated[
        Path | None,
        option("A file that gets a line of JSON for each request; - for stderr. Default: none.", RESULTS),
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
    root_path: Annotated[
        str, option("The path under which a proxy serves the pages, such as /cases. Default: none.", ACCESS)
    ] = "",
) -> None:
    """Serve pages for search, review and training, and the same as a REST interface.

    Judgements are on disk as soon as they are given. Ctrl-C ends the service when running requests have finished.
    """
    import_optional("fastapi", "serve")
    import_optional("uvicorn", "serve")
    from haybale.parallel import cpus
    from haybale.review import JudgementStore, judgement_file_of
    from haybale.service import Workspace, create_app
    from haybale.service.security import LOOPBACK
    from haybale.service.serving import run

    if users is not None and token is not None:
        raise InputError("expected --users or --token, found both; omit --token")
    made = None
    if host not in LOOPBACK and users is None and token is None and user_header is None:
        token = made = secrets.token_urlsafe(32)
    if user_header is not None and not proxy:
        raise InputError("--user-header needs --proxy; give the address from which the header is believed")
    access = _access(users, token, [host, *(allow_host or [])], idle_hours, user_header, new_users)
    opened = haybale.Engine.open(engine).prepare()
    rankers = rankers_of(opened, model or [], ranker or [])
    path = judgements or judgement_file_of(opened)
    with ExitStack() as block:
        requests = sys.stderr if access_log is not None and str(access_log) == "-" else None
        if access_log is not None and requests is None:
            requests = block.enter_context(access_log.open("a", encoding="utf-8"))
        n = min(_MAX_PROCESSES, cpus()) if processes is None else processes
        workspace = Workspace(opened, rankers, block.enter_context(JudgementStore(path)), models, n)
        block.callback(workspace.close)
        if workspace.matter.exists:
            _ = workspace.matter.store  # refuses one of another engine now, and not at the first search
        if log is not None:
            workspace.log.change(is_on=log, user="")

        def ready(address: str) -> None:
            show(address)
            if made is not None:
                show(f"token: {made}")
            note(f"{opened.collection.n_documents:,} documents; judgements are in {path}. Ctrl-C ends the service.")

        run(create_app(workspace, access, requests, root_path), host, port, ready, _proxies(proxy or []))


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


def rankers_of(engine: Engine, models: list[str], rankers: list[str]) -> dict[str, Ranker]:
    """Return the rankers of the options by name, fitted."""
    fitted: dict[str, Ranker] = {}
    for named_folder in models:
        name, equals, folder = named_folder.partition("=")
        if not equals or not name:
            raise InputError(f"--model must be NAME=FOLDER, found {named_folder!r}; give the ranker a name")
        fitted[name] = haybale.load(folder, engine)
    for ranker_text in rankers if rankers or models else [DEFAULT_RANKER]:
        name, text = _named(ranker_text)
        if name in fitted:
            raise InputError(f"rankers need different names, found {name!r} twice; use NAME=RANKER")
        unfitted = haybale.parse(text)
        unfitted._check_answers(None)
        fitted[name] = unfitted.fit(engine)
    return fitted


def _named(ranker_text: str) -> tuple[str, str]:
    """Return the name and the text of a ranker; parameters of a ranker have an equals sign, too.

    >>> _named("fused=rrf(bm25,knn)"), _named("bm25(k1=0.9)")
    (('fused', 'rrf(bm25,knn)'), ('bm25(k1=0.9)', 'bm25(k1=0.9)'))
    """
    name, equals, text = ranker_text.partition("=")
    return (name, text) if equals and "(" not in name else (ranker_text, ranker_text)
