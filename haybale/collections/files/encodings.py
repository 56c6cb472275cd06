"""Decode texts whose encoding is declared, recognised or guessed; a guess is named.

UTF-8 and UTF-16 are recognised without doubt. So is Windows-1252, if the letters beyond ASCII are those of one language
that is written in it. The encoding of any other text is guessed by charset-normalizer, and the guess is listed among
what was not read with certainty.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from haybale.collections.files.file_reader import EXTRA, Unreadable
from haybale.collections.unread import UnreadPart
from haybale.extras import import_optional

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is its begin
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WESTERN_LETTERS = tuple(  # beyond ASCII, by language, of those that are written in Windows-1252
    frozenset(letters + letters.upper() + "ªº")
    for letters in (
        "äöüßé",  # German
        "àâæçèéêëîïôœùûüÿ",  # French
        "áéíñóúü",  # Spanish
        "àáâãçéêíóôõúü",  # Portuguese
        "àèéìíîòóùú",  # Italian
        "àèéêëïöüóíá",  # Dutch
        "åäöéàü",  # Swedish, Finnish
        "æøåéôòà",  # Danish, Norwegian
        "àçèéíïòóúü",  # Catalan
    )
)
_MIN_SHARE_OF_LANGUAGE = 0.9  # of the letters beyond ASCII; the rest is in names and quotations
_MAX_SHARE_OF_WRONG_BYTES = 0.2  # of the characters beyond ASCII in a text that is taken for UTF-8
_SIGN_INSIDE_WORD = re.compile(r"(?<=[^\W\d_])[^\w\s\x00-\x7f·’‘–—\u00ad](?=[^\W\d_])")
_CAPITAL_AFTER_SMALL = re.compile("(?<=[a-zà-öø-ÿ])[À-ÖØ-ÞŠŒŽŸ]")
_MAX_BYTES_FOR_GUESS = 2**20
_NOT_GUESSED = ["utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le"]
# What programs write for names of the codecs of Python, and the wider encodings that texts under a name are really in.
_ALIASES = {
    "iso8859-1": "cp1252", "latin-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "iso8859-11": "cp874", "tis-620": "cp874",
}  # fmt: skip
_NAMES = (  # of families of encodings, which Python knows by another name
    (re.compile(r"(?:windows|win|cp|ibm|dos|ms|oem|microsoft-cp)[-_ ]?(\d{3,5})"), r"cp\1"),
    (re.compile(r"cp(31j|943)|ms[-_]?kanji|sjis"), "cp932"),
    (re.compile(r"cp936"), "gb18030"),
    (re.compile(r"cp(20866)"), "koi8-r"),
    (re.compile(r"cp(28591|65001)"), lambda match: {"28591": "cp1252", "65001": "utf-8"}[match[1]]),
    (re.compile(r"iso[-_ ]?8859[-_ ]?(\d+)(?:[-_ ]?[ei])?"), r"iso8859-\1"),
    (re.compile(r"(?:windows|win)[-_ ]?31j"), "cp932"),
    (re.compile(r"utf[-_ ]?8(?:mb[34])?|unicode[-_]1[-_]1[-_]utf[-_]8"), "utf-8"),
    (re.compile(r"mac(?:intosh)?[-_ ]?(?:os[-_ ]?)?(?:roman)?"), "mac-roman"),
    (re.compile(r"(?:us[-_])?ascii|ansi_x3\.4.*"), "ascii"),
)


class DecodedText(NamedTuple):
    """A text with ``\\n`` as the line end, its encoding, and what is uncertain about it, or None."""

    text: str
    encoding: str
    reservation: str | None = None

    @property
    def unread(self) -> list[UnreadPart]:
        """What is to be listed about the text: nothing, or its encoding."""
        return [] if self.reservation is None else [UnreadPart(part="encoding", reason=self.reservation)]


def decode_text(data: bytes) -> DecodedText:
    r"""Decode a text of unknown encoding.

    Raises
    ------
    Unreadable
        If it is no text, or contradicts its byte order mark.

    Examples
    --------
    >>> decode_text("Gebühr".encode("utf-16"))[:2], decode_text(b"\xef\xbb\xbfa\r\nb")[:2]
    (('Gebühr', 'utf-16'), ('a\nb', 'utf-8-sig'))
    >>> decode_text("Gebühr".encode("cp1252"))
    DecodedText(text='Gebühr', encoding='cp1252', reservation=None)
    >>> decode_text("Договор аренды заключён сторонами".encode("cp1251")).encoding
    'cp1251'
    """
    marked = next((name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), None)
    half = len(data) // 2
    if marked is None and half and data[1::2].count(0) > 0.4 * half:
        marked = "utf-16-le"
    elif marked is None and half and data[::2].count(0) > 0.4 * half:
        marked = "utf-16-be"
    if marked is not None and marked != "utf-8-sig":
        try:
            return _checked(data.decode(marked), marked)
        except UnicodeDecodeError:
            raise Unreadable(f"expected text in {marked}, found other bytes; save it as UTF-8") from None
    if b"\x1b$" in data and data.isascii():  # escapes of an encoding of 7 bits
        for codec in ("iso2022_jp_2", "iso2022_kr"):
            with suppress(UnicodeDecodeError):
                return _checked(data.decode(codec), codec)
    try:
        return _checked(data.decode(marked or "utf-8"), marked or "utf-8")
    except UnicodeDecodeError:
        return _mostly_utf8(data) or _windows_1252(data) or _guessed(data)


def decode_declared(data: bytes, charset: str | None) -> DecodedText:
    r"""Decode a text by the name of its character set; if the name is unknown or wrong, as :func:`decode_text` does.

    >>> decode_declared("Gebühr".encode("cp850"), "cp-850")
    DecodedText(text='Gebühr', encoding='cp850', reservation=None)
    >>> decode_declared("Gebühr".encode(), "x-unknown").reservation
    "unknown character set 'x-unknown'; read as utf-8"
    """
    if charset is None or (data.isascii() and b"\x1b" not in data and not data.count(b"+")):
        return decode_text(data)
    codec = codec_of(charset)
    if codec is not None:
        try:
            return _checked(data.decode(codec), codec)
        except UnicodeDecodeError:
            if codec == "cp1252" and data.isascii() is False and b"\x00" not in data:
                text = data.decode("cp1252", errors="ignore")
                if len(data) - len(text) < 0.01 * len(data) and _is_western(text):
                    return _checked(data.decode("latin-1"), "latin-1")
        except Unreadable:
            pass
    guess = decode_text(data)
    if codec == "cp1252" and guess.encoding in ("utf-8", "cp1252") and guess.reservation is None:
        return guess
    about = f"unknown character set {charset!r}" if codec is None else f"the text is not in {charset}, as declared"
    return guess._replace(reservation=f"{about}; read as {guess.encoding}")


def codec_of(charset: str) -> str | None:
    """Return the codec of Python for the name of a character set as mail and pages have it; None if it is unknown.

    >>> [codec_of(name) for name in ("Windows-31J", "CP-850", '"utf-8; format=flowed"', "iso-8859-1", "x-unknown")]
    ['cp932', 'cp850', 'utf-8', 'cp1252', None]
    """
    name = re.split(r"[;,\s]", charset.strip(" \t\r\n\"'"), maxsplit=1)[0].lower().strip("\"'_")
    for candidate in (name, name.removeprefix("x-"), name.removeprefix("cs")):
        for expression, codec in _NAMES:
            if expression.fullmatch(candidate):
                candidate = expression.sub(codec, candidate)
        try:
            info = codecs.lookup(candidate)
        except (LookupError, ValueError):
            continue
        if info._is_text_encoding:  # not base64 and the like
            return _ALIASES.get(info.name, info.name)
    return None


def _checked(text: str, encoding: str, reservation: str | None = None) -> DecodedText:
    """Return a decoded text with its line ends replaced; raise :class:`Unreadable` if it is binary data."""
    if "\x00" in text or text.count("\ufffd") > max(3, len(text) // 100):
        raise Unreadable("expected text, found binary data")
    return DecodedText(text.replace("\r\n", "\n").replace("\r", "\n"), encoding, reservation)


def _mostly_utf8(data: bytes) -> DecodedText | None:
    """Return a text in UTF-8 with a few other bytes, which are read as Windows-1252; None if it is another text."""
    text = data.decode("utf-8", errors="surrogateescape")
    wrong = re.findall("[\udc80-\udcff]", text)
    n_beyond_ascii = len(text) - len(text.encode("ascii", errors="ignore"))
    if len(wrong) > _MAX_SHARE_OF_WRONG_BYTES * n_beyond_ascii:
        return None
    line = text.count("\n", 0, text.index(wrong[0])) + 1
    letters = {ord(byte): bytes([ord(byte) - 0xDC00]).decode("cp1252", errors="replace") for byte in set(wrong)}
    reason = f"{len(wrong):,} bytes are not UTF-8, the first in line {line}; they were read as Windows-1252"
    return _checked(text.translate(letters), "utf-8", reason)


def _windows_1252(data: bytes) -> DecodedText | None:
    """Return a text in Windows-1252 if its letters are those of a language that is written in it, else None."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    return _checked(text, "cp1252") if _is_western(text) else None


