"""Each text run of a generated message is read once, in its document, or its part is listed."""

from __future__ import annotations

import base64
import binascii
import email.message
import quopri
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outlook_files import Property, outlook_file, packed_rtf

from haybale.collections import UnreadPart
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.collections.files.mail import messages_of
from haybale.collections.files.mail_headers import header_text
from haybale.collections.files.outlook_message import unpacked_rtf
from haybale.collections.files.signed_container import signed_content
from haybale.collections.readers.files import read_files

Draw = Callable[[Any], Any]
Letters = st.text(st.characters(categories=["L", "N", "S"]), min_size=1, max_size=12)
_DEPTH = 3
_UNKNOWN = "x-unknown"


def read(name: str, data: bytes) -> tuple[list[FileDocument], list[UnreadPart]]:
    reader = reader_of(name)
    assert reader is not None
    return read_documents(reader, data, {})


def text_of(document: FileDocument) -> str:
    return "\n".join(part.text for part in document.parts)


def words_of(text: str) -> list[str]:
    return re.findall(r"word\d+x", text)


class Written:
    """Writes messages. ``words`` are the words of each document, in their order; ``listed`` those of other parts."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.n, self.n_boundaries = draw, 0, 0
        self.body: list[str] = []  # the words of the message that is written
        self.words: list[list[str]] = []
        self.listed: list[str] = []

    def word(self) -> str:
        self.n += 1
        return f"word{self.n}x"

    def one_of(self, *makers: Callable[[], bytes]) -> bytes:
        return self.draw(st.sampled_from(makers))()

    def message(self, depth: int = _DEPTH) -> bytes:
        """Return a message with a subject; its body is a document."""
        outer, self.body = self.body, []
        self.words.append(self.body)
        subject = f"Subject: message {len(self.words)}\nMIME-Version: 1.0\n".encode()
        message = subject + self.part(depth)
        self.body = outer
        return message

    def part(self, depth: int) -> bytes:
        makers = [self.text, self.text, self.page, self.calendar]
        if depth:
            makers += [
                lambda: self.multipart("mixed", depth),
                lambda: self.multipart("related", depth),
                lambda: self.multipart("unheard-of", depth),
                lambda: self.signed(depth),
                self.alternative,
                lambda: self.mixed_alternative(depth),
                lambda: self.multipart("mixed", depth, attached=True),
                lambda: self.forwarded(depth),
                lambda: self.digest(depth),
                self.report,
                self.encrypted,
            ]
        return self.one_of(*makers)

    def encoded(self, header: str, text: bytes) -> bytes:
        match self.draw(st.sampled_from(["8bit", "base64", "quoted-printable"])):
            case "base64":
                return f"{header}Content-Transfer-Encoding: base64\n\n".encode() + base64.encodebytes(text)
            case "quoted-printable":
                return f"{header}Content-Transfer-Encoding: quoted-printable\n\n".encode() + quopri.encodestring(text)
        return f"{header}\n".encode() + text + b"\n"

    def text(self) -> bytes:
        word = self.word()
        self.body.append(word)
        charset = self.draw(st.sampled_from(["", "utf-8", "iso-8859-1", '"utf-8; format=flowed"', _UNKNOWN, "utf-16"]))
        codec = {"iso-8859-1": "iso-8859-1", "utf-16": "utf-16"}.get(charset, "utf-8")
        parameter = f"; charset={charset}" if charset else ""
        text = f"Gebühr {word}\r\n\r\nEnde" if self.draw(st.booleans()) else f"Gebühr {word}"
        header = f"Content-Type: text/plain{parameter}\n"
        if codec == "utf-16":  # has bytes that only encodings of the transfer can carry
            return f"{header}Content-Transfer-Encoding: base64\n\n".encode() + base64.encodebytes(text.encode(codec))
        return self.encoded(header, text.encode(codec))

    def page(self) -> bytes:
        word = self.word()
        self.body.append(word)
        tag = self.draw(st.sampled_from(["{}", "<p>{}</p>", "<div>{}</div>", "<table><tr><td>{}</td></tr></table>"]))
        return self.encoded("Content-Type: text/html; charset=utf-8\n", tag.format(word).encode())

    def calendar(self) -> bytes:
        word = self.word()
        self.body.append(word)
        text = f"BEGIN:VEVENT\r\nSUMMARY;LANGUAGE=de:At\\, {word}\r\nUID:7\r\nEND:VEVENT\r\n"
        return self.encoded("Content-Type: text/calendar; method=REQUEST\n", text.encode())

    def joined(self, kind: str, members: list[bytes]) -> bytes:
        self.n_boundaries += 1
        boundary = f"=_{self.n_boundaries}_="
        between = f"\n--{boundary}\n".encode()
        body = b"".join(between + member for member in members)
        return (
            f'Content-Type: multipart/{kind}; boundary="{boundary}"\n\n'.encode()
            + body
            + f"\n--{boundary}--\n".encode()
        )

    def multipart(self, kind: str, depth: int, attached: bool = False) -> bytes:
        n_members = self.draw(st.integers(1, 3))
        members = [
            self.attachment() if attached and self.draw(st.booleans()) else self.part(depth - 1)
            for _ in range(n_members)
        ]
        return self.joined(kind, members)

    def signed(self, depth: int) -> bytes:
        signature = b"Content-Type: application/pkcs7-signature; name=smime.p7s\n\nMIIB\n"
        return self.joined("signed", [self.part(depth - 1), signature])

    def alternative(self) -> bytes:
        """Return a plain text beside a page: with the same word, without one, or with another one."""
        word, other = self.word(), self.word()
        plain, page = self.draw(st.sampled_from([(word, word), ("", word), ("\u00a0\n ", word), (word, other)]))
        self.body += dict.fromkeys(words_of(f"{plain} {page}"))
        charset = "charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
        return self.joined(
            "alternative",
            [
                f"Content-Type: text/plain; {charset}{plain}".encode(),
                f"Content-Type: text/html; {charset}<p>{page}</p>".encode(),
            ],
        )

    def mixed_alternative(self, depth: int) -> bytes:
        """Return a plain text beside a page with an attachment in the middle, as Apple Mail writes it."""
        first, second = self.word(), self.word()
        self.body += [first, second]
        header = "Content-Type: text/html\n\n<p>"
        pages = [f"{header}{first}</p>".encode(), self.attachment(), f"{header}{second}</p>".encode()]
        return self.joined(
            "alternative", [f"Content-Type: text/plain\n\n{first}".encode(), self.joined("mixed", pages)]
        )

    def attachment(self) -> bytes:
        word = self.word()
        kind, name, readable = self.draw(
            st.sampled_from(
                [
                    ("text/plain", "note.txt", True),
                    ("text/plain", "same.txt", True),
                    ("text/csv", "", True),
                    ("application/octet-stream", "page.html", True),
                    ("text/x-patch", "change.diff", True),
                    ("application/octet-stream", "data.bin", False),
                    ("application/x-unheard", "", False),
                ]
            )
        )
        if readable:
            self.words.append([word])
        else:
            self.listed.append(name or "unnamed")
        content = f"text\n{word}" if kind == "text/csv" else word
        names = f'; filename="{name}"' if name else ""
        return self.encoded(f"Content-Type: {kind}\nContent-Disposition: attachment{names}\n", content.encode())

    def forwarded(self, depth: int) -> bytes:
        disposition = self.draw(st.sampled_from(["", "Content-Disposition: attachment; filename=offer.eml\n"]))
        return f"Content-Type: message/rfc822\n{disposition}\n".encode() + self.message(depth - 1)

    def digest(self, depth: int) -> bytes:
        return self.joined("digest", [b"\n" + self.message(depth - 1) for _ in range(self.draw(st.integers(1, 2)))])

    def report(self) -> bytes:
        words = [self.word() for _ in range(3)]
        self.body += words[:2]
        self.words.append([words[2]])
        return self.joined(
            "report",
            [
                f"Content-Type: text/plain\n\n{words[0]}".encode(),
                f"Content-Type: message/delivery-status\n\nReporting-MTA: x\n\nDiagnostic-Code: {words[1]}\n".encode(),
                f"Content-Type: text/rfc822-headers\n\nSubject: returned\nX-Note: {words[2]}\n".encode(),
            ],
        )

    def encrypted(self) -> bytes:
        self.listed.append("encrypted")
        control = b"Content-Type: application/pgp-encrypted\n\nVersion: 1\n"
        return self.joined("encrypted", [control, b"Content-Type: application/octet-stream; name=x.asc\n\nabc"])


@given(st.data())
def test_each_text_run_of_a_message_is_read_once_in_its_order_or_listed(data: st.DataObject) -> None:
    written = Written(data.draw)
    message = written.message()
    if data.draw(st.booleans()):
        message = message.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    documents, unread = read("a.eml", message)
    assert sorted(map(words_of, map(text_of, documents))) == sorted(written.words)
    listed = " ".join(map(str, unread))
    for name in written.listed:
        assert name in listed
    parents = [document for document in documents if document.attached_to is None]
    assert parents == documents[:1]
    keys = {document.key or "" for document in documents}
    assert len(keys) == len(documents)
    assert all(document.attached_to in keys for document in documents[1:])


@given(st.data())
def test_a_mailbox_has_the_documents_of_its_messages(data: st.DataObject) -> None:
    written, messages = Written(data.draw), list[bytes]()
    for number in range(data.draw(st.integers(1, 3))):
        written.body = []
        written.words.append(written.body)
        lines = b"Content-Type: text/plain\n\nYours\n\nFrom here on, nothing is due.\nFrom the 3rd on"
        body = written.joined("mixed", [lines, written.part(1)])
        messages.append(f"Message-ID: <{number}@x>\n".encode() + body + b"\n")
    separated = [re.sub(rb"^(>*From )", rb">\1", message, flags=re.M) for message in messages]
    mailbox = b"".join(b"From a@x.org Tue Jan  2 10:00:00 2024\n" + message for message in separated)
    assert [message.strip() for message in messages_of(mailbox)] == [message.strip() for message in messages]
    documents, _ = read("a.mbox", mailbox + b"From a@x.org Tue Jan  2 10:00:00 2024\n" + separated[0])
    assert sorted(map(words_of, map(text_of, documents))) == sorted(written.words)
    assert [document.key for document in documents if document.attached_to is None] == [
        f"{number}@x" for number in range(len(messages))
    ]


@given(Letters, st.sampled_from(["base64", "quoted-printable"]))
def test_a_message_in_a_message_may_be_encoded(text: str, encoding: str) -> None:
    inner = f"Subject: inner\nContent-Type: text/plain; charset=utf-8\n\nRent {text}".encode()
    data = base64.encodebytes(inner) if encoding == "base64" else quopri.encodestring(inner)
    head = f"Subject: outer\nContent-Type: message/rfc822\nContent-Transfer-Encoding: {encoding}\n\n".encode()
    documents, unread = read("a.eml", head + data)
    assert [document.title for document in documents] == ["outer", "inner"]
    assert text_of(documents[1]).split() == f"Rent {text}".split()
    assert not unread


@given(st.binary(max_size=200).map(lambda data: b"id,text\n1," + base64.b64encode(data) + b"x"))
def test_a_file_in_the_text_of_a_message_is_an_attachment(content: bytes) -> None:
    lines = b"".join(binascii.b2a_uu(content[start : start + 45]) for start in range(0, len(content), 45))
    text = b"Subject: s\n\nThe rent is due.\n\nbegin 644 fees.csv\n" + lines + b"`\nend\n\nbegin 7 is no file."
    documents, unread = read("a.eml", text)
    assert [part.text for part in documents[0].parts] == ["The rent is due.", "begin 7 is no file."]
    assert text_of(documents[1]) == content.split(b",")[-1].decode()
    assert not unread


def test_a_forwarded_message_has_its_mail_as_parent_and_a_thread_its_first_message(tmp_path: Path) -> None:
    inner = email.message.EmailMessage()
    inner["Subject"], inner["Message-ID"] = "Offer", "<1@x>"
    inner.set_content("We offer 5000 euros.")
    inner.add_attachment(b"Terms.", maintype="text", subtype="plain", filename="terms.txt")
    outer = email.message.EmailMessage()
    outer["Subject"], outer["Message-ID"], outer["References"] = "Fwd", "<3@x>", "<1@x> <2@x>"
    outer.set_content("See below.")
    outer.add_attachment(inner)
    (tmp_path / "a.eml").write_bytes(outer.as_bytes())
    collection = read_files(tmp_path)
    assert collection.metadata is not None
    rows = dict(zip(collection.doc_ids.to_pylist(), collection.metadata.to_pylist(), strict=True))
    assert {name: row["parent"] for name, row in rows.items()} == {
        "a.eml": None, "a.eml:Offer.eml": "a.eml", "a.eml:Offer.eml/terms.txt": "a.eml:Offer.eml"
    }  # fmt: skip
    assert [row["thread"] for row in rows.values()] == ["1@x", "1@x", None]


@given(Letters, st.sampled_from(["utf-8", "utf-16", "gb18030"]), st.integers(1, 5), st.booleans())
def test_encoded_words_are_read_also_those_that_divide_letters(
    text: str, charset: str, n_bytes: int, is_base64: bool
) -> None:
    data = text.encode(charset)
    pieces = [data[start : start + n_bytes] for start in range(0, len(data), n_bytes)]
    encode = base64.b64encode if is_base64 else lambda piece: "".join(f"={byte:02X}" for byte in piece).encode()
    words = [f"=?{charset}?{'B' if is_base64 else 'q'}?{encode(piece).decode()}?=" for piece in pieces]
    assert header_text("\r\n ".join(words)) == " ".join(text.split())


def value(tag: int, content: bytes, *, is_indefinite: bool = False) -> bytes:
    """Return a value of ASN.1, whose length is given before it or by its end."""
    if is_indefinite:
        return bytes([tag, 0x80]) + content + b"\0\0"
    size = len(content).to_bytes(4, "big")
    return bytes([tag, 0x84]) + size + content


@given(st.binary(max_size=300), st.booleans(), st.integers(1, 100))
def test_what_was_signed_is_taken_out_of_its_container(content: bytes, is_indefinite: bool, n_bytes: int) -> None:
    pieces = [value(4, content[start : start + n_bytes]) for start in range(0, len(content), n_bytes)]
    octets = value(0x24, b"".join(pieces), is_indefinite=True) if is_indefinite else value(4, content)
    data_type = bytes.fromhex("06092a864886f70d010701")
    encapsulated = value(
        0x30, data_type + value(0xA0, octets, is_indefinite=is_indefinite), is_indefinite=is_indefinite
    )
    signed = value(
        0x30, value(2, b"\1") + value(0x31, b"") + encapsulated + value(0x31, b""), is_indefinite=is_indefinite
    )
    oid = "06092a864886f70d01070{}"
    for number, expected in ((2, content), (3, None)):  # signed, enveloped
        kind = bytes.fromhex(oid.format(number))
        container = value(0x30, kind + value(0xA0, signed, is_indefinite=is_indefinite), is_indefinite=is_indefinite)
        assert signed_content(container) == expected
        assert signed_content(container[: len(container) // 2]) is None


def test_the_text_of_a_signed_container_is_read_and_an_encrypted_one_is_listed() -> None:
    inner = b"Content-Type: text/plain\n\nThe rent is due."
    encapsulated = value(0x30, bytes.fromhex("06092a864886f70d010701") + value(0xA0, value(4, inner)))
    signed = value(0x30, value(2, b"\1") + value(0x31, b"") + encapsulated)
    head = b"Subject: Rent\nContent-Type: application/pkcs7-mime; name=smime.p7m\nContent-Transfer-Encoding: base64\n\n"
    for kind, expected in (("2", "The rent is due."), ("3", "Rent")):
        container = value(0x30, bytes.fromhex(f"06092a864886f70d01070{kind}") + value(0xA0, signed))
        documents, unread = read("a.eml", head + base64.encodebytes(container))
        assert text_of(documents[0]) == expected
        assert [part.part for part in unread] == ["attachment smime.p7m"][: int(kind == "3")]


# --------------------------------------------------------------------------------------------------------- Outlook


@given(
    subject=Letters, plain=Letters, n_attachments=st.integers(0, 2), is_unicode=st.booleans(), depth=st.integers(0, 2)
)
def test_a_message_of_outlook_is_read_with_what_is_attached_to_it(
    subject: str, plain: str, n_attachments: int, is_unicode: bool, depth: int
) -> None:
    def message(level: int) -> dict[Property, Any]:
        attachments = [
            {Property.LONG_NAME: f"{number}.txt", Property.DATA: f"file {level} {number} {plain}".encode()}
            for number in range(n_attachments)
        ]
        if level < depth:
            attachments.append({Property.MESSAGE: message(level + 1)})
        return {
            Property.SUBJECT: f"{level} {subject}",
            Property.BODY: f"body {level} {plain}\r\n\r\nlast",
            Property.HTML: f"<p>body {level} {plain}</p><p>last</p><p>only here {level}</p>".encode(),
            Property.SENT: datetime(2024, 1, 2, 10),
            Property.ATTACHMENTS: attachments,
        }

    documents, unread = read("a.msg", outlook_file(message(0), "utf-16-le" if is_unicode else "cp65001"))
    assert not unread
    texts = Counter(map(text_of, documents))
    for level in range(depth + 1):
        expected = f"body {level} {' '.join(plain.split())}"
        assert sum(text.startswith(expected) and text.count(f"only here {level}") == 1 for text in texts) == 1
        for number in range(n_attachments):
            assert texts[f"file {level} {number} {plain}"] == 1
    assert len(documents) == (depth + 1) * (n_attachments + 1)
    assert documents[0].title == " ".join(f"0 {subject}".split())
    assert documents[0].metadata["date"].date().isoformat() == "2024-01-02"


@given(st.binary(min_size=1, max_size=400))
def test_compressed_rtf_is_unpacked(rtf: bytes) -> None:
    assert unpacked_rtf(packed_rtf(rtf)) == rtf


def test_a_message_with_rtf_alone_is_read() -> None:
    rtf = rb"{\rtf1\ansi The rent is due.\par The deposit was paid.}"
    documents, _ = read("a.msg", outlook_file({Property.SUBJECT: "Rent", Property.RTF: packed_rtf(rtf)}))
    assert [part.text for part in documents[0].parts] == ["The rent is due.", "The deposit was paid."]


def test_other_files_with_the_name_of_a_message_are_listed() -> None:
    documents, unread = read("a.msg", b"::msgcat::mcset de Abort Abbruch")
    assert not documents
    assert [part.part for part in unread] == [""]


@pytest.mark.parametrize("name", ["a.eml", "a.mbox", "a.msg"])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_listed(name: str, data: bytes) -> None:
    documents, unread = read(name, data)
    assert documents or unread
