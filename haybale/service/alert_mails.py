"""Mail the new hits of saved searches, each once, through the SMTP server of the team.

A mail is noted as sent after the server has accepted it. If the server refuses it, or cannot be reached, its hits are
mailed by the next run. If this process is killed between the two, within milliseconds, they are mailed again.
"""

from __future__ import annotations

import os
import smtplib
import ssl
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from html import escape
from pathlib import Path
from typing import Literal

from haybale.errors import InputError
from haybale.folders import locked
from haybale.review.store_file import utc_now
from haybale.service.acting_user import acting_as
from haybale.service.pages.rendering import document_address
from haybale.service.request_errors import NotFoundError
from haybale.service.saved_searches import MarkedHit, SavedSearch, SearchNews, Watch
from haybale.service.workspace import Workspace

_SECONDS = 30.0  # for each answer of the server
_MAX_SNIPPET = 300  # characters of a snippet
PASSWORD_VARIABLE = "HAYBALE_SMTP_PASSWORD"


@dataclass(frozen=True)
class MailServer:
    """An SMTP server, and how to log in.

    Parameters
    ----------
    host : str
    port : int
    security : {"starttls", "ssl", "none"}
        How the connection is encrypted. The certificate of the server is checked, by the authorities that the system
        knows, or those in the file that ``SSL_CERT_FILE`` names.
    user, password : str, optional
        Default: no login.
    """

    host: str
    port: int
    security: Literal["starttls", "ssl", "none"] = "starttls"
    user: str | None = None
    password: str | None = None

    @contextmanager
    def connected(self) -> Iterator[smtplib.SMTP]:
        """Yield a connection; InputError is raised if there is none, or the login fails."""
        try:
            server = self._connect()
        except (OSError, smtplib.SMTPException) as error:
            raise InputError(
                f"--smtp {self.host}:{self.port}: expected an SMTP server with --security {self.security}, found "
                f"{_reason(error)}; nothing was mailed; check the address, the port and the login"
            ) from None
        with server:
            yield server

    def _connect(self) -> smtplib.SMTP:
        if self.security == "ssl":
            context = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=_SECONDS, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=_SECONDS)
        try:
            if self.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if self.user is not None:
                server.login(self.user, self.password or "")
        except BaseException:
            server.close()
            raise
        return server


@dataclass(frozen=True)
class AlertReport:
    """What :func:`mail_alerts` did.

    Parameters
    ----------
    mailed : list of (str, str, int)
        The address, the name of the search and the number of new hits of each mail that was accepted.
    problems : list of str
        Why other mails were not sent; their hits are mailed by the next run.
    skipped : list of str
        To whom nothing is mailed, and why.
    """

    mailed: list[tuple[str, str, int]]
    problems: list[str]
    skipped: list[str]


def mail_alerts(
    workspace: Workspace,
    server: MailServer,
    sender: str,
    link: str = "",
    domains: Collection[str] = (),
    users: Collection[str] | None = None,
) -> AlertReport:
    """Mail the new hits of all saved searches for which somebody wants mails; nothing where nothing is new.

    Parameters
    ----------
    workspace : Workspace
        With the rankers of the service.
    server : MailServer
    sender : str
        The address that the mails are from.
    link : str, default ""
        The address of the service, for links to documents. Default: no links.
    domains : collection of str, default ()
        Mail only to addresses of these domains. Default: of all.
    users : collection of str, optional
        Mail only to these users. Default: to all.

    Raises
    ------
    InputError
        If the sender is no address, or the server cannot be reached; nothing was mailed then.
    """
    if "@" not in sender or not sender.isprintable():
        raise InputError(f"--from must be an address such as haybale@example.org, found {sender!r:.100}; correct it")
    path = workspace.matter.path
    with nullcontext() if path is None else locked(path.with_name(f"{path.name}.mailing")):  # one run at a time
        due, problems, skipped = _due(workspace, domains, users)
        mailed: list[tuple[str, str, int]] = []
        if due:
            with server.connected() as connection:
                for watch, saved, news in due:
                    message = mail_of(saved, news, sender, str(watch.address), link)
                    problem = _refusal(connection, message)
                    if problem:
                        problems.append(f"{saved.name!r:.100} to {watch.address}: {problem}")
                        continue
                    with acting_as(watch.user):
                        workspace.searches.note_mailed(watch, saved, news)
                    mailed.append((str(watch.address), saved.name, len(news.new)))
    return AlertReport(mailed, problems, skipped)


