"""What runs find: recall against cut-off, found sets, which paragraph finds which. Figures 2 to 4 of the PARM paper.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, sections 5.2 and 5.4. ``haybale.drawing`` draws the frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from haybale.collections.collection import whole_numbers
from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.frames import Frame
from haybale.parameters import COUNT, check_parameters
from haybale.retrieval import Hits, Run
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import DEPTH

CUTOFFS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LATER = "later"


def recall_curves(runs: Mapping[str, Run], qrels: Frame, cutoffs: Sequence[int] | None = None) -> pd.DataFrame:
    """Mean recall at cut-offs, over the queries that :func:`evaluate` counts.

    Parameters
    ----------
    runs : mapping of str to Run
    qrels : frame
        As for :func:`evaluate`.
    cutoffs : sequence of int, optional
        At least 1. Default: 1, 2, 5, 10 … 1000, as far as the longest ranking of the runs goes.

    Returns
    -------
    DataFrame, (n_cutoffs, n_runs) float64
        Index ``cutoff``, rising, and a column a run.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["a", "z"], "relevance": [1, 1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [1.0, 2.0]}))
    >>> recall_curves({"bm25": run}, qrels)["bm25"].to_dict()
    {1: 0.0, 2: 0.5}
    """
    if not runs:
        raise InputError("recall curves: no run was given")
    if cutoffs is None:
        deepest = max(run.to_frame()["rank"].to_numpy().max(initial=1) for run in runs.values())
        cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= deepest]
    if not len(cutoffs) or min(cutoffs) < 1:
        raise InputError(f"recall curves: cut-offs must be 1 or more; found {list(cutoffs)}")
    at, pairs = np.unique(whole_numbers(cutoffs, "cutoffs")), _relevant_pairs(qrels)
    ranks = {name: _ranks(run, pairs) for name, run in runs.items()}
    curves = [
        {name: (rank <= cutoff).groupby(pairs["query_id"]).mean().mean() for name, rank in ranks.items()}
        for cutoff in at
    ]
    return pd.DataFrame(curves, index=pd.Index(at, name="cutoff"))


def found_sets(a: Run, b: Run, qrels: Frame, k: int = DEPTH) -> pd.DataFrame:
    """The relevant pairs of ``qrels``, and which of two runs has each among its first ``k`` documents.

    Returns
    -------
    DataFrame
        A row a pair: ``query_id``, ``doc_id``, ``found_by`` (``"both"``, ``"a"``: a alone, ``"b"``: b alone, or
        ``"none"``), ``rank_a`` and ``rank_b`` (from 1; missing where not found).

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["x", "y", "z"], "relevance": [1, 1, 1]})
    >>> one = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["x", "y"], "score": [2.0, 1.0]}))
    >>> other = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["w", "y"], "score": [2.0, 1.0]}))
    >>> found_sets(one, other, qrels)["found_by"].tolist()
    ['a', 'both', 'none']
    """
    check_parameters("found_sets", {"k": k}, {"k": COUNT})
    pairs = _relevant_pairs(qrels)
    ranks = {name: _ranks(run, pairs) for name, run in (("rank_a", a), ("rank_b", b))}
    ranks = {name: rank.where(rank <= k).astype("Int64") for name, rank in ranks.items()}
    by_a, by_b = (rank.notna().to_numpy() for rank in ranks.values())
    return pairs.assign(found_by=np.select([by_a & by_b, by_a, by_b], ["both", "a", "b"], "none"), **ranks)


def paragraph_relations(
    hits: Hits, offsets: Ints, doc_offsets: Ints, relevant: tuple[Ints, Ints], *, size: int = 12
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count the hits on relevant documents by the place of the paragraph in the query and in the document.

    Parameters
    ----------
    hits : Hits, (n_paragraphs, n_hits)
    offsets : (n_queries + 1,) int
        Query j has the rows ``offsets[j]:offsets[j + 1]`` of ``hits``.
    doc_offsets : (n_documents + 1,) int
        Where documents begin among the passages.
    relevant : (query rows, document numbers), each (n,) int
        As :meth:`Split.relevant_rows` gives them.
    size : int, default 12
        So many positions, from 0, have a row or column of their own, all others together the last, ``later``.

    Returns
    -------
    (hits, pairs), DataFrames of int
        By position in the query (rows) and in the document (columns): how many pairs of a query paragraph and a
        paragraph of a relevant document were retrieved, and how many there are.

    Examples
    --------
    >>> hits = Hits(np.array([[0, 2], [1, -1]]), np.array([[2.0, 1.0], [1.0, -np.inf]], dtype=np.float32))
    >>> paragraph_relations(hits, np.array([0, 2]), np.array([0, 2, 3]), (np.array([0]), np.array([0])))[0]
    document  0  1
    query
    0         1  0
    1         0  1
    """
    check_parameters("paragraph_relations", {"size": size}, {"size": COUNT})
    offsets, doc_offsets = whole_numbers(offsets, "offsets"), whole_numbers(doc_offsets, "doc_offsets")
    for what, starts, end in (("offsets", offsets, len(hits)), ("doc_offsets", doc_offsets, doc_offsets[-1])):
        if starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
            raise InputError(f"{what} must rise from 0 to the number of rows of hits, or of passages")
    row, _, passage, _ = hits.to_numpy().flat()
    n, (queries, documents) = len(doc_offsets) - 1, np.unique(np.stack(relevant), axis=1)
    for what, numbers, end in (
        ("hits: passage", passage, doc_offsets[-1]),
        ("relevant: query row", queries, len(offsets) - 1),
        ("relevant: document", documents, n),
    ):
        outside = numbers[(numbers < 0) | (numbers >= end)]
        if len(outside):
            raise InputError(f"{what} {outside[0]} is not among the {end} there are")
    (rows, query_of, row_of, in_query), (columns, document_of, column_of, in_document) = (
        _positions(each, size) for each in (offsets, doc_offsets)
    )
    found = np.isin(query_of[row] * n + document_of[passage], queries * n + documents)
    counts = np.zeros((len(rows), len(columns)), dtype=np.int64)
    np.add.at(counts, (row_of[row[found]], column_of[passage[found]]), 1)
    index, names = pd.Index(rows, name="query"), pd.Index(columns, name="document")
    pairs = in_query[queries].T @ in_document[documents]
    return pd.DataFrame(counts, index, names), pd.DataFrame(pairs, index, names)


