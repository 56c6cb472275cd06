"""Split Rich Text Format into its tokens: groups, control words, and the bytes of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    rb"\\(?P<word>[A-Za-z]{1,32})(?P<number>-?\d{1,10})? ?|\\'(?P<byte>[0-9A-Fa-f]{2})|\\(?P<symbol>[^A-Za-z])|"
    rb"(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n]+|\\",
    re.S,
)


class Token(NamedTuple):
    """A control word or symbol with its number, a brace, or the bytes of a text."""

    word: str = ""  # such as "par", "{" or "~"; empty for a text
    number: int | None = None
    text: bytes = b""


def tokens_of(data: bytes) -> Iterator[Token]:
    """Yield the tokens of a file; binary data are left out.

    >>> [token.word or token.text for token in tokens_of(rb"{\\b caf\\'e9\\~}")]
    ['{', 'b', b'caf', b'\\xe9', '~', '}']
    """
    position = 0
    while (match := _TOKEN.match(data, position)) is not None:
        position = match.end()
        if match["word"] is not None:
            number = None if match["number"] is None else int(match["number"])
            word = match["word"].decode()
            if word == "bin":
                position += max(number or 0, 0)
            else:
                yield Token(word, number)
        elif match["byte"] is not None:
            yield Token(text=bytes([int(match["byte"], 16)]))
        elif match["symbol"] is not None:
            yield Token("par" if match["symbol"] in b"\r\n" else match["symbol"].decode("latin-1"))
        elif match["brace"] is not None:
            yield Token(match["brace"].decode())
        elif match["text"] is not None:
            yield Token(text=match["text"])
