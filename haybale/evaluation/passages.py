"""Measures of passages inside the relevant documents, as CLEF-IP has them: MAP(D) and PREC(D); judgements of sections.

Piroi, Lupu & Hanbury, "Overview of CLEF-IP 2013 Lab", CLEF 2013.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from haybale.collections import Collection
from haybale.collections.collection import take_strings
from haybale.collections.queries import QueriesLike, queries_from
from haybale.context import DocumentGraph
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame, check_filled, numbers, to_pandas
from haybale.rankers import QueryBatch, Ranker
from haybale.retrieval import Run


def rank_passages(ranker: Ranker, queries: QueriesLike, *, k: int = 1000) -> Run:
    """The run of the k best passages of each query, in place of documents.

    Parameters
    ----------
    ranker : Ranker
        Fitted; one that retrieves passages: BM25 or KNN over passages, or a ranker of passages in context.
    queries : as :meth:`Ranker.rank` takes them
    k : int, default 1000
    """
    ranker.check_fitted()
    hits = getattr(ranker, "passage_hits", None)
    if hits is None or getattr(ranker, "unit", "passage") != "passage":
        raise InputError(f"{ranker} ranks documents, not passages")
    batch = QueryBatch(ranker.engine_, queries_from(ranker.engine_.collection, queries))
    rows, _, passages, scores = hits(batch, k).flat()
    return Run.from_numbers(batch.ids, batch.engine.collection.passages.ids, rows, passages, scores, k)


def evaluate_passages(run: Run, qrels: Frame, collection: Collection) -> pd.DataFrame:
    """MAP(D) and PREC(D) of every query with a relevant passage.

    In each document with one: of its passages that are returned, the average precision and the share that is relevant,
    0 where none is returned. The mean over these documents.

    Parameters
    ----------
    run : Run
        Of passages, by passage ids.
    qrels : frame
        Columns ``query_id``, ``passage_id`` and ``relevance``; above 0 is relevant.
    collection : Collection
        Whose passages they are.

    Returns
    -------
    (n_queries, 2) DataFrame, index ``query_id``
    """
    frame = to_pandas(qrels, ["query_id", "passage_id", "relevance"], "qrels")
    check_filled(frame, "qrels")
    frame = frame[numbers(frame, "relevance", "qrels") > 0].astype({"query_id": str, "passage_id": str})
    frame = frame.drop_duplicates(["query_id", "passage_id"])
    if frame.empty:
        raise InputError("qrels hold no relevant passage: nothing can be measured")
    document = collection.passages.doc_of[collection.passage_numbers(frame["passage_id"])]
    wanted = frame.assign(document=document)
    rows, _, ids, _ = run.flat()
    found = pd.DataFrame({"query_id": np.asarray(run.query_ids, dtype=object)[rows], "passage_id": ids.to_pylist()})
    found["document"] = collection.passages.doc_of[collection.passage_numbers(found["passage_id"])]
    found = found.merge(wanted[["query_id", "document"]].drop_duplicates(), on=["query_id", "document"])
    right = found.merge(wanted[["query_id", "passage_id"]], on=["query_id", "passage_id"], how="left", indicator=True)
    found["right"] = (right["_merge"] == "both").to_numpy()
    inside = found.groupby(["query_id", "document"])["right"]
    found["precision"] = inside.cumsum() / (inside.cumcount() + 1) * found["right"]
    table = found.groupby(["query_id", "document"]).agg(precision=("precision", "sum"), share=("right", "mean"))
    judged = wanted.groupby(["query_id", "document"], sort=False).size()
    table = table.reindex(judged.index, fill_value=0.0)
    values = pd.DataFrame({"MAP(D)": table["precision"] / judged, "PREC(D)": table["share"]})
    return values.groupby(level="query_id", sort=False).mean()


def section_qrels(collection: Collection, qrels: Frame) -> pd.DataFrame:
    """Judgements of passages from those of sections: a passage has the highest grade of the sections that it stands in.

    Parameters
    ----------
    collection : Collection
        With sections.
    qrels : frame
        Columns ``query_id``, ``section_id`` and ``relevance``.

    Returns
    -------
    DataFrame
        Columns ``query_id``, ``passage_id`` and ``relevance``.
    """
    frame = to_pandas(qrels, ["query_id", "section_id", "relevance"], "qrels")
    check_filled(frame, "qrels")
    if collection.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections that could be judged")
    graph = DocumentGraph.from_collection(collection)
    known = {name: graph.n_passages + place for place, name in enumerate(collection.sections.ids.to_pylist())}
    inside: dict[int, list[int]] = {}
    for passage, section in enumerate(graph.section_of.tolist()):
        while section >= 0:
            inside.setdefault(section, []).append(passage)
            section = int(graph.parent[section - graph.n_passages])
    rows = []
    for query, section_id, grade in frame[["query_id", "section_id", "relevance"]].itertuples(index=False):
        if section_id not in known:
            raise UnknownNameError("section", str(section_id), known)
        rows += [(str(query), passage, int(grade)) for passage in inside.get(known[section_id], [])]
    table = pd.DataFrame(rows, columns=["query_id", "passage", "relevance"])
    best = table.groupby(["query_id", "passage"], sort=False)["relevance"].max().reset_index()
    ids = take_strings(collection.passages.ids, best["passage"].to_numpy(dtype=np.int64))
    return pd.DataFrame({"query_id": best["query_id"], "passage_id": ids, "relevance": best["relevance"]})
