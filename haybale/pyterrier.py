"""Use rankers as PyTerrier transformers in pipelines and experiments; Java is not needed.

    from haybale.pyterrier import to_pyterrier

    ranker = haybale.Learned().fit(engine)
    pipeline = to_pyterrier(haybale.BM25().fit(engine)) % 100 >> to_pyterrier(ranker)

Macdonald & Tonellotto, "Declarative Experimentation in Information Retrieval using PyTerrier", ICTIR 2020. This module
needs the extra ``pyterrier``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from haybale.collections import Paragraph, Queries, find_splitter
from haybale.collections.collection import Ints
from haybale.collections.queries import queries_of
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.parameters import COUNT, check_parameters
from haybale.rankers import Ranker
from haybale.ranking.empty_rankings import warn_of_empty
from haybale.ranking.ranker import batches_of
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH, distinct_scores

import_optional("pyterrier", "pyterrier")

import pyterrier as pt  # noqa: E402

SplitFunction: TypeAlias = Callable[[str], Sequence[str] | Sequence[Paragraph]]


class RankerTransformer(pt.Transformer):
    """A fitted ranker as a transformer that retrieves documents, or re-ranks the documents of another stage.

    For frames with the columns ``qid`` and ``query``, the transformer retrieves documents. If the frames also have
    ``docno``, it ranks only these documents, as ``ranker.rank(…, within=…)`` does. Documents that the ranker does not
    find follow the others in their previous order (by ``rank`` if there is one, else by ``score``, else by row), and
    each scores 1 less than the one before it. An optional column ``own`` names a document that is excluded from the
    query's ranking. All other columns are kept.

    Results have the columns ``docno``, ``score`` and ``rank`` (from 0), sorted by score and then by docno. Queries are
    in the order of the first row of each ``qid``. PyTerrier and its evaluators break ties in other ways, so scores are
    distinct: a tied score is lowered by a float32 step, as :meth:`~haybale.Run.to_frame` does.

    Parameters
    ----------
    ranker : Ranker
        A fitted ranker.
    depth : int, default 1000
        Number of documents per query.
    splitter : str or callable, default "lines"
        How to split a query into paragraphs: one of :data:`~haybale.collections.SPLITTERS`, or a function from a text
        to its paragraphs. With the default, every non-empty line is a paragraph.

    Raises
    ------
    NotFittedError
        The ranker is not fitted.
    InputError
        The depth is below 1 or the splitter is unknown. While ranking: a query is blank or has no paragraph, or a
        ``docno`` is not in the engine.

    Examples
    --------
    >>> from haybale import BM25, CollectionBuilder, Engine
    >>> builder = CollectionBuilder("pets", language="english")
    >>> for doc_id, texts in {"dogs": ["a dog", "two dogs, one dog"], "cats": ["a cat and no dog"]}.items():
    ...     _ = builder.add_document(doc_id, texts)
    >>> to_pyterrier(BM25().fit(Engine(builder.build()))).search("dog")[["qid", "docno", "rank"]]
      qid docno  rank
    0   1  dogs     0
    1   1  cats     1
    """

    def __init__(self, ranker: Ranker, *, depth: int = DEPTH, splitter: str | SplitFunction = "lines") -> None:
        ranker._check_fitted()
        check_parameters("to_pyterrier", {"depth": depth}, {"depth": COUNT})
        self._split: SplitFunction = find_splitter(splitter) if isinstance(splitter, str) else splitter
        self.ranker = ranker
        self.depth = depth
        self.splitter = splitter

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the results for a frame of queries, or re-rank a frame of results."""
        with pt.validate.any(inp, context=self) as checked:
            checked.query_frame(["query"], mode="retrieve")
            checked.result_frame(["query"], mode="re-rank")
        if not len(inp):
            return _results(inp, np.empty(0, dtype=np.int64), [], np.empty(0), self.depth)
        return self._retrieve(inp) if checked.mode == "retrieve" else self._rerank(inp)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Return a transformer that is equal to ``self % k`` but ranks only k documents."""
        return self if k >= self.depth else pt.inspect.transformer_apply_attributes(self, depth=k)

    def _retrieve(self, inp: pd.DataFrame) -> pd.DataFrame:
        names = inp["qid"].astype(str).tolist()
        if inp["qid"].duplicated().any():
            names = [str(row) for row in range(len(inp))]
        engine = self.ranker.engine_.snapshot()
        batches = batches_of(self.ranker, self._queries(engine, names, inp), engine=engine)
        run = Run.joined([self.ranker.run(batch, self.depth) for batch in batches])
        warn_of_empty(run, self.ranker)
        rows, _, documents, table, scores = run.coded()
        return _results(inp, rows, table.take(pa.array(documents)).to_pylist(), scores, self.depth)

    def _rerank(self, inp: pd.DataFrame) -> pd.DataFrame:
        engine, docnos = self.ranker.engine_.snapshot(), inp["docno"].to_numpy(dtype=object)
        collection = engine.collection
        numbers = collection.document_numbers(docnos)
        has_text = np.diff(collection.passages.doc_offsets)[numbers] > 0  # others have no passage to find
        query, qids = pd.factorize(inp["qid"])
        # Operators such as + may leave the query empty in some rows of a qid: take it from the first row that has it.
        columns = [name for name in ("query", "own") if name in inp.columns]
        query_frame = inp.groupby("qid", sort=False)[columns].first().reindex(qids).reset_index(names="qid")
        queries = self._queries(engine, [str(number) for number in range(len(query_frame))], query_frame)
        by, sign = next(((name, sign) for name, sign in (("rank", 1), ("score", -1)) if name in inp.columns), ("", 0))
        order = np.argsort(sign * inp[by].to_numpy(dtype=np.float64), kind="stable") if by else np.arange(len(inp))
        scores = np.full(len(inp), np.nan)
        for number, own_document in enumerate(queries.own):
            rows = order[(query[order] == number) & (numbers[order] != own_document)]
            ranked: dict[str, float] = {}
            if has_text[rows].any():
                within = sorted(set(docnos[rows]))
                [batch] = batches_of(self.ranker, queries.take([number]), within=within, engine=engine)
                ranked = dict(self.ranker.run(batch, len(rows))[str(number)])
            scores[rows] = [ranked.get(docno, np.nan) for docno in docnos[rows]]
            not_found = rows[np.isnan(scores[rows])]
            scores[not_found] = min([0.0, *ranked.values()]) - 1 - np.arange(len(not_found))
        kept = np.flatnonzero(~np.isnan(scores))
        return _results(inp, kept, docnos[kept], scores[kept], self.depth)

    def _queries(self, engine: Engine, names: list[str], frame: pd.DataFrame) -> Queries:
        """Return one query per row of a frame, with numbers of own documents in a snapshot."""
        paragraphs = [self._paragraphs(qid, text) for qid, text in zip(frame["qid"], frame["query"], strict=True)]
        own_ids = None
        if "own" in frame.columns:
            own_ids = [None if pd.isna(doc_id) else str(doc_id) for doc_id in frame["own"]]
        return queries_of(engine.collection, names, paragraphs, own_ids)

    def _paragraphs(self, qid: Any, text: Any) -> list[str]:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"query {qid!r}: expected a non-empty string in column 'query', found {text!r}")
        parts = self._split(text)
        paragraphs = [part.text if isinstance(part, Paragraph) else part for part in parts]
        if isinstance(parts, str) or not paragraphs or not all(part.strip() for part in paragraphs):
            message = f"query {qid!r}: the splitter must return a list of non-empty paragraphs, found {parts!r:.80}"
            raise InputError(message)
        return paragraphs


to_pyterrier = RankerTransformer


def _results(
    frame: pd.DataFrame, rows: Ints, docnos: Sequence[str] | NDArray[Any], scores: NDArray[np.floating], k: int
) -> pd.DataFrame:
    """Return a results frame with the top ``k`` documents of each query, sorted by score and then by docno.

    ``rows`` (n,) are the rows of ``frame`` to take the other columns from; queries keep the order of ``frame``.
    """
    names = pd.Series(list(docnos), dtype="str")
    result = frame.iloc[rows].reset_index(drop=True).assign(docno=names, score=np.asarray(scores, dtype=np.float64))
    query = pd.factorize(frame["qid"])[0][rows]
    order = np.lexsort((pd.factorize(names, sort=True)[0], -result["score"], query))
    result = result.iloc[order].assign(score=distinct_scores(result["score"].to_numpy()[order], query[order]))
    result["rank"] = result.groupby("qid", sort=False).cumcount()
    return result[result["rank"] < k].reset_index(drop=True)
