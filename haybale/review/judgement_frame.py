"""Judgements as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from haybale.review.judgement_store import Judgement
from haybale.review.topic_ranking import TopicRanking

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("doc_id", "grade", "judge", "kind", "time", "seconds", "note", "passage_id", "rank", "model")


def judgement_frame(rows: Sequence[Judgement], ranking: TopicRanking) -> pd.DataFrame:
    """Return a row for each judgement, with its reasons for exclusion, and whether its document is there as judged."""
    import pandas as pd

    frame = pd.DataFrame([[getattr(row, name) for name in _COLUMNS] for row in rows], columns=list(_COLUMNS))
    frame["reasons"] = pd.Series([list(row.details.get("reason", ())) for row in rows], dtype=object)
    frame["status"] = list(map(ranking.status_of, rows))
    return frame.astype({"grade": int, "seconds": float, "rank": "Int64"})
