"""With dates, context rankers see neither documents nor links that are not earlier than a query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from haybale import Engine, parse
from haybale.collections import Collection
from haybale.collections.metadata import metadata_table
from haybale.search.cutoffs import cutoffs_of

pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning", "ignore:before=")
NAMES = (
    "linked-documents(bm25)",
    "linear-context(bm25,n_documents=5)",
    "section-propagation(bm25,n_documents=5)",
    "rrf(bm25,linked-documents(bm25))",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_ranking_is_that_within_the_earlier_documents(structured: Collection, name: str) -> None:
    rng = np.random.default_rng(3)
    rows = [{"decided": int(year)} for year in rng.integers(1990, 2010, size=structured.n_documents)]
    engine = Engine(replace(structured, metadata=metadata_table(rows)))
    ranker = parse(name).fit(engine, before="decided")
    queries = engine.collection.queries.take(engine.collection.split("dev").queries)
    cutoffs = cutoffs_of(engine.collection, queries, "decided")
    runs = {"rank": ranker.rank("dev", before="decided"), "out of fold": ranker.out_of_fold("dev", before="decided")}
    ids = engine.collection.doc_ids.to_pylist()
    n_ranked = 0
    for row, query in enumerate(queries.ids.to_pylist()):
        earlier = [ids[number] for number in np.flatnonzero(cutoffs.documents < cutoffs.queries[row])]
        for run in runs.values():
            assert {doc for doc, _ in run[query]} <= set(earlier)
        try:
            part = ranker.rank(queries.take([row]), within=earlier)[query]
        except ValueError:  # none of the earlier documents has a passage
            part = []
        assert runs["rank"][query] == part
        n_ranked += len(part)
        if part:
            explanation = ranker.explain(queries.take([row]), part[0][0], before="decided")
            assert (explanation.rank, explanation.score) == (1, pytest.approx(part[0][1]))
    assert n_ranked > 30
