"""A ranker that compares titles with queries."""

import math
import re
from dataclasses import replace

import numpy as np

from haybale import Ranker, Run
from haybale.rankers import Share


class Titles(Ranker):
    """Score a document by the words that its title shares with the query: Σ idf(word)^power."""

    name = "titles"
    variants = {"titles": {}, "titles-count": {"power": 0.0}}  # noqa: RUF012
    uses_vectors = False

    def __init__(self, power=1.0):
        self.power = power

    def fit_batch(self, training):
        titles = [words(title) for title in training.batch.engine.collection.doc_titles.to_pylist()]
        self.idf_ = {word: math.log(1 + len(titles) / sum(word in t for t in titles)) for word in set().union(*titles)}

    def rank_batch(self, batch, depth):
        titles = [words(title) for title in batch.engine.collection.doc_titles.to_pylist()]
        found = [
            (row, document, math.fsum(self._weight(word) for word in words(text) & title))
            for row, (text, own) in enumerate(zip(batch.texts, batch.own, strict=True))
            for document, title in enumerate(titles)
            if words(text) & title and document != own
        ]
        columns = zip(*found, strict=True) if found else ((), (), ())
        rows, documents, scores = (np.array(column, dtype=kind) for column, kind in zip(columns, "iid", strict=True))
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    def explain_document(self, batch, document, base):
        shared = words(batch.texts[0]) & words(batch.engine.collection.doc_titles[document].as_py())
        return replace(base, shares=[Share(f"title word {word}", self._weight(word)) for word in sorted(shared)])

    def save_state(self, folder):
        return {"idf": self.idf_}

    def load_state(self, folder, state, engine):
        self.idf_ = state["idf"]

    def _weight(self, word):
        return self.idf_.get(word, 1.0) ** self.power


def words(text):
    """Return the words of a text, in lower case."""
    return set(re.findall(r"\w+", (text or "").lower()))
