"""Rankers as PyTerrier transformers, for its pipelines and experiments; no Java needed.

    from haybale.pyterrier import to_pyterrier

    ranker = haybale.Learned().fit(engine)
    pipeline = to_pyterrier(haybale.BM25().fit(engine)) % 100 >> to_pyterrier(ranker)

Macdonald & Tonellotto, "Declarative Experimentation in Information Retrieval using PyTerrier", ICTIR 2020. (Extra
``pyterrier``.)
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
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.parameters import COUNT, check_parameters
from haybale.rankers import Ranker
from haybale.retrieval.run import DEPTH

import_optional("pyterrier", "pyterrier")

import pyterrier as pt  # noqa: E402

Split: TypeAlias = Callable[[str], Sequence[str] | Sequence[Paragraph]]


class RankerTransformer(pt.Transformer):
    """A fitted ranker as a transformer that retrieves, and re-ranks what another stage found.

    Frames with ``qid`` and ``query`` are retrieved for. In frames that have ``docno`` too, only these documents are
    ranked, as by ``ranker.rank(…, within=…)``; those that the ranker does not find keep their order (by ``rank``, else
    ``score``, else as they come) behind the others, each a point below the one before. A column ``own`` may name a
    document that is left out of the query's ranking. All other columns go along.

    Results have ``docno``, ``score`` and ``rank``, from 0; they are ordered by score, then by docno, and rankings of
    queries by where the first row of each ``qid`` stood.

    Parameters
    ----------
    ranker : Ranker
        Any, fitted.
    depth : int, default 1000
        Documents of each query.
    splitter : str or callable, default "lines"
        What makes paragraphs of a query: every non-empty line, another of
        :data:`~haybale.collections.SPLITTERS`, or a function from a text to its paragraphs.

    Raises
    ------
    NotFittedError
        The ranker has no engine yet.
    InputError
        A depth below 1, an unknown splitter; and when it is asked, a blank query, or one that the splitter makes no
        paragraph of, and a ``docno`` that is not in the engine.

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

    def __init__(self, ranker: Ranker, *, depth: int = DEPTH, splitter: str | Split = "lines") -> None:
        ranker.check_fitted()
        check_parameters("to_pyterrier", {"depth": depth}, {"depth": COUNT})
        self._split: Split = find_splitter(splitter) if isinstance(splitter, str) else splitter
        self.ranker = ranker
        self.depth = depth
        self.splitter = splitter

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Queries, or results, to results."""
        with pt.validate.any(inp, context=self) as checked:
            checked.query_frame(["query"], mode="retrieve")
            checked.result_frame(["query"], mode="re-rank")
        if not len(inp):
            return _results(inp, np.empty(0, dtype=np.int64), [], np.empty(0), self.depth)
        return self._retrieved(inp) if checked.mode == "retrieve" else self._reranked(inp)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """``self % k``, by ranking no more."""
        return self if k >= self.depth else pt.inspect.transformer_apply_attributes(self, depth=k)

    def _retrieved(self, inp: pd.DataFrame) -> pd.DataFrame:
        names = inp["qid"].astype(str).tolist()
        if inp["qid"].duplicated().any():
            names = [str(row) for row in range(len(inp))]
        rows, _, documents, table, scores = self.ranker.rank(self._queries(names, inp), depth=self.depth).coded()
        return _results(inp, rows, table.take(pa.array(documents)).to_pylist(), scores, self.depth)

    def _reranked(self, inp: pd.DataFrame) -> pd.DataFrame:
        collection, docnos = self.ranker.engine_.collection, inp["docno"].to_numpy(dtype=object)
        numbers = collection.document_numbers(docnos)
        has_text = np.diff(collection.passages.doc_offsets)[numbers] > 0  # of others no document is found
        query, qids = pd.factorize(inp["qid"])
        # Operators such as + leave the query out of some rows of a qid; one that has it is enough.
        columns = [name for name in ("query", "own") if name in inp.columns]
        asked = inp.groupby("qid", sort=False)[columns].first().reindex(qids).reset_index(names="qid")
        queries = self._queries([str(place) for place in range(len(asked))], asked)
        by, sign = next(((name, sign) for name, sign in (("rank", 1), ("score", -1)) if name in inp.columns), ("", 0))
        order = np.argsort(sign * inp[by].to_numpy(dtype=np.float64), kind="stable") if by else np.arange(len(inp))
        scores = np.full(len(inp), np.nan)
        for place, own in enumerate(queries.own):
            rows = order[(query[order] == place) & (numbers[order] != own)]
            found: dict[str, float] = {}
            if has_text[rows].any():
                [batch] = self.ranker.batches(queries.take([place]), within=sorted(set(docnos[rows])))
                found = dict(self.ranker.run(batch, len(rows))[str(place)])
            scores[rows] = [found.get(docno, np.nan) for docno in docnos[rows]]
            left = rows[np.isnan(scores[rows])]
            scores[left] = min([0.0, *found.values()]) - 1 - np.arange(len(left))
        kept = np.flatnonzero(~np.isnan(scores))
        return _results(inp, kept, docnos[kept], scores[kept], self.depth)

    def _queries(self, names: list[str], frame: pd.DataFrame) -> Queries:
        """The queries of a frame's rows."""
        paragraphs = [self._paragraphs(qid, text) for qid, text in zip(frame["qid"], frame["query"], strict=True)]
        own = [None if pd.isna(each) else str(each) for each in frame["own"]] if "own" in frame.columns else None
        return queries_of(self.ranker.engine_.collection, names, paragraphs, own)

    def _paragraphs(self, qid: Any, text: Any) -> list[str]:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"query {qid!r} has no text: expected a column 'query' of non-empty strings")
        found = self._split(text)
        paragraphs = [part.text if isinstance(part, Paragraph) else part for part in found]
        if isinstance(found, str) or not paragraphs or not all(part.strip() for part in paragraphs):
            raise InputError(f"query {qid!r}: the splitter must make a list of non-empty paragraphs of it")
        return paragraphs


to_pyterrier = RankerTransformer


def _results(
    frame: pd.DataFrame, rows: Ints, docnos: Sequence[str] | NDArray[Any], scores: NDArray[np.floating], k: int
) -> pd.DataFrame:
    """A results frame: of each query the best ``k``, ordered by score, then docno, with ranks from 0.

    ``rows`` (n,) are rows of ``frame`` whose other columns go along; rows of one ``qid`` are one ranking, and the
    rankings keep the order of the frame.
    """
    names = pd.Series(list(docnos), dtype="str")
    result = frame.iloc[rows].reset_index(drop=True).assign(docno=names, score=np.asarray(scores, dtype=np.float64))
    query = pd.factorize(frame["qid"])[0][rows]
    result = result.iloc[np.lexsort((pd.factorize(names, sort=True)[0], -result["score"], query))]
    result["rank"] = result.groupby("qid", sort=False).cumcount()
    return result[result["rank"] < k].reset_index(drop=True)