def _positions(offsets: Ints, size: int) -> tuple[list[str], Ints, Ints, Ints]:
    """Names of the positions; (n,) whose each paragraph is and at which position; (m, positions) how many there are."""
    lengths = np.diff(offsets)
    of = np.repeat(np.arange(len(lengths)), lengths)
    at = np.minimum(np.arange(offsets[-1]) - offsets[of], size)
    n = int(lengths.max(initial=0))
    names = [*map(str, range(min(n, size))), *([LATER] if n > size else [])]
    counts = np.zeros((len(lengths), len(names)), dtype=np.int64)
    np.add.at(counts, (of, at), 1)
    return names, of, at, counts


def _relevant_pairs(qrels: Frame) -> pd.DataFrame:
    """Columns ``query_id`` and ``doc_id``, both strings; a row a pair with relevance above 0, in the order of qrels."""
    judged = judgements(qrels)
    pairs = judged.loc[judged["relevance"] > 0, ["query_id", "doc_id"]].drop_duplicates(ignore_index=True)
    if pairs.empty:
        raise InputError("qrels hold no relevant document: nothing can be measured")
    return pairs


def _ranks(run: Run, pairs: pd.DataFrame) -> pd.Series:
    """(n_pairs,) the rank, from 1, of each pair in the run; infinity where it is absent."""
    ranked = run.to_frame()[["query_id", "doc_id", "rank"]]
    return pairs.merge(ranked, how="left", on=["query_id", "doc_id"])["rank"].astype(float).fillna(np.inf)
