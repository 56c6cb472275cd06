"""Normalise texts for terms and for encoders: characters that look the same become the same.

Unicode's NFKC composes characters (``u`` and a combining diaeresis become ``ü``) and replaces ligatures, full-width
and other compatibility characters by the usual ones. Characters that are not seen are removed: soft hyphens, zero-width
characters, marks of direction, Arabic vowel signs, the Arabic tatweel, and a second dot on an i. The stored texts stay
as they are; :func:`normalised_spans` maps positions in a normalised text to the original one.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"  # and joiners
    # Arabic signs and tatweel, but not madda and hamza (U+0653 to U+0655), which compose with letters
    "\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]+"
)
_DOTTED_I = re.compile("i\u0307+")  # what other programs make of İ in lower case


def normalise(text: str) -> str:
    """Return a text in NFKC, without characters that are not seen.

    Normalising twice gives the same as normalising once.

    >>> normalise("\\ufb01nal o\\ufb03ce, Bu\\u0308rger, Ver\\u00adtrag, \\uff21\\uff22")
    'final office, Bürger, Vertrag, AB'
    """
    if text.isascii():
        return text
    if _UNSEEN.search(text):
        text = _UNSEEN.sub("", text)
    if not unicodedata.is_normalized("NFKC", text):
        # Compatibility characters may stand for signs that are removed: an isolated Arabic vowel sign for tatweel and
        # sign.
        composed = unicodedata.normalize("NFKC", text)
        seen = _UNSEEN.sub("", composed)
        text = composed if len(seen) == len(composed) else unicodedata.normalize("NFKC", seen)
    return normalise(_DOTTED_I.sub("i", text)) if "i\u0307" in text else text


def normalised_spans(text: str) -> tuple[str, np.ndarray]:
    """Return the normalised text, and where each of its characters comes from.

    Parameters
    ----------
    text : str
        The original text.

    Returns
    -------
    normalised : str
        As :func:`normalise` returns it.
    spans : ndarray of shape (len(normalised), 2), int64
        Start and end in ``text`` of the characters that each normalised character was made from.

    Examples
    --------
    >>> text, spans = normalised_spans("o\\ufb03ce")
    >>> text, spans[1:4].tolist()
    ('office', [[1, 2], [1, 2], [1, 2]])
    """
    if text.isascii():
        starts = np.arange(len(text), dtype=np.int64)
        return text, np.stack([starts, starts + 1], axis=1)
    if normalise(text) == text and not any(map(_continues, set(text))):  # most texts; each character stays as it is
        starts = np.arange(len(text), dtype=np.int64)
        return text, np.stack([starts, starts + 1], axis=1)
    parts, spans = [], []
    bounds = [i for i, character in enumerate(text) if not _continues(character)]
    for start, end in zip([0, *bounds[1:]] if bounds else [0], [*bounds[1:], len(text)], strict=True):
        part = normalise(text[start:end])
        parts.append(part)
        spans += [(start, end)] * len(part)
    return "".join(parts), np.array(spans, dtype=np.int64).reshape(-1, 2)


def _continues(character: str) -> bool:
    """Return whether a character belongs to the one before it: a mark, a Hangul vowel, or one that is removed."""
    if character.isascii():
        return False
    seen = _UNSEEN.sub("", unicodedata.normalize("NFKD", character))
    return not seen or "\u1161" <= seen[0] <= "\u11ff" or unicodedata.category(seen[0]).startswith("M")
