"""Sketches of the texts of documents, by which equal and nearly equal texts are found without comparing all pairs.

A sketch has the MinHash values of a text's shingles, all sequences of three words: two texts have as many equal values
as their sets of shingles overlap (Broder, "On the resemblance and containment of documents", 1997). Of each value the
lowest 16 bits are kept (Li & König, "b-Bit Minwise Hashing", 2010). Case and punctuation do not count; in scripts
without spaces, such as Chinese and Thai, each character is a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from haybale.arrow import text_array
from haybale.collections.collection import Collection, Ints
from haybale.folders import replaced

N_VALUES = 80  # MinHash values of a text
_VALUES_PER_BAND = 5  # texts that agree in one band of values are candidates: 99.8 % of those with 80 % equal shingles
_DOCUMENTS_PER_BLOCK = 10_000
_UNSPACED = (  # scripts without spaces, as the first and last characters of ranges
    (0x0E00, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0x1B00, 0x1B7F), (0x2E80, 0x2FDF),
    (0x3005, 0x31FF), (0x3400, 0x9FFF), (0xA000, 0xA4CF), (0xA980, 0xA9FF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F),
)  # fmt: skip
_LETTER, _ALONE = 1, 2  # kinds of characters: part of a word, a word by itself

Values = NDArray[np.uint16]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class TextSketches:
    """The sketches of n documents.

    Attributes
    ----------
    values : (n, N_VALUES) uint16 array
        The MinHash values.
    texts : (n,) uint64 array
        A hash of the words in their order; 0 for a text without words.
    n_words : (n,) int64 array
    """

    values: Values
    texts: Hashes
    n_words: Ints

    @classmethod
    def of(cls, collection: Collection) -> TextSketches:
        """Make the sketches of the documents of a collection."""
        n = collection.n_documents
        sketches = cls(np.zeros((n, N_VALUES), np.uint16), np.zeros(n, np.uint64), np.zeros(n, np.int64))
        offsets, texts = collection.passages.doc_offsets, collection.passages.texts
        random = np.random.default_rng(1)
        multipliers = random.integers(2**32, size=N_VALUES, dtype=np.uint32) | np.uint32(1)
        additions = random.integers(2**32, size=N_VALUES, dtype=np.uint32)
        for start in range(0, n, _DOCUMENTS_PER_BLOCK):
            end = min(start + _DOCUMENTS_PER_BLOCK, n)
            first, last = int(offsets[start]), int(offsets[end])
            lowered = text_array(pc.utf8_lower(texts.slice(first, last - first)).to_pylist())
            _, ends, data = lowered.buffers()
            _sketch(
                np.frombuffer(data or b"", np.uint8),
                np.frombuffer(ends, np.int64)[: last - first + 1],
                offsets[start : end + 1] - first,
                _kinds(),
                multipliers,
                additions,
                sketches.values[start:end],
                sketches.texts[start:end],
                sketches.n_words[start:end],
            )
        return sketches

    @classmethod
    def joined(cls, parts: list[TextSketches]) -> TextSketches:
        """Return the sketches of several collections as those of one."""
        names = ("values", "texts", "n_words")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def take(self, documents: Ints) -> TextSketches:
        """Return the sketches of some documents, by their numbers."""
        return TextSketches(self.values[documents], self.texts[documents], self.n_words[documents])

    def save(self, path: Path) -> None:
        """Write the sketches to a file."""
        with replaced(path) as aside, aside.open("wb") as file:
            np.savez(file, values=self.values, texts=self.texts, n_words=self.n_words)

    @classmethod
    def open(cls, path: Path, n_documents: int) -> TextSketches | None:
        """Read what :meth:`save` wrote; None if there is no whole file of so many documents."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                sketches = cls(arrays["values"], arrays["texts"], arrays["n_words"])
        except (OSError, ValueError, KeyError, EOFError):
            return None
        is_whole = sketches.values.shape == (n_documents, N_VALUES) and len(sketches.n_words) == n_documents
        return sketches if is_whole else None

    def overlap(self, one: int, other: int) -> float:
        """Return an estimate of the Jaccard index of the shingles of two documents; its standard error is at most .056.

        It is 0 if either has no words.
        """
        if not self.n_words[one] or not self.n_words[other]:
            return 0.0
        return float((self.values[one] == self.values[other]).mean())

    def containment(self, one: int, other: int) -> float:
        """Return an estimate of the share of the shingles of the shorter document that the longer one has."""
        overlap = self.overlap(one, other)
        lengths = sorted((int(self.n_words[one]), int(self.n_words[other])))
        return min(1.0, overlap / (1 + overlap) * sum(lengths) / lengths[0]) if lengths[0] else 0.0

    def bands(self) -> list[Hashes]:
        """Return keys (n,) of bands of the values; texts with an equal key in one of them may be nearly equal.

        Texts without words have the key 0.
        """
        keys = []
        for start in range(0, N_VALUES, _VALUES_PER_BAND):
            key = np.zeros(len(self.texts), np.uint64)
            for column in range(start, start + _VALUES_PER_BAND):
                key = (key ^ self.values[:, column]) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
            keys.append(np.where(self.texts == 0, np.uint64(0), key | np.uint64(1)))
        return keys


