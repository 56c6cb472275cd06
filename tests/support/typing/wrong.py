# ruff: noqa: B018, F841
"""Calls that a type checker must refuse: every line that ends in a comment, with the code of mypy's error."""

from __future__ import annotations

import numpy as np
import pandas as pd

import haybale
from haybale import BM25, KNN, PARM, RRF, SVR, BM25Index, Engine, Learned, PassageIndex, Run, TfidfEncoder

haybale.SVM()  # attr-defined
BM25("document", k=3)  # call-arg
BM25(unit=1)  # arg-type
SVR(n_bag=3)  # call-arg
SVR(n_bags="many")  # arg-type
PARM(k1="high")  # arg-type
KNN("passage", "document")  # call-arg
RRF("bm25")  # arg-type
Learned(BM25, KNN())  # arg-type
Engine.build(1)  # arg-type
Engine.open()  # call-arg
TfidfEncoder(min_df="often")  # arg-type
BM25Index("a text", k2=3)  # call-arg
PassageIndex("vectors")  # arg-type


def ask(engine: Engine, run: Run, qrels: pd.DataFrame) -> None:
    ranker = Learned().fit(engine)
    Learned().fit(engine, "train", "qrels.tsv")  # arg-type
    SVR().fit("engine/")  # arg-type
    ranker.rank({"q": 1})  # dict-item
    ranker.rank("dev", deep=10)  # call-arg
    ranker.ranks("dev")  # attr-defined
    run["q"].foo  # attr-defined
    run[1]  # index
    run.top("three")  # arg-type
    ranker.explain("text")  # call-arg
    ranker.explain("text", "a").scores  # attr-defined
    haybale.evaluate(qrels, run)  # type-var
    haybale.evaluate(run, "qrels.tsv")  # type-var
    haybale.load("model")  # call-arg
    PassageIndex(np.eye(3)).search("text", 3)  # arg-type
    engine.encode("text")  # attr-defined
    score: str = run["q"][0][1]  # assignment
