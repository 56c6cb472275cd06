"""Find groups of documents with nearly the same text, such as versions of one contract, by MinHash."""

from __future__ import annotations

import numpy as np

from haybale.engine import Engine
from haybale.extras import import_optional
from haybale.parameters import SHARE, check_parameters
from haybale.progress import track

EXTRA = "review"
_SHINGLE = 3  # words in a row
_PERMUTATIONS = 128


def near_duplicates(engine: Engine, threshold: float = 0.9) -> list[list[str]]:
    """Return groups of documents with nearly the same text.

    Two documents are similar if the Jaccard index of their shingles, all sequences of three words in lower case, is at
    least the threshold. Candidates come from MinHash with 128 permutations (Broder, "On the resemblance and containment
    of documents", 1997) and are then compared exactly, so no group has documents that are less similar; few similar
    pairs may be missed. A group also holds documents that are linked by others.

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
    bound = min(max(threshold, 0.05), 0.95)  # of the candidates; datasketch has no bands for higher thresholds
    index = datasketch.MinHashLSH(threshold=bound, num_perm=_PERMUTATIONS, weights=(0.2, 0.8))
    group = np.arange(len(ids))  # of each document: the number of a document in its group
    for number, own in enumerate(track(shingles, "compare documents")):
        if not own:
            continue
        sketch = datasketch.MinHash(num_perm=_PERMUTATIONS, seed=1)
        sketch.update_batch([" ".join(shingle).encode() for shingle in own])
        for other in sorted(index.query(sketch)):
            if _similarity(own, shingles[other]) >= threshold:
                group[group == group[other]] = group[number]
        index.insert(number, sketch)
    groups: dict[int, list[str]] = {}
    for number, name in enumerate(group.tolist()):
        groups.setdefault(name, []).append(ids[number])
    return sorted(sorted(each) for each in groups.values() if len(each) > 1)


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the sequences of words of a text; a shorter text is one sequence, and an empty one has none."""
    words = ["".join(filter(str.isalnum, word)) for word in text.lower().split()]
    words = [word for word in words if word]
    n = min(_SHINGLE, len(words))
    return frozenset(tuple(words[at : at + n]) for at in range(len(words) - n + 1)) if words else frozenset()


def _similarity(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard index of two sets."""
    return len(one & other) / len(one | other)
