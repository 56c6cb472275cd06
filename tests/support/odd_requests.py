"""Requests with odd numbers, texts, bodies, forms, files and cookies, which are answered, but never by a failure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from support.spellings import PATH_VALUES, VISITOR, scope_of

LONG = "9" * 5000
NUMBERS = [LONG, f"-{LONG}", "9" * 4301, "9" * 4300, "0" * 5000 + "1", "9" * 19, "1e999", "-1e999", "NaN", "Infinity"]
NUMBERS += [
    "-Infinity",
    "nan",
    "inf",
    "1e-999",
    "1e308",
    "0x10",
    "1_000",
    "1.0",
    "5.5",
    "true",
    "-1",
    "0",
    "1",
    "2",
    "+1",
]
NUMBERS += [
    str(2**31 - 1),
    str(2**31),
    str(2**63),
    str(2**64),
    str(-(2**63)),
    "1e3",
    "%201",
    "1%0A",
    "%C2%B2",
    "%D9%A3",
]
TEXTS = ["", "%00", "%ED%A0%80", "%FF", "x" * 3000, "%F0%9F%98%80", "..", "dog%2F1", "dog/1", "tax", "bm25", "%22", "'"]
TEXTS += [
    "--",
    ")",
    "%E2%80%AE",
    "2001-01-01",
    "9999999-01-01",
    "0000-00-00",
    "%EF%BC%91",
    "%0D%0A",
    "%5C",
    "%25",
    "(" * 900,
]
PARAMETERS = (
    "q text where ranker topic learned offset k f.court f.year f.topics f.weight f.nothing from.year to.year from.date"
)
PARAMETERS += " to.date from.weight to.weight f. from. .x id doc doc_id n judge independent rule format limit back part"
FIELDS = "q k where ranker offset doc_id text name known grade judge note seconds recipe random_state"
FORMS = "text name known doc_id grade note seconds back recipe token q judge file k topic offset where csrf_token"
VALUES = [
    LONG,
    f"-{LONG}",
    "1e999",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e-999",
    "1E400",
    "null",
    "true",
    "[]",
    "{}",
    "[[1]]",
]
VALUES += [
    "1.5",
    "-1",
    "0",
    "1",
    "01",
    str(2**31),
    str(2**63),
    '"x"',
    '""',
    '"dog/1"',
    '"dogs"',
    '"\\ud800"',
    '"\\u0000"',
]
VALUES += ['"' + "x" * 3000 + '"', '"\\ud83d"', '"\\n"', '{"dog/1": 1}', '{"\\ud800": 1}', f'{{"dog/1": {LONG}}}']
VALUES += [
    '{"dog/1": 1e999}',
    "[" * 50_000,
    '{"a":' * 400 + "1" + "}" * 400,
    "[" * 900 + "]" * 900,
    '"bm25"',
    '["dog/1"]',
]
FILES = [
    b"q 0 dog/1 1\n",
    b"doc_id,grade\ndog/1," + LONG.encode(),
    b"doc_id,grade\ndog/1,1\n",
    b"\xff\xfe",
    b"",
    b"PK\x03\x04",
]
FILES += [
    b'doc_id,grade\n"' + b"a" * 200_000,
    b"q 0 dog/1 99999999999",
    b"q 0 dog/1 \xc2\xb2",
    b"a\x00b",
    b"{\\rtf1 x}",
    b"%PDF-1",
]
NAMES = ["a.csv", "a.txt", "a.docx", "a.pdf", "", "x" * 3000 + ".txt", "a.eml", "a\u202e.txt"]
COOKIES = [
    'theme={"dark":true}',
    "a",
    "=",
    "a=",
    ";;",
    'q="a;b"',
    "x=,;",
    "y=\\",
    "z=[1,2]",
    "haybale_visitor=",
    "$Version=1",
]
COOKIES += [
    "haybale-judge=%00",
    "haybale-judge=" + "x" * 9000,
    "haybale_session=x",
    'haybale_session="',
    "\t",
    "n=a b",
    "@:/=?",
]


def odd_requests(
    paths: list[str], rng: random.Random, headers: list[tuple[str, str]]
) -> Iterator[tuple[str, Any, bytes]]:
    """Yield requests for ever: a name, a scope and a body."""
    while True:
        path = rng.choice(paths)
        for name, value in PATH_VALUES.items():
            path = path.replace(name, value if rng.random() < 0.6 else rng.choice(NUMBERS + TEXTS))
        names = PARAMETERS.split()
        pairs = [(rng.choice(names), rng.choice(NUMBERS + TEXTS)) for _ in range(rng.randrange(5))]
        target = f"{path[:7000]}?{'&'.join('='.join(pair) for pair in pairs)}"
        cookies = [*rng.sample(COOKIES, rng.randrange(4)), f"haybale_visitor={VISITOR}"]
        rng.shuffle(cookies)
        more = [*headers, ("cookie", "; ".join(cookies))]
        if rng.random() < 0.4:
            more.append(("accept", rng.choice(("text/html", "application/json", "*/*", "\xff"))))
        method, body = rng.choice(("GET", "POST")), b""
        if method == "POST":
            kind, body = rng.choice((json_body, form_body, file_body))(rng)
            more += [("content-type", kind), ("content-length", str(len(body)))]
        yield f"{method} {target[:150]} {body[:150]!r}", scope_of(method, target, more), body


def json_body(rng: random.Random) -> tuple[str, bytes]:
    if rng.random() < 0.2:
        odd = [b"", b"\xff", b"\xef\xbb\xbf{}", '{"q": "dog"}'.encode("utf-16"), b"\x00", b'{"q": "\xff"}']
        return "application/json", rng.choice([*odd, rng.choice(VALUES).encode()])
    values = {"q": '"dog"', "text": '"dogs"', "doc_id": '"dog/1"', "grade": "1"}
    for _ in range(rng.randrange(1, 3)):
        values[rng.choice(FIELDS.split())] = rng.choice(VALUES)
    return "application/json", ("{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}").encode()


def form_body(rng: random.Random) -> tuple[str, bytes]:
    values = {"text": "dogs", "name": "x", "doc_id": "dog/1", "grade": "1"}
    for _ in range(rng.randrange(1, 3)):
        values[rng.choice(FORMS.split())] = rng.choice(NUMBERS + TEXTS)
    kind = "application/x-www-form-urlencoded" + rng.choice(("", "; charset=none", '; charset="utf-16"'))
    return kind, "&".join(f"{name}={value}" for name, value in values.items()).encode()


def file_body(rng: random.Random) -> tuple[str, bytes]:
    name, field = rng.choice(NAMES), rng.choice(("file", "file", "q", "x"))
    head = f'Content-Disposition: form-data; name="{field}"; filename="{name}"'.encode()
    end = rng.choice((b"\r\n--x--\r\n", b"\r\n--x--\r\n", b""))
    kind = "multipart/form-data" + rng.choice(("; boundary=x",) * 4 + ("", "; boundary=", '; boundary="x"'))
    return kind, b"--x\r\n" + head + b"\r\n\r\n" + rng.choice(FILES) + end