@lru_cache(maxsize=1)
def _kinds() -> NDArray[np.uint8]:
    """Return the kind of each character of the Basic Multilingual Plane, (65536,)."""
    kinds = np.fromiter((chr(code).isalnum() for code in range(0x10000)), np.uint8, 0x10000)
    for first, last in _UNSPACED:
        kinds[first : last + 1] *= _ALONE
    return kinds


@njit(nogil=True, cache=True)
def _sketch(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    data, text_offsets, doc_offsets, kinds, multipliers, additions, values, texts, n_words
):
    """Set the rows of the last three arrays for the documents, whose texts are UTF-8 in lower case."""
    prime, start_hash = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
    n_values = len(multipliers)
    least = np.empty(n_values, np.uint32)
    for document in range(len(doc_offsets) - 1):
        least[:] = np.uint32(0xFFFFFFFF)
        whole = start_hash
        before = last = np.uint64(0)
        count = 0
        for text in range(doc_offsets[document], doc_offsets[document + 1]):
            at, end = text_offsets[text], text_offsets[text + 1]
            word, is_word = start_hash, False
            while at <= end:
                kind, code, size = 0, np.int64(0), 1
                if at < end:
                    byte = data[at]
                    if byte < 0x80:
                        code = np.int64(byte)
                    elif byte < 0xE0:
                        size = 2
                        code = np.int64(byte & 0x1F)
                    elif byte < 0xF0:
                        size = 3
                        code = np.int64(byte & 0x0F)
                    else:
                        size = 4
                        code = np.int64(byte & 0x07)
                    for rest in range(1, size):
                        code = (code << 6) | np.int64(data[at + rest] & 0x3F)
                    kind = kinds[code] if code < 0x10000 else (2 if code >= 0x20000 else 0)
                at += size
                ends = is_word and kind != 1
                while ends or kind == 2:
                    if not ends:
                        word = (start_hash ^ np.uint64(code)) * prime
                        kind = 0
                    ends = False
                    is_word = False
                    whole = (whole ^ word) * prime
                    whole ^= whole >> np.uint64(32)
                    count += 1
                    if count >= 3:
                        _add(before, last, word, multipliers, additions, least)
                    before, last = last, word
                    word = start_hash
                if kind == 1:
                    is_word = True
                    word = (word ^ np.uint64(code)) * prime
        if 0 < count < 3:
            _add(before, last, np.uint64(0), multipliers, additions, least)
        n_words[document] = count
        if count:
            texts[document] = whole | np.uint64(1)
            for value in range(n_values):
                values[document, value] = np.uint16(least[value] & np.uint32(0xFFFF))


@njit(nogil=True, cache=True)
def _add(first, second, third, multipliers, additions, least):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Lower the least values by those of a shingle."""
    mixed = first * np.uint64(0x9E3779B97F4A7C15) ^ (second * np.uint64(0xC2B2AE3D27D4EB4F) + third)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    shingle = np.uint32(mixed >> np.uint64(32))
    for value in range(len(least)):
        hashed = np.uint32(multipliers[value] * shingle + additions[value])
        if hashed < least[value]:
            least[value] = hashed
