"""Hits as a frame: the candidates of queries by id, a row a candidate, in the library of the user's frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from haybale.errors import InputError
from haybale.frames import Frame, in_library
from haybale.retrieval.hits import Hits
from haybale.retrieval.passages import PassageTable


def hits_frame(index: PassageTable, query_ids: Sequence[str], hits: Hits, library: str = "pandas") -> Frame:
    """Columns ``query_id``, ``passage_id``, ``rank`` (from 1) and ``score``; a row a hit, padding left out.

    ``query_ids`` (m,) are those of the rows of ``hits`` (m, k); ``library`` is ``"pandas"``, ``"cudf"`` or
    ``"pyarrow"``.

    >>> from haybale import PassageIndex
    >>> index = PassageIndex(np.eye(2), passage_ids=["a:0", "b:0"])
    >>> hits_frame(index, ["q"], index.search(np.array([[0.5, 1.0]]), k=2))
      query_id passage_id  rank  score
    0        q        b:0     1    1.0
    1        q        a:0     2    0.5
    """
    if len(query_ids) != len(hits):
        raise InputError(f"{len(query_ids)} query ids for {len(hits)} rows of hits")
    rows, ranks, passages, scores = hits.to_numpy().flat()
    frame = pd.DataFrame(
        {
            "query_id": pd.Series(np.asarray(query_ids, dtype=object)[rows], dtype="str"),
            "passage_id": pd.Series(index.passage_ids.take(pa.array(passages)).to_pylist(), dtype="str"),
            "rank": ranks,
            "score": scores,
        }
    )
    return in_library(frame, library)
