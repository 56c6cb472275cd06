"""Batch scoring of frames: pairs of query and passage by id, a row a pair, in whatever library the frame is of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from haybale.ensemble.svr_ensemble import SVREnsemble, _checked
from haybale.errors import InputError
from haybale.frames import Frame, check_filled, numbers, to_pandas, with_column
from haybale.vectors import Matrix

_PAIRS = 2**18  # scored at once


def score_frame(
    ensemble: SVREnsemble,
    query_vectors: Matrix,
    query_ids: Sequence[str],
    frame: Frame,
    *,
    features: Sequence[str] | None = None,
) -> Frame:
    """The frame with a float32 column ``score``: what the ensemble gives each of its pairs of query and passage.

    It is of the same library, rows and columns; an old ``score`` is replaced. Memory does not grow with it.

    Parameters
    ----------
    ensemble : SVREnsemble
    query_vectors : (m, d)
    query_ids : (m,)
        Queries without a row cost nothing.
    frame : frame of any library
        Columns ``query_id`` and ``passage_id``, a row a pair in any order; a pair may stand in several rows.
    features : list of str, optional
        Names of the columns with pair features, for an ensemble that was trained with them.

    Raises
    ------
    InputError
        Unknown ids, which are named; a missing id; a query id given twice.

    Examples
    --------
    >>> from haybale import PassageIndex
    >>> index = PassageIndex(np.eye(3), passage_ids=["a", "b", "c"], doc_ids=["a", "b", "c"])
    >>> model = SVREnsemble(n_bags=2, k=2).fit(index, np.eye(3), [["a"], ["b"], ["c"]])
    >>> pairs = pd.DataFrame({"query_id": ["q2", "q1"], "passage_id": ["b", "b"], "page": [7, 8]})
    >>> list(score_frame(model, np.eye(3)[:2], ["q1", "q2"], pairs).columns)
    ['query_id', 'passage_id', 'page', 'score']
    """
    check_is_fitted(ensemble, "support_")
    vectors = _checked(query_vectors, ensemble.index_, ensemble.support_.device)
    if len(query_ids) != vectors.shape[0]:
        raise InputError(f"{len(query_ids)} query ids for {vectors.shape[0]} query vectors")
    pairs = to_pandas(frame, ["query_id", "passage_id", *(features or ())], "score_frame")
    check_filled(pairs, "score_frame")
    known, asked = pd.Index(query_ids), pd.Index(pairs["query_id"].astype(str))
    if not known.is_unique:
        raise InputError(f"query_ids: {known[known.duplicated()][0]!r} stands there twice")
    query = known.get_indexer(asked)
    if (query < 0).any():
        row = int((query < 0).argmax())
        raise InputError(f"score_frame: row {row} names query {asked[row]!r}, which is not among the query_ids")
    codes, distinct = pd.factorize(pairs["passage_id"].astype(str))
    passage = ensemble.index_.numbers(list(distinct))[codes]
    given = [numbers(pairs, name, "score_frame") for name in features or ()]
    values = ensemble._pair_features(np.stack(given, axis=1)[:, None] if given else None, passage[:, None])
    scores = np.empty(len(pairs), dtype=np.float32)
    order = np.argsort(query, kind="stable")
    for start in range(0, len(order), _PAIRS):
        rows = order[start : start + _PAIRS]
        some = query[rows], passage[rows], None if values is None else values[rows]
        scores[rows] = ensemble._of_pairs(vectors, *some, ensemble.support_.mean)
    return with_column(frame, "score", scores)
