"""Queries in any form, and errors of invalid queries and arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from support.engines import assert_same
from support.ranker_cases import Fitted
from support.topics import EVIDENCE

from haybale.collections import Collection
from haybale.errors import InputError
from haybale.rankers import BM25, KNN, RRF, Ranker

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


def test_queries_in_any_form(fitted: Fitted, topics: Collection, tmp_path: Path) -> None:
    ranker = fitted(f"rrf(knn,rrf(bm25,svr({EVIDENCE})),depth=25)", "tfidf")
    numbers = topics.split("dev").queries
    ids = topics.queries.ids.take(numbers).to_pylist()
    texts = [topics.queries.paragraphs_of(int(number)) for number in numbers]
    own = [topics.doc_ids[int(d)].as_py() if d >= 0 else None for d in topics.queries.own[numbers]]
    expected = ranker.rank("dev")
    frame = pd.DataFrame({"query_id": ids, "text": ["\n".join(parts) for parts in texts], "own": own})
    frame.fillna("").to_json(tmp_path / "q.jsonl", orient="records", lines=True)
    for given in (topics.queries.take(numbers), frame, pa.Table.from_pandas(frame), tmp_path / "q.jsonl"):
        assert_same(ranker.rank(given), expected)
    without = ranker.rank(dict(zip(ids, texts, strict=True)))
    assert without != expected
    assert_same(ranker.rank(frame.assign(own="a document from elsewhere")), without)
    flat = {query: " ".join(parts) for query, parts in zip(ids, texts, strict=True)}
    (tmp_path / "q.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in flat.items()))
    assert_same(ranker.rank(tmp_path / "q.tsv"), ranker.rank(flat))
    assert ranker.rank(list(flat.values())).query_ids == [str(place) for place in range(15)]
    assert ranker.rank(flat["dev0"])["0"] == ranker.rank({7: flat["dev0"]})["7"]
    (tmp_path / "letter.txt").write_text("\n\n".join(texts[1]))
    assert ranker.rank(tmp_path / "letter.txt").query_ids == ["letter"]


@pytest.mark.parametrize(
    ("use", "named"),
    [
        *(
            (lambda bm25, given=given: bm25.rank(given), named)
            for given, named in [
                ("", "'0'"),
                ({"q": []}, "'q'"),
                ({"q": "text", "r": ["", " "]}, "'r'"),
                ({}, "query"),
                ({1: "a", "1": "b"}, "'1'"),
                ({"q": 7}, "'q': .*7"),
                ({"q": ["a", None]}, "'q'"),
                ({None: "a"}, "None"),
                (Path("no/such/file.txt"), "no/such/file.txt"),
            ]
        ),
        *((lambda bm25, n=n: bm25.rank("dev", depth=n), "'depth' parameter of rank") for n in (0, 1.5, math.nan, True)),
        (lambda bm25: bm25.out_of_fold("dev", depth=0), "'depth' parameter of out_of_fold"),
        (lambda bm25: bm25.explain("text", "nobody"), "'nobody'"),
        (lambda bm25: bm25.explain("dev", "d01"), "found 15"),
        (lambda bm25: bm25.rank("dev", within=["nobody"]), "'nobody'"),
        (lambda bm25: RRF("bm25", KNN()).fit(bm25.engine_), "RRF .*'bm25'"),
        (lambda bm25: RRF(BM25(b=2), KNN()).fit(bm25.engine_), "'b' parameter of BM25"),
    ],
)
def test_errors(fitted: Fitted, use: Callable[[Ranker], Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        use(fitted("bm25", "tfidf"))
