"""Measures of passages inside the relevant documents, as CLEF-IP defines them: MAP(D) and PREC(D).

Piroi, Lupu & Hanbury, "Overview of CLEF-IP 2013 Lab", CLEF 2013.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from haybale.collections import Collection
from haybale.collections.collection import take_strings
from haybale.collections.queries import QueriesLike, queries_from
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame, check_filled, numbers, to_pandas
from haybale.rankers import QueryBatch, Ranker
from haybale.retrieval import Run


def rank_passages(ranker: Ranker, queries: QueriesLike, *, k: int = 1000) -> Run:
    """Return the run of the k best passages of each query, in place of documents.

    Parameters
    ----------
    ranker : Ranker
        Fitted, and one that retrieves passages: BM25 or KNN over passages, or a ranker of passages in context.
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
    """Compute MAP(D) and PREC(D) of every query with a relevant passage.

    In each document with a relevant passage, they are the average precision of the returned passages, and the share of
    these that is relevant; both are 0 where no passage is returned. A query has the mean over its documents.

    Parameters
    ----------
    run : Run
        Of passages, by passage ids.
    qrels : frame
        Columns ``query_id``, ``passage_id`` and ``relevance``; above 0 is relevant.
    collection : Collection
        The collection of the passages.

    Returns
    -------
    (n_queries, 2) DataFrame, index ``query_id``
    """
    frame = to_pandas(qrels, ["query_id", "passage_id", "relevance"], "qrels")
    check_filled(frame, "qrels")
    frame = frame[numbers(frame, "relevance", "qrels") > 0].astype({"query_id": str, "passage_id": str})
    wanted = frame.drop_duplicates(["query_id", "passage_id"])[["query_id", "passage_id"]]
    if wanted.empty:
        raise InputError("qrels hold no relevant passage: nothing can be measured")
    rows, _, ids, _ = run.flat()
    found = pd.DataFrame({"query_id": np.asarray(run.query_ids, dtype=object)[rows], "passage_id": ids.to_pylist()})
    wanted, found = (
        each.assign(document=collection.passages.doc_of[collection.passage_numbers(each["passage_id"])])
        for each in (wanted, found)
    )
    document = ["query_id", "document"]
    found = found.merge(wanted[document].drop_duplicates(), on=document)
    judged = found.merge(wanted, on=["query_id", "passage_id"], how="left", indicator=True)
    found["is_relevant"] = (judged["_merge"] == "both").to_numpy()
    inside = found.groupby(document)["is_relevant"]
    found["precision"] = inside.cumsum() / (inside.cumcount() + 1) * found["is_relevant"]
    table = found.groupby(document).agg(precision=("precision", "sum"), share=("is_relevant", "mean"))
    n_relevant = wanted.groupby(document, sort=False).size()
    table = table.reindex(n_relevant.index, fill_value=0.0)
    values = pd.DataFrame({"MAP(D)": table["precision"] / n_relevant, "PREC(D)": table["share"]})
    return values.groupby(level="query_id", sort=False).mean()


def section_qrels(collection: Collection, qrels: Frame) -> pd.DataFrame:
    """Turn judgements of sections into judgements of passages.

    A passage gets the highest grade of the judged sections that it stands in.

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
    passages, sections = collection.passages, collection.sections
    if sections is None or passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections that could be judged")
    roots = [np.flatnonzero(part < 0) for part in np.split(sections.parents, sections.doc_offsets[1:-1])]
    inside: dict[int, list[int]] = {}  # the passages of each section, also those of the sections below it
    for passage, (section, document) in enumerate(zip(passages.sections.tolist(), passages.doc_of, strict=True)):
        if section < 0 and len(roots[document]) == 1:  # a passage without a section stands in its document's only root
            section = int(sections.doc_offsets[document] + roots[document][0])
        above: list[int] = []
        while section >= 0 and section not in above:
            above.append(section)
            inside.setdefault(section, []).append(passage)
            section = int(sections.parents[section])
    known = {name: place for place, name in enumerate(sections.ids.to_pylist())}
    rows = []
    for query, section_id, grade in frame[["query_id", "section_id", "relevance"]].itertuples(index=False):
        if section_id not in known:
            raise UnknownNameError("section", str(section_id), known)
        rows += [(str(query), passage, int(grade)) for passage in inside.get(known[section_id], [])]
    table = pd.DataFrame(rows, columns=["query_id", "passage", "relevance"])
    best = table.groupby(["query_id", "passage"], sort=False)["relevance"].max().reset_index()
    ids = take_strings(passages.ids, best["passage"].to_numpy(dtype=np.int64))
    return pd.DataFrame({"query_id": best["query_id"], "passage_id": ids, "relevance": best["relevance"]})
