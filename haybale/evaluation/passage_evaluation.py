"""Evaluate rankings of passages within relevant documents by MAP(D) and PREC(D) of CLEF-IP.

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
    """Rank passages instead of documents.

    Parameters
    ----------
    ranker : Ranker
        A fitted ranker that retrieves passages: BM25 or KNN over passages, or a ranker of passages in context.
    queries : mapping, sequence, frame, str or Path
        Queries in any form that :meth:`Ranker.rank` takes.
    k : int, default 1000
        Largest number of passages for each query.

    Raises
    ------
    InputError, NotFittedError
        If the ranker does not retrieve passages, or has not been fitted.
    """
    ranker._check_fitted()
    hits = getattr(ranker, "passage_hits", None)
    if hits is None or getattr(ranker, "unit", "passage") != "passage":
        raise InputError(f"{ranker} ranks documents, not passages; use a ranker of passages, such as bm25 or knn")
    engine = ranker.engine_.snapshot()
    batch = QueryBatch(engine, queries_from(engine.collection, queries))
    rows, _, passages, scores = hits(batch, k).flat()
    return Run.from_numbers(batch.ids, batch.engine.collection.passages.ids, rows, passages, scores, k)


def evaluate_passages(run: Run, qrels: Frame, collection: Collection) -> pd.DataFrame:
    """Compute MAP(D) and PREC(D) of every query with a relevant passage.

    In each document with a relevant passage, MAP(D) is the average precision and PREC(D) the precision of the passages
    that the run has; both are 0 if it has none. The value of a query is the mean over these documents.

    Parameters
    ----------
    run : Run
        A run of passages, with passage ids in place of document ids.
    qrels : frame
        Judgements with columns ``query_id``, ``passage_id`` and ``relevance``; above 0 is relevant.
    collection : Collection
        The collection of the passages.

    Returns
    -------
    DataFrame, (n_queries, 2) float64
        Index ``query_id``.

    Raises
    ------
    InputError
        For unknown passages, and if no passage is relevant.
    """
    frame = to_pandas(qrels, ["query_id", "passage_id", "relevance"], "qrels")
    check_filled(frame, "qrels")
    frame = frame[numbers(frame, "relevance", "qrels") > 0].astype({"query_id": str, "passage_id": str})
    relevant = frame.drop_duplicates(["query_id", "passage_id"])[["query_id", "passage_id"]]
    if relevant.empty:
        raise InputError("qrels must have a 'relevance' above 0, found none")
    rows, _, ids, _ = run.flat()
    ranked = pd.DataFrame({"query_id": np.asarray(run.query_ids, dtype=object)[rows], "passage_id": ids.to_pylist()})
    relevant, ranked = (
        table.assign(document=collection.passages.doc_of[collection.passage_numbers(table["passage_id"])])
        for table in (relevant, ranked)
    )
    document = ["query_id", "document"]
    ranked = ranked.merge(relevant[document].drop_duplicates(), on=document)
    judged = ranked.merge(relevant, on=["query_id", "passage_id"], how="left", indicator=True)
    ranked["is_relevant"] = (judged["_merge"] == "both").to_numpy()
    inside = ranked.groupby(document)["is_relevant"]
    ranked["precision"] = inside.cumsum() / (inside.cumcount() + 1) * ranked["is_relevant"]
    table = ranked.groupby(document).agg(precision=("precision", "sum"), share=("is_relevant", "mean"))
    n_relevant = relevant.groupby(document, sort=False).size()
    table = table.reindex(n_relevant.index, fill_value=0.0)
    values = pd.DataFrame({"MAP(D)": table["precision"] / n_relevant, "PREC(D)": table["share"]})
    return values.groupby(level="query_id", sort=False).mean()


def section_qrels(collection: Collection, qrels: Frame) -> pd.DataFrame:
    """Convert judgements of sections to judgements of passages.

    A passage gets the highest grade of the judged sections that contain it.

    Parameters
    ----------
    collection : Collection
        A collection with sections.
    qrels : frame
        Judgements with columns ``query_id``, ``section_id`` and ``relevance``.

    Returns
    -------
    DataFrame
        Columns ``query_id``, ``passage_id`` and ``relevance``.

    Raises
    ------
    InputError
        If the collection has no sections, or for an unknown section.
    """
    frame = to_pandas(qrels, ["query_id", "section_id", "relevance"], "qrels")
    check_filled(frame, "qrels")
    passages, sections = collection.passages, collection.sections
    if sections is None or passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections; add sections to its documents")
    roots = [np.flatnonzero(part < 0) for part in np.split(sections.parents, sections.doc_offsets[1:-1])]
    inside: dict[int, list[int]] = {}  # the passages of each section and its subsections
    for passage, (section, document) in enumerate(zip(passages.sections.tolist(), passages.doc_of, strict=True)):
        if section < 0 and len(roots[document]) == 1:  # without a section: in the document's only root
            section = int(sections.doc_offsets[document] + roots[document][0])
        above: list[int] = []
        while section >= 0 and section not in above:
            above.append(section)
            inside.setdefault(section, []).append(passage)
            section = int(sections.parents[section])
    section_numbers = {name: number for number, name in enumerate(sections.ids.to_pylist())}
    rows = []
    for query, section_id, grade in frame[["query_id", "section_id", "relevance"]].itertuples(index=False):
        if section_id not in section_numbers:
            raise UnknownNameError("section", str(section_id), section_numbers)
        rows += [(str(query), passage, int(grade)) for passage in inside.get(section_numbers[section_id], [])]
    table = pd.DataFrame(rows, columns=["query_id", "passage", "relevance"])
    best = table.groupby(["query_id", "passage"], sort=False)["relevance"].max().reset_index()
    ids = take_strings(passages.ids, best["passage"].to_numpy(dtype=np.int64))
    return pd.DataFrame({"query_id": best["query_id"], "passage_id": ids, "relevance": best["relevance"]})
