"""Turn Markdown into the text that its readers see: without the marks of emphasis, and with escapes resolved."""

from __future__ import annotations

import re

FENCED_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)
_CODE = re.compile(rf"(?:{FENCED_CODE.pattern})|(?<![`\\])(`+)(?!`).+?(?<!`)\2(?!`)", re.S | re.M)
_INNER = r"(?=[^\s{0}])((?:(?!\n[ \t]*\n)[^{0}])*?[^\s{0}\\])"  # what a mark encloses, within one paragraph
# Asterisks and tildes also stand within words, underscores only around them (CommonMark 6.2, GitHub's strikethrough).
_EMPHASIS = (
    re.compile(rf"(?<![*\\])(\*{{1,3}}){_INNER.format('*')}\1(?!\*)"),
    re.compile(rf"(?<![~\\])(~~){_INNER.format('~')}\1(?!~)"),
    re.compile(rf"(?<![\w\\])(_{{1,3}}){_INNER.format('_')}\1(?!\w)"),
)
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_MAX_NESTED = 3  # marks within marks


def without_marks(text: str) -> str:
    r"""Return the text of some Markdown without marks of emphasis and escapes; code stays as it is.

    >>> without_marks(r"The _notice_, ~~struck~~, of the **Miet**vertrag in file\_name and 2 * 3 `a_b*c*`")
    'The notice, struck, of the Mietvertrag in file_name and 2 * 3 `a_b*c*`'
    """
    pieces, last = [], 0
    for code in _CODE.finditer(text):
        pieces += [_without_marks(text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*pieces, _without_marks(text[last:])])


def _without_marks(text: str) -> str:
    for _ in range(_MAX_NESTED):
        before = text
        for pattern in _EMPHASIS:
            text = pattern.sub(r"\2", text)
        if text == before:
            break
    return _ESCAPE.sub(r"\1", text)
