"""Training queries whose relevant documents are new: to what was learned from the other queries, they are unknown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from haybale.errors import InputError


def novel_queries(relevant: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Queries with at least one relevant document and none that another query of the list has.

    Parameters
    ----------
    relevant : (m,) the ids of each query's relevant documents.

    Returns
    -------
    (m,) bool.

    Raises
    ------
    InputError
        For a string in place of a sequence of ids.

    >>> novel_queries([["a", "b"], ["b"], ["c", "c"], []]).tolist()
    [False, False, True, False]
    """
    if any(isinstance(ids, str) for ids in relevant):
        raise InputError("relevant must hold a sequence of document ids for each query, found a string")
    counts = np.array([len(ids) for ids in relevant], dtype=np.int64)
    query = np.repeat(np.arange(len(counts)), counts)
    ids = pa.array([document for ids in relevant for document in ids], type=pa.large_string()).dictionary_encode()
    n = max(1, len(ids.dictionary))
    # An id that a query has twice is no other query's.
    query, document = np.divmod(np.unique(query * n + ids.indices.to_numpy().astype(np.int64)), n)
    shared = np.bincount(document, minlength=n)[document] > 1
    novel: NDArray[np.bool_] = counts > 0
    novel[query[shared]] = False
    return novel
