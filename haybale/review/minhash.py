"""Find groups of documents with nearly the same text, such as versions of one contract, by MinHash."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from haybale.engine import Engine
from haybale.extras import import_optional
from haybale.parameters import SHARE, check_parameters
from haybale.progress import track

EXTRA = "review"
_TOKENS_PER_SHINGLE = 3
# Scripts that are written without spaces. A character of the first group has the information of a syllable or a word;
# the characters of the second group are letters, which say little alone: Thai, Lao, Tibetan, Burmese, Tai, Khmer,
# Balinese, Javanese, kana and Bopomofo.
_SYLLABLES = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u9fff\ua000-\ua4cf\uf900-\ufaff\U00020000-\U0003ffff"
_LETTERS = "\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaa7f"
_LETTERS += "\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f"
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
_UNSPACED = re.compile(f"[{_SYLLABLES}{_LETTERS}]")
_SCRIPT_RUN = re.compile(f"[{_SYLLABLES}]|[{_LETTERS}]+|[{_HANGUL}]+|[^{_SYLLABLES}{_LETTERS}{_HANGUL}]+")
_LONG_KOREAN = re.compile(f"[{_HANGUL}]{{13,}}")  # Korean has spaces; a run of more characters was written without
_MAX_WORD_CHARACTERS = 64  # in scripts with spaces; a longer run of letters was written without spaces
_CHARACTERS_PER_TOKEN = 10  # in such a run, so that tokens of small alphabets are distinct
_PERMUTATIONS = 128
_THRESHOLD_MARGIN = 0.15  # how far the estimated similarity of candidates may be below the threshold


def near_duplicates(engine: Engine, threshold: float = 0.9) -> list[list[str]]:
    """Return groups of documents with nearly the same text.

    Two documents are similar if the Jaccard index of their shingles, all sequences of three words in lower case, is at
    least the threshold. In scripts without spaces, such as Chinese, Japanese and Thai, characters, or pairs of letters,
    take the place of words. Candidates come from MinHash with 128 permutations (Broder, "On the resemblance and
    containment of documents", 1997) and are then compared exactly, so no group has documents that are less similar;
    few similar pairs may be missed. A group also holds documents that are linked by others.

    Parameters
    ----------
    engine : Engine
    threshold : float, default 0.9
        Least similarity, from 0 to 1. With 1, texts must have the same shingles.

    Returns
    -------
    list of list of str
        The ids of each group with at least two documents, sorted; groups are sorted by their first id.

    Raises
    ------
    MissingExtraError
        If datasketch is not installed (extra ``review``).

    Examples
    --------
    >>> rent = "The tenant pays the rent at the beginning of each month to the account of the landlord"
    >>> engine = Engine({"a": rent, "b": rent + ".", "c": "Pets need the consent of the landlord."}, language="english")
    >>> near_duplicates(engine)
    [['a', 'b']]
    """
    check_parameters("near_duplicates", {"threshold": threshold}, {"threshold": SHARE})
    datasketch = import_optional("datasketch", EXTRA)
    collection = engine.snapshot().whole
    ids: list[str] = collection.doc_ids.to_pylist()
    shingles = [_shingles(text) for text in track(collection.document_texts(), "read documents")]
    # With the threshold itself as bound on the candidates, a third of the pairs just above it would be missed.
    bound = max(threshold - _THRESHOLD_MARGIN, 0.05)
    index = datasketch.MinHashLSH(threshold=bound, num_perm=_PERMUTATIONS, weights=(0.2, 0.8))
    group = np.arange(len(ids))  # of each document: the number of a document in its group
    for number, document_shingles in enumerate(track(shingles, "compare documents")):
        if not document_shingles:
            continue
        sketch = datasketch.MinHash(num_perm=_PERMUTATIONS, seed=1)
        sketch.update_batch([" ".join(shingle).encode() for shingle in document_shingles])
        for other in sorted(index.query(sketch)):
            if _similarity(document_shingles, shingles[other]) >= threshold:
                group[group == group[other]] = group[number]
        index.insert(number, sketch)
    groups: dict[int, list[str]] = {}
    for number, name in enumerate(group.tolist()):
        groups.setdefault(name, []).append(ids[number])
    return sorted(sorted(group_ids) for group_ids in groups.values() if len(group_ids) > 1)


def near_duplicates_by_document(engine: Engine, threshold: float) -> dict[str, list[str]]:
    """Return the group of each document that is in one; the engine keeps the groups in memory until it changes."""

    def found() -> dict[str, list[str]]:
        return {doc_id: group for group in near_duplicates(engine, threshold) for doc_id in group}

    return engine.snapshot().cached(("near duplicates", threshold), found)


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the sequences of tokens of a text; a shorter text is one sequence, and an empty one has none.

    >>> sorted(_shingles("The tenant pays rent."))
    [('tenant', 'pays', 'rent'), ('the', 'tenant', 'pays')]
    >>> sorted("".join(shingle) for shingle in _shingles("租约终止，2 May"))
    ['止2may', '租约终', '约终止', '终止2']
    """
    tokens = [token for word in text.lower().split() for token in _tokens("".join(filter(str.isalnum, word)))]
    n = min(_TOKENS_PER_SHINGLE, len(tokens))
    return frozenset(tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)) if tokens else frozenset()


def _tokens(word: str) -> Iterator[str]:
    """Yield the tokens of the text between two spaces: one word, or its parts if it was written without spaces."""
    has_spaces = word.isascii() or not (_UNSPACED.search(word) or _LONG_KOREAN.search(word))
    if has_spaces and len(word) <= _MAX_WORD_CHARACTERS:
        if word:
            yield word
        return
    for run in _SCRIPT_RUN.findall(word):
        if re.match(f"[{_LETTERS}]", run):
            size = min(2, len(run))
        elif _LONG_KOREAN.fullmatch(run):
            size = 1
        else:
            size = len(run) if len(run) <= _MAX_WORD_CHARACTERS else _CHARACTERS_PER_TOKEN
        yield from (run[at : at + size] for at in range(len(run) - size + 1))


def _similarity(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard index of two sets."""
    return len(one & other) / len(one | other)
