"""Judges who contradict each other: both judgements are kept, counted and shown; the latest of each judge counts."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

from support.decisions import decisions

from haybale.review import Review
from haybale.review.combined_judgements import are_contradictory

IDS = sorted(decisions())


def exported(workspace: Any, topic: int) -> dict[str, dict[str, str]]:
    return {row["doc_id"]: row for row in csv.DictReader(io.StringIO(workspace.export(topic, "csv")))}


def test_the_last_judge_does_not_win(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("notice periods of leases").id
    for doc_id in IDS[:6]:
        client.post(f"/api/topics/{topic}/judgements", json={"doc_id": doc_id, "grade": 1, "judge": "ann"})
    for doc_id in IDS[:2]:
        answer = client.post(
            f"/api/topics/{topic}/judgements", json={"doc_id": doc_id, "grade": 0, "judge": "bob"}
        ).json()
        assert answer["contradicts"] == {"ann": 1}
    summary = client.get(f"/api/topics/{topic}").json()
    assert (summary["n_relevant"], summary["n_judged"], summary["n_contradictory"]) == (6, 6, 2)
    progress = client.get(f"/api/topics/{topic}/progress").json()
    assert (progress["n_relevant"], progress["contradictory"]) == (6, IDS[:2])
    document = client.get(f"/api/documents/{IDS[0]}").json()
    assert document["judged"] == {"notice periods of leases": {"ann": 1, "bob": 0}}
    assert document["contradictory"] == ["notice periods of leases"]
    rows = exported(workspace, topic)
    assert [rows[doc_id]["contradictory"] for doc_id in IDS[:3]] == ["1", "1", "0"]
    assert [rows[doc_id]["label_included"] for doc_id in IDS[:3]] == ["1", "1", "1"]
    assert "ann: 1; bob: 0" in workspace.export(topic, "ris")
    for page in (f"/topics/{topic}", f"/topics/{topic}/progress", "/topics", f"/documents/{IDS[0]}"):
        assert "contradict" in client.get(page).text or "differently" in client.get(page).text, page
    assert "ann" in client.get(f"/topics/{topic}/review?doc={IDS[1]}").text
    workspace.judge(topic, IDS[0], 1, "bob")  # the judge settles it
    assert workspace.topic(topic).n_contradictory == 1


def test_a_judgement_between_two_equal_ones(workspace: Any) -> None:
    """With the rule that the last judge has settled it, the last is the one who judged last."""
    review = Review(workspace.engine, "leases", judgements=workspace.store, combine="latest")
    topic = review.topic.number
    for judge, grade in (("ann", 1), ("bob", 0), ("ann", 1)):
        workspace.judge(topic, IDS[0], grade, judge)
    assert workspace.store.n_rows() == 3
    assert exported(workspace, topic)[IDS[0]]["grade"] == "1"
    workspace.judge(topic, IDS[0], 1, "ann")  # repeats what was said last
    assert workspace.store.n_rows() == 3
    workspace.skip(topic, IDS[0], "ann")
    workspace.judge(topic, IDS[0], 1, "ann")  # is what undo() takes back, not the skip
    assert workspace.store.n_rows() == 5
    workspace.undo(topic, "ann")
    workspace.undo(topic, "ann")
    assert exported(workspace, topic)[IDS[0]]["judges"] == "bob: 0; ann: 1"


def test_everything_counts_the_latest_judgement_of_each_judge(workspace: Any) -> None:
    """Law: summary, progress, export and learner agree with an oracle, after random judgements, skips and undos."""
    from haybale.review import judged_topics

    rules = ("any", "latest", "majority", "maximum")
    for seed in range(12):
        rng, rule = random.Random(seed), rules[seed % 4]
        review = Review(workspace.engine, f"topic {seed}", judgements=workspace.store, combine=rule)
        topic, said = review.topic.number, list[tuple[str, str, int | None]]()
        for _ in range(rng.randint(5, 30)):
            judge, doc_id, grade = rng.choice(("ann", "bob", "")), rng.choice(IDS[:3]), rng.choice((0, 0, 1, 2))
            action = rng.random()
            if action < 0.7:
                workspace.judge(topic, doc_id, grade, judge)
                mine = [row for row in said if row[1] == doc_id and (row[2] is not None or row[0] == judge)]
                if not mine or mine[-1] != (judge, doc_id, grade):
                    said.append((judge, doc_id, grade))
            elif action < 0.85:
                workspace.skip(topic, doc_id, judge)
                said.append((judge, doc_id, None))
            elif any(row[0] == judge for row in said):
                workspace.undo(topic, judge)
                del said[max(place for place, row in enumerate(said) if row[0] == judge)]
        grades: dict[str, dict[str, int]] = {}
        for judge, doc_id, given in said:
            if given is not None:
                of_document = grades.setdefault(doc_id, {})
                of_document.pop(judge, None)
                of_document[judge] = given
        values = {doc_id: list(of_document.values()) for doc_id, of_document in grades.items()}
        expected = {doc_id: _combined(rule, of_document) for doc_id, of_document in values.items()}
        n_relevant = sum(grade > 0 for grade in expected.values())
        differing = sorted(doc_id for doc_id, of_document in grades.items() if are_contradictory(of_document))
        summary, progress = workspace.topic(topic), workspace.progress(topic, [])
        assert (summary.n_judged, summary.n_relevant) == (len(expected), n_relevant), seed
        assert (progress.n_judged, progress.n_relevant, progress.contradictory) == (
            len(expected),
            n_relevant,
            differing,
        )
        assert summary.n_contradictory == len(differing)
        rows = exported(workspace, topic)
        assert {doc_id: int(row["grade"]) for doc_id, row in rows.items()} == expected
        assert {doc_id for doc_id, row in rows.items() if row["contradictory"] == "1"} == set(differing)
        learned = review._sync().taught
        assert learned == expected
        _, qrels = judged_topics(workspace.store, topics=[f"topic {seed}"])
        if n_relevant:
            assert dict(zip(qrels["doc_id"], qrels["relevance"], strict=True)) == expected


def _combined(rule: str, grades: list[int]) -> int:
    if rule == "any":
        relevant = [grade for grade in grades if grade]
        return relevant[-1] if relevant else 0
    ordered = sorted(grades)
    return {"latest": grades[-1], "majority": ordered[len(ordered) // 2], "maximum": ordered[-1]}[rule]
