"""A search that uses the judgements of a topic, too."""

from __future__ import annotations

import math

import numpy as np

from haybale.retrieval import Run
from haybale.retrieval.fusion import reciprocal_rank_fusion


def test_it_is_the_fusion_of_both_rankings(workspace) -> None:
    topic = workspace.create_topic("Which animals do damage?").id
    for doc_id in ("dog/1", "dog/5", "dog/9"):
        workspace.judge(topic, doc_id, 1)
    for doc_id in ("lease/0", "tax/2", "road/3"):
        workspace.judge(topic, doc_id, 0)
    text = "tenant does not pay the rent, damage"
    collection, scores = workspace._review(topic).scores()
    assert collection.doc_ids[int(scores.argmax())].as_py().startswith("dog")
    rows = np.zeros(len(scores), dtype=int)
    reviewed = Run.from_numbers(["query"], collection.doc_ids, rows, np.arange(len(scores)), scores)
    plain = workspace.ranker().rank({"query": text})
    expected = reciprocal_rank_fusion([plain, reviewed])["query"]
    found = workspace.search(text, 20, topic=topic)
    assert [(hit.doc_id, hit.score) for hit in found] == expected[:20]
    assert [hit.doc_id for hit in found] != [hit.doc_id for hit in workspace.search(text, 20)]
    for hit in found:
        why, snippets = workspace.explain(text, hit.doc_id, topic=topic)
        assert (why.rank, why.score, snippets) == (hit.rank, hit.score, hit.snippets)
        assert math.isclose(sum(share.share for share in why.shares), hit.score, rel_tol=1e-9)
        assert any(share.what.startswith("judgements of the topic") for share in why.shares)
        assert hit.snippets


def test_it_keeps_to_filters(workspace) -> None:
    topic = workspace.create_topic("dogs").id
    workspace.judge(topic, "dog/1", 1)
    found = workspace.search("damage", 24, "court = 'BGH'", topic=topic)
    assert len(found) == 12
    assert all(hit.metadata["court"] == "BGH" for hit in found)
    assert len(workspace.search("damage", 24, "year > 9999", topic=topic)) == 0


def test_the_page_ranks_with_the_judgements_of_its_topic(client, workspace) -> None:
    topic = workspace.create_topic("Which animals do damage?").id
    workspace.judge(topic, "dog/1", 1)
    query = {"q": "the appeal was allowed", "topic": str(topic), "learned": "1"}
    page = client.get("/", params=query).text
    first = workspace.search(query["q"], topic=topic)[0]
    assert "judgements, too" in page
    assert page.count(" checked>") == 1
    assert f">{first.title}</a>" in page
    why = client.get("/why", params=query | {"id": first.doc_id}).text
    assert "judgements of the topic, rank" in why
