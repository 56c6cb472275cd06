"""The characters of a character set of at most two bytes a character, as a strategy of Hypothesis."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import product

from hypothesis import strategies as st

LOW, HIGH = range(0x80), range(0x80, 0x100)


@cache
def characters_of(codec: str, categories: str) -> st.SearchStrategy[str]:
    """Return a strategy of the characters that a codec reads and writes alike.

    ``categories`` has the first letters of their Unicode categories. Half of the characters drawn are in ASCII.
    ``st.characters(codec=codec)`` tries all characters of Unicode instead, which takes a second for each codec.
    """
    characters = set()
    for number in (*product(LOW), *product(HIGH), *product(HIGH, (*LOW, *HIGH))):
        data = bytes(number)
        character = data.decode(codec, "ignore")
        if len(character) == 1 and character.encode(codec) == data and unicodedata.category(character)[0] in categories:
            characters.add(character)
    return st.sampled_from(sorted(filter(str.isascii, characters))) | st.sampled_from(sorted(characters))
