"""The passages that a search shows."""

from __future__ import annotations

import numpy as np
import pytest

from haybale import Engine, parse
from haybale.collections import Collection


@pytest.mark.parametrize("name", ["bm25", "bm25-doc", "knn", "rrf(bm25-doc,parm-rrf)"])
def test_counts_of_an_open_index_are_those_of_the_texts(topics: Collection, name: str) -> None:
    """An engine whose BM25 index of passages is open shows the same passages and highlights."""
    engines = Engine(topics), Engine(topics).prepare()
    queries = topics.queries.texts(np.arange(5))
    found = [[parse(name).fit(engine).search(text, k=8).to_dict() for text in queries] for engine in engines]
    assert found[0] == found[1]
