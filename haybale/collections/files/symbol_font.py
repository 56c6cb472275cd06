"""Translate characters of the font Symbol, which has Greek letters at the places of Latin ones."""

from __future__ import annotations

_LATIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_GREEK = "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖαβχδεφγηιϕκλμνοπθρστυϖωξψζ"
_GREEK_OF_LATIN = str.maketrans(_LATIN, _GREEK)


_FIRST, _LAST = 0xF000, 0xF0FF  # the private characters that stand for the bytes of a font of symbols


def symbols_of(data: bytes) -> str:
    """Return bytes in a font of symbols as private characters.

    >>> symbols_of(b"a") == "\uf061"
    True
    """
    return "".join(chr(_FIRST + byte) for byte in data)


def seen_symbols(text: str, font: str) -> str:
    """Return the letters that are seen for private characters in a font; other signs, and other fonts', are spaces.

    >>> seen_symbols("\uf062 = \uf032", "Symbol"), seen_symbols("\uf0fe yes", "Wingdings")
    ('β = 2', '  yes')
    """
    is_symbol = font.strip().casefold() == "symbol"

    def seen(char: str) -> str:
        if not _FIRST <= ord(char) <= _LAST:
            return char
        char = chr(ord(char) - _FIRST)
        return char.translate(_GREEK_OF_LATIN) if is_symbol and char.isascii() else " "

    return "".join(map(seen, text))