def _due(
    workspace: Workspace, domains: Collection[str], users: Collection[str] | None
) -> tuple[list[tuple[Watch, SavedSearch, SearchNews]], list[str], list[str]]:
    """Return the mails that are due, why others cannot be made, and to whom nothing is mailed."""
    due, problems, skipped = [], [], []
    for watch in workspace.searches.mail_watches():
        domain = str(watch.address).rpartition("@")[2].lower()
        if users is not None and watch.user not in users:
            skipped.append(f"{watch.address}: {watch.user!r:.100} is no user of the service")
        elif domains and domain not in {allowed.lower() for allowed in domains}:
            skipped.append(f"{watch.address}: mails go to {', '.join(sorted(domains))} only")
        else:
            try:
                saved, news = workspace.searches.to_mail(watch)
            except NotFoundError:  # it is private to another user now
                continue
            except InputError as error:
                problems.append(f"{watch.address}: search {watch.search}: {error}")
                continue
            if news.new:
                due.append((watch, saved, news))
            elif news.state != watch.state:
                workspace.searches.note_mailed(watch, saved, news)
    return due, problems, skipped


def _refusal(connection: smtplib.SMTP, message: EmailMessage) -> str:
    """Return why a server did not accept a mail; an empty text if it did."""
    try:
        connection.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        return f"the server did not accept it: {_reason(error)}"
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{code} {text.decode('utf-8', 'replace')}" for code, text in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error
        return f"{error.smtp_code} {text.decode('utf-8', 'replace') if isinstance(text, bytes) else text}"
    return str(error) or type(error).__name__


def mail_of(saved: SavedSearch, news: SearchNews, sender: str, address: str, link: str = "") -> EmailMessage:
    """Return the mail with the new hits of a search, as plain text and as HTML."""
    n, root = len(news.new), link.rstrip("/")
    heading = f"{n:,} new document{'' if n == 1 else 's'} for {saved.name!r:.120}"
    about = f"Among the first {saved.query.k} hits for: {saved.query.text:.500}"
    page = f"{root}/searches/{saved.id}" if root else ""
    message = EmailMessage()
    message["Subject"] = " ".join(heading.split())
    message["From"], message["To"] = sender, address
    message["Date"] = format_datetime(utc_now())
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2].rstrip("> ") or None)
    message["Auto-Submitted"] = "auto-generated"
    hits = [(marked, f"{root}{document_address(marked.hit.doc_id)}" if root else "") for marked in news.new]
    plain = [heading, about, *(_plain(marked, target) for marked, target in hits)]
    plain += [f"All hits, and an end of these mails: {page}"] if page else []
    message.set_content("\n\n".join(plain) + "\n")
    more = f'<p><a href="{escape(page)}">All hits, and an end of these mails</a></p>' if page else ""
    items = "".join(_html(marked, target) for marked, target in hits)
    message.add_alternative(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(heading)}</title><body>'
        f"<h1>{escape(heading)}</h1><p>{escape(about)}</p><ol>{items}</ol>{more}</body></html>\n",
        subtype="html",
    )
    return message


def _plain(marked: MarkedHit, target: str) -> str:
    return "\n".join(filter(None, (*_lines(marked), target)))


def _html(marked: MarkedHit, target: str) -> str:
    title, *rest = _lines(marked)
    linked = f'<a href="{escape(target)}">{escape(title)}</a>' if target else escape(title)
    return f"<li><p><b>{linked}</b></p>{''.join(f'<p>{escape(line)}</p>' for line in rest)}</li>"


def _lines(marked: MarkedHit) -> list[str]:
    """Return the title of a hit, and its best passage with its place."""
    hit = marked.hit
    title = f"{hit.title}{' (changed)' if marked.novelty == 'changed' else ''}"
    lines = [f"{hit.rank}. {title}"]
    for snippet in hit.snippets[:1]:
        text = "".join(part for part, _ in snippet.excerpt(_MAX_SNIPPET))
        lines.append(f"{snippet.place}: {text}" if snippet.place else text)
    return lines


def server_of(
    smtp: str, security: Literal["starttls", "ssl", "none"], user: str | None, password_file: Path | None
) -> MailServer:
    """Return the server of ``HOST`` or ``HOST:PORT``; the password is that of a file or of an environment variable.

    The port is that of submission by default: 587, 465 with SSL, 25 without encryption.

    >>> server_of("mail.example.org", "ssl", None, None)
    MailServer(host='mail.example.org', port=465, security='ssl', user=None, password=None)
    """
    host, _, port = smtp.partition(":") if smtp.count(":") < 2 else (smtp, "", "")
    if not host or (port and not port.isdecimal()):
        raise InputError(f"--smtp must be HOST or HOST:PORT, found {smtp!r:.100}; correct it")
    password = os.environ.get(PASSWORD_VARIABLE)
    if password_file is not None:
        try:
            password = password_file.read_text(encoding="utf-8").strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{password_file}: expected a file with the password, found none ({error})") from None
    if user is not None and password is None:
        raise InputError(
            f"--smtp-user needs a password, found none; set {PASSWORD_VARIABLE}, or give --smtp-password-file"
        )
    default = {"starttls": 587, "ssl": 465, "none": 25}[security]
    return MailServer(host, int(port or default), security, user, None if user is None else password)
