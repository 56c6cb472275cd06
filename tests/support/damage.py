"""Damage the bytes of a file."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

PIECES = (b"\0", b"\xff", b"\xed\xa0\x80", b"\r", b"\t\t", b"\xef\xbb\xbf", b"\x1b[2J")


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes, changed in one of many ways chosen at random."""
    at = rng.randrange(len(data) + 1)
    lines = data.split(b"\n")
    ways: list[Callable[[], bytes]] = [
        lambda: data[:at],
        lambda: data[: max(0, at - 1)] + bytes([data[max(0, at - 1)] ^ 1 << rng.randrange(8)]) + data[max(1, at) :],
        lambda: b"",
        lambda: data[:at] + rng.choice(PIECES) + data[at:],
        lambda: b"\n".join(rng.sample(lines, len(lines))),
        lambda: data + b"\n" + rng.choice(lines) + b"\n",
        lambda: b"\n".join(line for n, line in enumerate(lines) if n != at % len(lines)),
        lambda: rng.randbytes(200),
        lambda: data + b"[" * 100_000,
        lambda: data.replace(b"1", b"9" * 5000, 1),
        lambda: gzip.compress(data)[:-9],
        lambda: data.replace(b'"text": "', b'"text": "\\ud800', 1),
        lambda: data.replace(b'"', b"null", 2) if rng.random() < 0.5 else data.replace(b"one", b"", 1),
        lambda: data.replace(b'"title": "', b'"title": ["x"], "y": "', 1).replace(
            b'"parent": null', b'"parent": []', 1
        ),
        lambda: data[:at] + b"\x80" + data[at:] + b"\xc3",
        lambda: data.replace(b"\t1\n", b"\t" + b"9" * 20 + b"\n"),
        lambda: data.replace(b"\n", b" "),
    ]
    return rng.choice(ways)() if data else rng.randbytes(200)
