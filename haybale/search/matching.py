"""Say which documents match a query: those with a word of it, whatever a ranker makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haybale.engine import Engine
from haybale.search.phrases import find_phrases, parse_phrases


def matching_documents(engine: Engine, text: str | Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each document (n,) of an engine matches a text: has a term of it, and all its phrases.

    Terms are those of BM25: inflections and parts of compounds count, stop words do not. A ranker that compares meaning
    may also rank documents that do not match.

    Parameters
    ----------
    engine : Engine
        A snapshot, so that document numbers stay.
    text : str or sequence of str
        As in :meth:`haybale.Ranker.search`, which raises the same errors.

    Examples
    --------
    >>> texts = {"dogs": "Dogs bark at cats.", "cats": "A cat purrs.", "cows": "Cows moo."}
    >>> engine = Engine(texts, language="english", encoder="tfidf(min_df=1)")
    >>> matching_documents(engine, "which cats purr?").tolist(), matching_documents(engine, '"cat purrs"').tolist()
    ([True, True, False], [False, True, False])
    """
    index = engine.bm25("document")
    parsed = [parse_phrases(part) for part in ([text] if isinstance(text, str) else text)]
    terms = {term for bare, _ in parsed for term in index.analyzer.terms(bare)}
    quoted = [phrase for _, part_phrases in parsed for phrase in part_phrases]
    matches = np.zeros(engine.collection.n_documents, dtype=bool)
    matches[index.passages_with_any(terms)] = True
    if quoted:
        has_phrases = find_phrases(engine, quoted).documents
        matches &= has_phrases
        return matches if matches.any() else has_phrases  # a phrase such as "§ 5" has no term
    return matches
