"""``haybale serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import DEFAULT_RANKER, MACHINE, RANKING, RESULTS, option
from haybale.cli.terminal import show
from haybale.errors import InputError
from haybale.extras import import_optional

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@command(ENGINES)
def serve(
    engine: options.EngineFolder,
    model: Annotated[
        list[str] | None,
        option("NAME=FOLDER: a trained ranker, written by haybale train. Repeatable. Default: none.", RANKING),
    ] = None,
    ranker: Annotated[
        list[str] | None,
        option(f"NAME=RANKER, or a ranker. Repeatable; the first is the default. Default: {DEFAULT_RANKER}.", RANKING),
    ] = None,
    judgements: Annotated[
        Path | None,
        option("The file that keeps the judgements. Default: judgements.sqlite beside the engine's folder.", RESULTS),
    ] = None,
    host: Annotated[str, option("The address to listen on. Default: 127.0.0.1, this machine only.", MACHINE)] = (
        "127.0.0.1"
    ),
    port: Annotated[int, option("The port; 0 for any free one. Default: 8000.", MACHINE, min=0, max=65535)] = 8000,
) -> None:
    """Serve a page for search, review and training, and the same as a REST interface.

    Judgements are on disk as soon as they are given. Ctrl-C ends the service after the running requests.
    """
    uvicorn = import_optional("uvicorn", "serve")
    from haybale.review import JudgementStore
    from haybale.service import Workspace, create_app

    opened = haybale.Engine.open(engine).prepare()
    rankers = {}
    for given in ranker or [DEFAULT_RANKER]:
        name, _, text = given.partition("=") if _is_named(given) else (given, "", given)
        rankers[name] = haybale.parse(text).fit(opened)
    for given in model or []:
        name, equals, folder = given.partition("=")
        if not equals:
            raise InputError(f"--model must be NAME=FOLDER, found {given!r}; give the ranker a name")
        rankers[name] = haybale.load(folder, opened)
    path = judgements or engine.absolute().parent / "judgements.sqlite"
    with JudgementStore(path) as store:
        application = create_app(Workspace(opened, rankers, store))
        show(f"http://{host}:{port}/")
        uvicorn.run(application, host=host, port=port, log_level="warning")


def _is_named(given: str) -> bool:
    """Return whether a text is NAME=RANKER, where parameters of a ranker have an equals sign, too."""
    return given.partition("=")[0].replace("-", "").replace("_", "").isalnum() and "=" in given
