"""Explanations: shares sum to the score and name what each part of a ranker adds."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from support.ranker_cases import Fitted, every_ranker, queries_of
from support.topics import EVIDENCE

from haybale.rankers import Explanation, Share

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


@every_ranker
def test_shares_sum_to_the_score(fitted: Fitted, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    run = ranker.rank("dev")
    for query in run.query_ids[:3]:
        listed = run[query]
        for rank, (doc, score) in list(enumerate(listed, 1))[:: max(1, len(listed) // 5)]:
            found = ranker.explain(queries_of(ranker, query), doc)
            assert (found.query_id, found.doc_id, found.ranker) == (query, doc, str(ranker))
            assert found.score == pytest.approx(score, rel=1e-5, abs=1e-6)
            assert found.rank is not None
            assert listed[found.rank - 1][1] == pytest.approx(score, rel=1e-5, abs=1e-6)
            assert rank == found.rank or encoder == "lsa"
            assert found.shares or score == 0
            check_sums(found)
            json.dumps(found.to_dict())
            assert str(found).startswith(f"{doc}: rank {found.rank:,}, {ranker} ")
    found = ranker.explain({"q": "nothing like it"}, "blank")
    assert (found.score, found.rank, found.shares) == (None, None, [])
    assert str(found).startswith(f"blank: {ranker} does not find it")
    assert found.to_frame().empty


def check_sums(found: Explanation) -> None:
    """Check that the shares sum to the score, also in nested explanations."""
    assert found.score is not None
    size = max(abs(found.score), math.fsum(abs(share.share) for share in found.shares))  # shares may cancel out
    assert math.fsum(share.share for share in found.shares) == pytest.approx(found.score, abs=1e-6 * size)
    assert math.fsum(found.to_frame()["share"]) == pytest.approx(found.score, abs=1e-6 * size)
    for share in found.shares:
        if share.of is not None and share.of.score is not None:
            check_sums(share.of)


def test_evidence_in_explanations(fitted: Fitted) -> None:
    """The shares are those of each ranker's features and of training pairs, without the intercept."""
    ranker: Any = fitted(f"svr({EVIDENCE})", "tfidf")
    for doc, score in ranker.rank("dev")["dev1"][::9]:
        found = ranker.explain(queries_of(ranker, "dev1"), doc)
        shares = {share.what.partition(",")[0]: share for share in found.shares}
        for name, inner in zip(("bm25-doc", "knn", "knn-queries"), ranker.rankers_, strict=False):
            rank = inner.explain(queries_of(inner, "dev1"), doc).rank
            assert shares[name].what == f"{name}, " + (f"rank {rank}" if rank else "not found")
            assert (shares[name].of is None) == (rank is None)
        added = [shares[name].share for name in ("bm25-doc", "knn", "knn-queries")]
        assert np.abs(added).min() > 0
        ends = np.cumsum([0, 3, 3, 2])  # level, rank and first place; score and log score
        expected = [found.detail.features[a:b].sum() for a, b in itertools.pairwise(ends)]
        np.testing.assert_allclose(added, expected)
        assert score == pytest.approx(found.detail.prediction - found.detail.intercept, abs=1e-6)


def test_shares_of_shares() -> None:
    inner = Explanation("bm25", "q", "d", 4.0, 2, [Share("term dog", 3.0, "a dog"), Share("term cat", 1.0)])
    empty = Explanation("knn", "q", "d", None, None)
    outer = Explanation(
        "rrf", "q", "d", 0.5, 1, [Share("bm25", 0.3, of=inner), Share("knn", 0.2, of=empty)], ["a note"]
    )
    assert outer.to_frame()["path"].tolist() == ["bm25 / term dog", "bm25 / term cat", "knn"]
    assert outer.to_frame()["share"].tolist() == pytest.approx([0.225, 0.075, 0.2])
    assert outer.text(top=1).splitlines() == [
        "d: rank 1, rrf 0.5000",
        "  +0.3000  bm25",
        "        +3.0000  term dog",
        "                 a dog",
        "        +1.0000  1 more",
        "  +0.2000  1 more",
        "  a note",
    ]
    record = outer.to_dict()
    assert record["shares"][0]["of"]["shares"][0] == {"what": "term dog", "share": 3.0, "text": "a dog"}
    cancelling = Explanation("x", "q", "d", 0.0, 1, [Share("a", 1.0), Share("b", -1.0)])
    assert len(Explanation("y", "q", "d", 2.0, 1, [Share("x", 2.0, of=cancelling)]).to_frame()) == 1
