"""New hits are mailed once, through a real server that accepts and refuses, in the clear and encrypted."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult
from support.decisions import decisions
from support.mail_server import Mailbox, mail_server

from haybale import Engine, InputError, parse
from haybale.review import JudgementStore
from haybale.service import Workspace
from haybale.service.alert_mails import MailServer, mail_alerts, server_of
from haybale.service.saved_searches import SavedQuery
from haybale.service.users import User
from haybale.service.users_file import add_user

DOGS = SavedQuery("damage by a dog", ranker="both", k=3)
BEST = "The dog did damage. The damage by a dog is paid by the keeper of the dog."
SENDER = "haybale@example.org"


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def server(mailbox: Mailbox) -> Iterator[MailServer]:
    with mail_server(mailbox) as port:
        yield MailServer("127.0.0.1", port, "none")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    engine = Engine(decisions(), language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        made = Workspace(engine, {"both": parse("rrf(bm25-doc,parm-rrf)").fit(engine)}, store)
        yield made
        made.close()


def watch(workspace: Workspace, name: str = "dogs", address: str = "ada@example.org", user: str = "Ada") -> int:
    saved = workspace.searches.save(DOGS, name, user)
    workspace.searches.mail_to(saved.id, user, address)
    return saved.id


def test_new_hits_are_mailed_once_in_words_and_in_html(
    workspace: Workspace, server: MailServer, mailbox: Mailbox
) -> None:
    number = watch(workspace, "dogs & <b>cats</b>")
    assert mail_alerts(workspace, MailServer("127.0.0.1", 1, "none"), SENDER).mailed == [], "no server is needed"
    workspace.engine.replace({"new/1": {"text": BEST, "title": "<i>A & Ö</i>"}, "tax/2": f"{BEST} It bites."})
    report = mail_alerts(workspace, server, SENDER, "https://search.example.org/cases/")
    assert report.mailed == [("ada@example.org", "dogs & <b>cats</b>", 2)]
    (mail,) = mailbox.mails
    assert (mail["From"], mail["To"], mail["Auto-Submitted"]) == (SENDER, "ada@example.org", "auto-generated")
    assert "2 new documents" in mail["Subject"]
    plain, html = (part.get_content() for part in mail.iter_parts())
    assert "1. <i>A & Ö</i>" in plain
    assert "tax/2 (changed)" in plain
    assert f"https://search.example.org/cases/searches/{number}" in plain
    assert 'href="https://search.example.org/cases/documents/new%2F1"' in html
    assert "&lt;i&gt;A &amp; Ö&lt;/i&gt;" in html
    assert mail_alerts(workspace, server, SENDER).mailed == []
    workspace.engine.add({"new/2": f"{BEST} Damage by a dog!"})
    assert mail_alerts(workspace, server, SENDER).mailed == [("ada@example.org", "dogs & <b>cats</b>", 1)]
    assert "new/2" in mailbox.mails[1].get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert len(mailbox.mails) == 2


def test_nothing_is_lost_when_the_server_refuses(workspace: Workspace, server: MailServer, mailbox: Mailbox) -> None:
    watch(workspace)
    watch(workspace, "others", "ben@example.org", "Ben")
    workspace.engine.add({"new/1": BEST})
    with pytest.raises(InputError, match="nothing was mailed"):
        mail_alerts(workspace, MailServer("127.0.0.1", 1, "none"), SENDER)
    mailbox.is_full = True
    report = mail_alerts(workspace, server, SENDER)
    assert (report.mailed, len(report.problems)) == ([], 2)
    assert "452 insufficient storage" in report.problems[0]
    mailbox.is_full, mailbox.refused_addresses = False, {"ada@example.org"}
    report = mail_alerts(workspace, server, SENDER)
    assert [address for address, _, _ in report.mailed] == ["ben@example.org"]
    assert "550 no such user here" in report.problems[0]
    mailbox.refused_addresses = set()
    workspace.engine.add({"new/2": f"{BEST} Damage by a dog!"})
    assert {(address, n) for address, _, n in mail_alerts(workspace, server, SENDER).mailed} == {
        ("ada@example.org", 2),
        ("ben@example.org", 1),
    }
    assert mail_alerts(workspace, server, SENDER).mailed == []


def test_a_run_that_ends_after_the_server_has_accepted(
    workspace: Workspace, server: MailServer, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was mailed before is noted, since each mail is noted before the next one is sent."""
    watch(workspace)
    watch(workspace, "others", "ben@example.org", "Ben")
    workspace.engine.add({"new/1": BEST})
    noted = workspace.searches.note_mailed

    def killed(watch: Any, *rest: Any) -> None:
        if watch.user == "Ben":
            raise KeyboardInterrupt
        noted(watch, *rest)

    monkeypatch.setattr(workspace.searches, "note_mailed", killed)
    with pytest.raises(KeyboardInterrupt):
        mail_alerts(workspace, server, SENDER)
    monkeypatch.undo()
    assert [address for address, _, _ in mail_alerts(workspace, server, SENDER).mailed] == ["ben@example.org"]
    assert [mail["To"] for mail in mailbox.mails].count("ada@example.org") == 1


