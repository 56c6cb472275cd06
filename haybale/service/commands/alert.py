"""``haybale alert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import DEFAULT_RANKER, RANKING, RESULTS, option
from haybale.cli.terminal import note, show
from haybale.errors import InputError
from haybale.extras import import_optional

MAIL = "Mail"  # a panel of the help


@command(ENGINES)
def alert(
    engine: options.EngineFolder,
    smtp: Annotated[str, option("The mail server: HOST, or HOST:PORT.", MAIL)],
    sender: Annotated[str, option("The address that mails are from.", MAIL, "--from")],
    security: Annotated[
        Literal["starttls", "ssl", "none"], option("How the connection is encrypted. Default: starttls.", MAIL)
    ] = "starttls",
    smtp_user: Annotated[
        str | None,
        option("The name to log in with; the password is in HAYBALE_SMTP_PASSWORD. Default: no login.", MAIL),
    ] = None,
    smtp_password_file: Annotated[
        Path | None, option("A file with the password. Default: HAYBALE_SMTP_PASSWORD.", MAIL)
    ] = None,
    link: Annotated[
        str,
        option("The address of the service, for links, such as https://search.example.org. Default: no links.", MAIL),
    ] = "",
    domain: Annotated[
        list[str] | None, option("Mail only to addresses of this domain. Repeatable. Default: to all.", MAIL)
    ] = None,
    users: Annotated[
        Path | None, option("Mail only to users of this file who may read the engine's matter. Default: to all.", MAIL)
    ] = None,
    model: Annotated[
        list[str] | None, option("NAME=FOLDER, as for haybale serve. Repeatable. Default: none.", RANKING)
    ] = None,
    ranker: Annotated[
        list[str] | None,
        option(f"A ranker, or NAME=RANKER, as for haybale serve. Repeatable. Default: {DEFAULT_RANKER}.", RANKING),
    ] = None,
    judgements: Annotated[
        Path | None, option("The file of judgements, as for haybale serve. Default: that of the engine.", RESULTS)
    ] = None,
    models: Annotated[
        Path | None,
        option("The folder of trained rankers, as for haybale serve. Default: that of the engine.", RESULTS),
    ] = None,
) -> None:
    """Mail new hits of saved searches to those who want mails; run it by cron, also while the service runs.

    Give it the rankers of the service. What a mail server has accepted is never mailed again; what it refuses is mailed
    by the next run, and the command fails.
    """
    import_optional("fastapi", "serve")
    from haybale.review import JudgementStore, judgement_file_of
    from haybale.service import Workspace
    from haybale.service.alert_mails import mail_alerts, server_of
    from haybale.service.named_rankers import fitted_rankers, named_model, named_ranker
    from haybale.service.roles import RANKS, READ
    from haybale.service.users_file import read_users

    server = server_of(smtp, security, smtp_user, smtp_password_file)
    opened, names = haybale.Engine.open(engine), None
    if users is not None:
        matter = engine.resolve().name
        names = [user.name for user in read_users(users) if RANKS[user.right_in(matter)] >= RANKS[READ]]
    with JudgementStore(judgements or judgement_file_of(opened)) as store:
        texts = ranker if ranker or model else [DEFAULT_RANKER]
        rankers = fitted_rankers(opened, map(named_model, model or []), map(named_ranker, texts or []))
        workspace = Workspace(opened, rankers, store, models)
        try:
            report = mail_alerts(workspace, server, sender, link, domain or (), names)
        finally:
            workspace.close()
    for address, name, n in report.mailed:
        show(f"{address}: {n:,} new for {name!r}")
    for reason in report.skipped:
        note(f"Nothing is mailed to {reason}.")
    note(f"{len(report.mailed):,} mails.")
    if report.problems:
        raise InputError(
            f"expected that every mail is accepted, found {len(report.problems):,} that were not: "
            f"{'; '.join(report.problems)}; correct it, and run the command again"
        )
