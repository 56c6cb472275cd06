"""``sentences``: whole sentences, merged up to a number of words.

For text without paragraphs worth the name. Althammer et al. 2022 (PARM), section 4.1, split the cases of CaseLaw at
line breaks and merge sentences up to 200 words. Theirs may pass that mark by a sentence; here none does.
"""

from __future__ import annotations

from haybale.collections.paragraphs.paragraph import Paragraph, counted
from haybale.collections.paragraphs.sentence_ends import sentences
from haybale.errors import InputError


def split_sentences(text: str, *, words: int = 200) -> list[Paragraph]:
    """A paragraph holds as many sentences as fit into ``words`` words; a longer sentence is cut at words.

    Nothing is dropped; line breaks become spaces.

    >>> [p.text for p in split_sentences("One two. Three four. Five six seven eight nine. Ten.", words=4)]
    ['One two. Three four.', 'Five six seven eight', 'nine. Ten.']
    """
    if not isinstance(words, int) or words < 1:
        raise InputError(f"words of a paragraph must be a whole number of at least 1, found {words!r}")
    merged: list[list[str]] = []
    for sentence in sentences(text):
        if merged and len(merged[-1]) + len(sentence) <= words:
            merged[-1] += sentence
        else:
            merged += [sentence[start : start + words] for start in range(0, len(sentence), words)]
    return counted(" ".join(paragraph) for paragraph in merged)
