"""Where a sentence ends, in English and German, by a small rule that would rather miss an end than invent one.

A word with a full stop ends no sentence if the next word begins with a small letter, or if it is an abbreviation,
an initial (``J.``, ``e.g.``, ``z.B.``), a number of one or two digits (``am 3. Mai``) or a Roman numeral. Question
and exclamation marks end one unless a small letter follows. A line break always does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_IN_ENGLISH = (
    "al app approx apr art arts assn aug bros ca cf cha chap cir cl co col corp ct dec dept div dr ed eds eg esq est "
    "etc ex exh feb ff fig figs fn gen gov hon ibid ie inc jan jr jul jun lt ltd messrs mr mrs ms no nos nov oct op "
    "ord para paras pp prof pt pts ref reg regs rev sec secs sep sept sess sr ss st supp vol vols viz vs"
)
_IN_GERMAN = (
    "abb abs abschn abw allg alt amtl anh anl anm aufl az bd bde begr bekl bem beschl bl bspw buchst bzgl bzw ders "
    "dgl dies dipl einschl entspr erg erl etw evtl ggf ggü gem halbs hrsg hs i.d.f i.d.r i.s.d i.v.m inkl insb insbes "
    "jur kap kl lit ltd m.w.n mind mio mrd mwst nr nrn o.g rd rdnr rn rspr rz sog std str tab teilw tz u.a u.u "
    "urt usw verf vgl vorl z.b z.t zit ziff zzgl"
)
_ABBREVIATIONS = frozenset((*_IN_ENGLISH.split(), *_IN_GERMAN.split()))
_OPENING, _CLOSING = "([{«»„“‘'\"–—*_", ")]}»«”“’'\"*_"
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]|[0-9]{1,2}|[IVXLC]+")


def sentences(text: str) -> Iterator[list[str]]:
    """Yield the words of each sentence, in order.

    >>> list(sentences("See Smith v. Jones, No. 3. It holds!"))
    [['See', 'Smith', 'v.', 'Jones,', 'No.', '3.', 'It', 'holds!']]
    >>> [" ".join(words) for words in sentences("Vgl. Abs. 2 Nr. 4. Das gilt z.B. hier. Es gilt in 2010. Ende")]
    ['Vgl. Abs. 2 Nr. 4. Das gilt z.B. hier.', 'Es gilt in 2010.', 'Ende']
    """
    for line in text.split("\n"):
        words = line.split()
        start = 0
        for place in range(len(words) - 1):
            if ends_sentence(words[place], words[place + 1]):
                yield words[start : place + 1]
                start = place + 1
        if words:
            yield words[start:]


def ends_sentence(word: str, following: str) -> bool:
    """Whether a sentence ends between two words of one line.

    >>> ends_sentence("court.", "The"), ends_sentence("Art.", "5"), ends_sentence("B.P.", "Reddy")
    (True, False, False)
    """
    bare = word.rstrip(_CLOSING)
    if not bare.endswith((".", "!", "?", "…")) or following.lstrip(_OPENING)[:1].islower():
        return False
    if not bare.endswith(".") or bare.endswith(".."):
        return True
    stem = bare[:-1].lstrip(_OPENING)
    return not (stem.lower() in _ABBREVIATIONS or _INITIALS.fullmatch(stem))
