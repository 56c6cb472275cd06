"""Find copies among a few documents, such as those that a search has ranked: one record, or nearly the same text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from haybale.collections import Collection
from haybale.collections.collection import Ints
from haybale.engine.duplicates import text_sketches
from haybale.engine.engine import Engine

if TYPE_CHECKING:
    from haybale.collections.text_sketches import TextSketches

NEAR_TEXTS = 0.9  # the estimated share of equal shingles of two texts that are nearly the same
MIN_WORDS = 25  # of a text; shorter ones are copies if their titles are equal, too


def groups_of_copies(engine: Engine, numbers: Ints) -> list[list[int]]:
    """Return documents in groups of copies: a document joins the first group whose first document it is a copy of.

    Two documents are copies if they are one record by the rules of :meth:`~haybale.Engine.duplicates`, or if their
    texts have the same words, or an estimated 90 % of their sequences of three words in common.

    Parameters
    ----------
    engine : Engine
    numbers : (n,) array of int
        Distinct document numbers, the one that shall stand for its copies before them.

    Returns
    -------
    list of list of int
        The positions of the documents, from 0: each in one group, rising; the groups by their first ones.

    Examples
    --------
    >>> text = "The lessor keeps the deposit until all claims are settled, at most for six months after the lease ends."
    >>> texts = {"a.pdf": text, "b.pdf": "Another text.", "copies/a.docx": text.upper()}
    >>> documents = {name: {"title": "Lease", "text": text} for name, text in texts.items()}
    >>> groups_of_copies(Engine(documents, language="english", encoder="tfidf(min_df=1)"), np.array([2, 1, 0]))
    [[0, 2], [1]]
    """
    sketches = text_sketches(engine._documents).take(numbers)
    record, titles = _records_and_titles(engine.whole, numbers, sketches)
    shared_keys = _shared_keys(sketches)
    leaders: dict[tuple[int, int], list[int]] = {}  # the first documents of groups, by a band and its key
    leader_of_record: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for position in range(len(numbers)):
        keys = shared_keys.get(position, [])
        leader = leader_of_record.get(record[position])
        near = sorted({first for key in keys for first in leaders.get(key, ())}) if leader is None else []
        if near:
            is_equal = sketches.texts[near] == sketches.texts[position]
            overlap = (sketches.values[near] == sketches.values[position]).mean(axis=1)
            is_long = np.minimum(sketches.n_words[near], sketches.n_words[position]) >= MIN_WORDS
            has_title = np.array([titles[first] == titles[position] for first in near])
            is_copy = (is_equal & (is_long | has_title)) | ((overlap >= NEAR_TEXTS) & is_long)
            leader = near[int(np.argmax(is_copy))] if is_copy.any() else None
        if leader is None:
            leader = position
            for key in keys:
                leaders.setdefault(key, []).append(position)
        if record[position] >= 0:
            leader_of_record.setdefault(record[position], leader)
        groups.setdefault(leader, []).append(position)
    return list(groups.values())


def _shared_keys(sketches: TextSketches) -> dict[int, list[tuple[int, int]]]:
    """Return the bands in which a document agrees with others, each with its key, by the position of the document."""
    keys: dict[int, list[tuple[int, int]]] = {}
    for band, of_band in enumerate(sketches.bands()):
        _, inverse, counts = np.unique(of_band, return_inverse=True, return_counts=True)
        for position in np.flatnonzero((counts[inverse] > 1) & (of_band != 0)).tolist():
            keys.setdefault(position, []).append((band, int(inverse[position])))
    return keys


def _records_and_titles(whole: Collection, numbers: Ints, sketches: TextSketches) -> tuple[list[int], list[str]]:
    """Return the number of the record that each document is, by the rules of duplicates, and its title.

    The number is -1 for a document that is no duplicate of the others.
    """
    from haybale.collections.record_fields import RecordFields, may_have_records

    record = np.full(len(numbers), -1)
    order = np.argsort(numbers)
    if may_have_records(whole) and np.diff(whole.passages.doc_offsets)[numbers].any():
        from haybale.collections.duplicate_rules import DuplicateRules

        rules = DuplicateRules(RecordFields.of(whole.take(numbers[order])), sketches.take(order))
        for number, (rows, _) in enumerate(rules.groups()):
            record[order[rows]] = number
    return record.tolist(), whole.doc_titles.take(numbers).to_pylist()