def _is_western(text: str) -> bool:
    """Return whether the letters beyond ASCII are where one Western language has them: in words, capitals first."""
    letters = Counter(character for character in text if character > "\x7f" and character.isalpha())
    n_letters = sum(letters.values())
    n_wrong = len(_SIGN_INSIDE_WORD.findall(text)) + len(_CAPITAL_AFTER_SMALL.findall(text))
    n_fitting = max(sum(n for letter, n in letters.items() if letter in language) for language in _WESTERN_LETTERS)
    return n_fitting - n_wrong >= _MIN_SHARE_OF_LANGUAGE * n_letters


def _guessed(data: bytes) -> DecodedText:
    """Return a text in the encoding that charset-normalizer finds most probable, of those with the most usual words."""
    from_bytes = import_optional("charset_normalizer", EXTRA).from_bytes
    sample = data[:_MAX_BYTES_FOR_GUESS]
    matches = list(from_bytes(sample, cp_exclusion=_NOT_GUESSED))
    # It stops at the first multi-byte encoding that fits, which texts in Cyrillic may do by chance.
    multi_byte = {name for match in matches if match.multi_byte_usage for name in match.could_be_from_charset}
    if multi_byte:
        matches += from_bytes(sample, cp_exclusion=[*_NOT_GUESSED, *multi_byte])
    if not matches:
        raise Unreadable("expected text, found binary data or an unknown encoding; save it as UTF-8")
    best = min(matches, key=lambda match: _n_unusual_pairs(str(match)))  # the first of equal ones
    text = data.decode(best.encoding, errors="replace")
    reason = f"the encoding is not declared; guessed {best.encoding}; save the text as UTF-8 if words are wrong"
    return _checked(text, best.encoding, reason)


def _n_unusual_pairs(text: str) -> int:
    """Count what words of no language have: a sign inside, a capital after a small letter, letters of two alphabets."""
    pairs = ((one, other) for one, other in pairwise(text) if one.isalpha() and other.isalpha())
    n_pairs = sum((one.islower() and other.isupper()) or _is_latin(one) is not _is_latin(other) for one, other in pairs)
    n_halfwidth = sum("\uff61" <= character <= "\uff9f" for character in text)
    return n_pairs + n_halfwidth + len(_SIGN_INSIDE_WORD.findall(text))


def _is_latin(letter: str) -> bool:
    return letter < "\u0250"
