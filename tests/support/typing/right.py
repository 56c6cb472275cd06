"""Calls that a type checker must accept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

import haybale
from haybale import (
    BM25,
    KNN,
    PARM,
    RRF,
    SVR,
    BM25Index,
    Engine,
    Explanation,
    HaybaleError,
    Hits,
    InSpace,
    Learned,
    LSAEncoder,
    PassageIndex,
    Ranker,
    Run,
    TfidfEncoder,
)

qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["a"], "relevance": [1]})
engine: Engine = Engine.build("pydocs", "engine", encoder=TfidfEncoder())
again: Engine = Engine.open("engine", device="cpu")
small = Engine({"a": "one text", "b": ["two", "paragraphs"]}, language="english")
engine.add({"c": "a new text"})
engine.remove(["c"])

ranker: Ranker = Learned(BM25("document", k1=1.2), KNN(), PARM("vrrf", over="bm25"), SVR(n_bags=3)).fit(engine)
fused: RRF = RRF(BM25(), InSpace(KNN(), "other"), k=60).fit(engine, {"q": "a text"}, qrels)
run: Run = ranker.rank({"q": "how to invert a matrix", "r": ["two", "paragraphs"]}, depth=10)
run = ranker.rank(["a text"])
run = ranker.rank("dev", within=["a"])
pairs: list[tuple[str, float]] = run["q"]
why: Explanation = ranker.explain("a text", run["q"][0][0])
print(why.score, len(run), run.top(3).query_ids)
ranker.save("model")
loaded: Ranker = haybale.load("model", engine)
parsed: Ranker = haybale.parse("rrf(bm25,svr)")

vectors = np.zeros((3, 4), dtype=np.float32)
index = PassageIndex(vectors, doc_ids=["a", "b", "c"])
hits: Hits = index.search(vectors[:1], 2)
terms = BM25Index(["a text"], language="english", k1=0.9)
measures: pd.DataFrame = haybale.evaluate(run, qrels, ["nDCG@10"])
print(measures["nDCG@10"].mean(), run.to_frame()["score"].max())
LSAEncoder(n_components=8).fit(["a text"]).encode(["another"])


def best(rankers: Sequence[Ranker], queries: dict[str, str]) -> dict[str, Run]:
    return {str(each): each.rank(queries) for each in rankers}


try:
    best([BM25(), SVR()], {"q": "text"})
except HaybaleError as error:
    print(error)