def test_mails_go_to_users_and_domains_that_are_allowed(
    workspace: Workspace, server: MailServer, mailbox: Mailbox
) -> None:
    watch(workspace)
    number = watch(workspace, "others", "ben@evil.example", "Ben")
    workspace.engine.add({"new/1": BEST})
    report = mail_alerts(workspace, server, SENDER, domains=["Example.org"], users=["Ben"])
    assert (report.mailed, report.problems, len(report.skipped)) == ([], [], 2)
    workspace.searches.mail_no_more(number, "Ben")
    assert len(mail_alerts(workspace, server, SENDER, domains=["example.org"], users=["Ada"]).mailed) == 1
    with pytest.raises(InputError, match="--from"):
        mail_alerts(workspace, server, "haybale@example.org\nBcc: x@example.org")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
@pytest.mark.parametrize("security", ["starttls", "ssl"])
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # the port itself is encrypted
def test_encrypted_with_a_password(
    workspace: Workspace,
    mailbox: Mailbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    security: Any,
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*made, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=(data.login, data.password) == (b"haybale", b"secret"), handled=False)

    options: dict[str, Any] = {"authenticator": authenticate, "auth_required": True}
    if security == "ssl":
        options |= {"auth_require_tls": False, "encrypted": context}
    else:
        options |= {"tls_context": context, "require_starttls": True}
    with mail_server(mailbox, **options) as port:
        watch(workspace)
        workspace.engine.add({"new/1": BEST})
        with pytest.raises(InputError, match="certificate"):
            mail_alerts(workspace, MailServer("localhost", port, security, "haybale", "secret"), SENDER)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(InputError, match="535"):
            mail_alerts(workspace, MailServer("localhost", port, security, "haybale", "wrong"), SENDER)
        assert mailbox.mails == []
        report = mail_alerts(workspace, MailServer("localhost", port, security, "haybale", "secret"), SENDER)
        assert len(report.mailed) == len(mailbox.mails) == 1


def test_the_password_is_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HAYBALE_SMTP_PASSWORD", raising=False)
    with pytest.raises(InputError, match="HAYBALE_SMTP_PASSWORD"):
        server_of("mail.example.org", "starttls", "haybale", None)
    monkeypatch.setenv("HAYBALE_SMTP_PASSWORD", "of the variable")
    assert server_of("mail.example.org:2525", "starttls", "haybale", None).password == "of the variable"
    file = tmp_path / "password"
    file.write_text("of the file\n")
    assert server_of("mail.example.org", "ssl", "haybale", file) == MailServer(
        "mail.example.org", 465, "ssl", "haybale", "of the file"
    )
    for wrong in ("", ":25", "mail:x"):
        with pytest.raises(InputError, match="--smtp"):
            server_of(wrong, "none", None, None)


def test_the_command(
    server: MailServer, mailbox: Mailbox, tmp_path: Path, here: Callable[..., tuple[int, str, str]]
) -> None:
    folder = tmp_path / "cases"
    engine = Engine.build(decisions(8), folder, language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "cases-judgements.sqlite") as store:
        workspace = Workspace(engine, {"both": parse("bm25-doc").fit(engine)}, store)
        watch(workspace)
        workspace.close()
    arguments = ["alert", str(folder), "--smtp", f"127.0.0.1:{server.port}", "--security", "none", "--from", SENDER]
    arguments += ["--ranker", "both=bm25-doc"]
    assert here(*arguments)[:2] == (0, "")
    engine.add({"new/1": BEST})
    add_user(tmp_path / "users.json", User("Ben", "judge"))
    assert here(*arguments, "--users", str(tmp_path / "users.json"))[:2] == (0, "")
    mailbox.is_full = True
    status, out, err = here(*arguments)
    assert (status, out) == (2, "")
    assert "452 insufficient storage" in err
    mailbox.is_full = False
    assert here(*arguments)[:2] == (0, "ada@example.org: 1 new for 'dogs'\n")
    assert here(*arguments)[:2] == (0, "")
    assert len(mailbox.mails) == 1
