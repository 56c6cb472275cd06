"""French beside English: which of two versions is the English one, and whether a paragraph is French."""

from __future__ import annotations

import re

# What the editors of Canadian cases put above a case in two languages.
_ENGLISH_FIRST = (
    "[French language version follows English language version]",
    "[La version française vient à la suite de la version anglaise]",
)
_FRENCH_FIRST = (
    "[English language version follows French language version]",
    "[La version anglaise vient à la suite de la version française]",
)
_MARKERS = {marker.casefold(): first for first, known in enumerate((_ENGLISH_FIRST, _FRENCH_FIRST)) for marker in known}
_MARKER = re.compile("|".join(map(re.escape, _MARKERS)), re.IGNORECASE)

# Function words. Left out are those of English, German or Latin: "on", "des", "du", "et", "est".
_FRENCH_WORDS = (
    "les dans pour par sur avec une aux au ce cette ces sont été être où elle ils elles pas leur leurs nous vous mais "
    "comme plus dont ont était avait qu que ainsi aussi selon entre sans sous fait peut doit l d le la de"
)
_ENGLISH_WORDS = (
    "the of and to in is that for was by with it not this be at from which or an are has have had were as its"
)
_FRENCH, _ENGLISH = frozenset(_FRENCH_WORDS.split()), frozenset(_ENGLISH_WORDS.split())
_CERTAIN = _FRENCH - {"l", "d", "le", "la", "de", "que", "qu"}  # the others are Italian or Spanish as well
_WORD = re.compile(r"[^\W\d_]+")


def english_version(text: str) -> int | None:
    """0 or 1: which of two versions the first marker calls the English one; None without a marker.

    >>> english_version("... [English language version follows French language version] ...")
    1
    """
    match = _MARKER.search(text)
    return None if match is None else _MARKERS[match[0].casefold()]


def without_markers(text: str) -> str:
    """The text without the remarks of the editors on the order of the versions."""
    return _MARKER.sub(" ", text)


def is_french(text: str) -> bool:
    """Whether function words say so: at least three different French ones, a tenth of all, and more than English ones.

    >>> is_french("La requête est accordée par le juge pour les motifs exposés dans cette décision.")
    True
    >>> is_french("The motion is granted. Les dépens."), is_french("Die Klage des Klägers wird abgewiesen.")
    (False, False)
    """
    words = [word.lower() for word in _WORD.findall(text)]
    french = [word for word in words if word in _FRENCH]
    english = sum(word in _ENGLISH for word in words)
    return len(set(french) & _CERTAIN) >= 3 and 10 * len(french) >= len(words) and len(french) > english
