"""A group of duplicates is read once: proposals, judgements, learning, progress, exports, and what judges decide."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haybale import Engine, InputError, Review
from haybale.review import JudgementStore, judged_topics
from haybale.review.topic_duplicates import DUPLICATES
from haybale.review.topic_ranking import TopicRanking

TOPICS = ("statins and stroke", "wheat and nitrogen", "leases of flats", "dogs on trains", "courts and appeals")


def records(n: int = 5) -> dict[str, dict[str, Any]]:
    """Return n works; the first three are in two databases, the last word of whose texts differs."""
    made = {}
    for number in range(n):
        about = TOPICS[number % len(TOPICS)]
        for database in ("embase", "pubmed")[: 2 if number < 3 else 1]:
            text = f"A study of {about} with {number} groups. " + f"It reports what happened to {about}. " * 6
            made[f"{database}:{number}"] = {
                "title": f"What is known of {about} by now",
                "text": text + (f"Copyright of {database}." if database == "embase" else ""),
                "year": 2000 + number,
                "file": f"{database}.ris",
            }
    return made


@pytest.fixture
def engine() -> Engine:
    return Engine(records(), language="english", encoder="tfidf(min_df=1)")


def read_all(review: Review, judge: str = "Ada") -> list[str]:
    order = []
    while documents := review.next():
        order.append(documents[0].doc_id)
        review.judge(order[-1], int("statins" in documents[0].title), judge)
    return order


def test_a_group_is_proposed_once_with_its_sources(engine: Engine) -> None:
    review = Review(engine, "statins for stroke")
    [first] = review.next()
    assert first.doc_id == "embase:0"  # the longest text
    assert first.duplicates == {"pubmed:0": "pubmed.ris"}
    assert first.to_dict()["duplicates"] == {"pubmed:0": "pubmed.ris"}
    assert sorted(read_all(review)) == ["embase:0", "embase:1", "embase:2", "embase:3", "embase:4"]
    progress = review.progress()
    assert (progress.n_documents, progress.n_duplicates, progress.n_judged, progress.n_relevant) == (5, 3, 5, 1)
    assert review.screening().n_documents == 5


def test_a_judgement_of_any_document_counts_for_the_group(engine: Engine) -> None:
    review = Review(engine, "statins for stroke")
    review.judge("pubmed:0", 1, "Ada")
    assert "embase:0" not in [document.doc_id for document in review.next(10)]
    review.judge("embase:0", 0, "Bob")
    assert review.progress().contradictory == ["embase:0"]
    assert review.progress().n_judged == 1
    assert review.judges.agreement()["documents"].tolist() == [1]
    assert review.undo("Bob") == "embase:0"
    assert review.progress().contradictory == []
    assert review.progress().n_relevant == 1


def test_the_learner_learns_a_group_once(engine: Engine) -> None:
    class Counting:
        def __init__(self, n: int) -> None:
            self.known: dict[int, float] = {}
            self.n = n

        def judge(self, document: int, grade: float) -> None:
            assert document not in self.known
            self.known[document] = grade

        def unjudge(self, document: int) -> None:
            del self.known[document]

        def scores(self) -> np.ndarray:
            return np.zeros(self.n)

        probabilities = disagreement = scores

        def best_passage(self, document: int) -> int:
            return document

    learners = []

    def make(engine: Engine, text: str | None, random_state: int) -> Counting:
        learners.append(Counting(engine.collection.n_documents))
        return learners[-1]

    review = Review(engine, "statins", learner=make)
    number = {doc_id: n for n, doc_id in enumerate(engine.collection.doc_ids.to_pylist())}
    review.judge("pubmed:0", 1, "Ada")
    review.judge("embase:0", 1, "Bob")
    review.judge("embase:3", 0, "Ada")
    assert learners[0].known == {number["embase:0"]: 1.0, number["embase:3"]: 0.0}
    review.duplicates.separate(["pubmed:0"])
    review.next()
    assert learners[0].known == {number[name]: g for name, g in {"embase:0": 1, "pubmed:0": 1, "embase:3": 0}.items()}
    review.duplicates.join(["pubmed:0", "embase:3"])
    review.next()
    assert learners[0].known == {number["embase:0"]: 1.0, number["pubmed:0"]: 0.0}  # what Ada said last
    assert len(learners) == 1


def test_regrouping_is_as_a_new_ranking(tmp_path: Path, engine: Engine) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        review = Review(engine, "statins for stroke", judgements=store)
        review.draw_sample(2)
        for document in review.next(4):
            review.judge(document.doc_id, int("statins" in document.title), "Ada")
        review.duplicates.separate(["pubmed:1"])
        review.duplicates.join(["pubmed:1", "embase:4"])
        again = Review(engine, topic=review.topic.name, judgements=store)
        for name in ("_graded", "_held_out", "_skipped"):
            assert (getattr(ranking(review), name) == getattr(ranking(again), name)).all()
        assert ranking(review).taught == ranking(again).taught
        assert ranking(review).state.rows == ranking(again).state.rows
        assert [one.doc_id for one in review.next(9)] == [one.doc_id for one in again.next(9)]
        assert review.progress().to_dict() == again.progress().to_dict()


def ranking(review: Review) -> TopicRanking:
    review.next()
    assert review._ranking is not None
    return review._ranking


def test_what_judges_decide_is_kept_for_the_topic(tmp_path: Path, engine: Engine) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        review, other = (Review(engine, text, judgements=store) for text in ("statins", "wheat"))
        review.judge("embase:0", 1)
        review.duplicates.separate(["pubmed:0"], judge="Ada")
        assert "pubmed:0" in [document.doc_id for document in review.next(9)]
        assert review.progress().n_duplicates == 2
        assert other.progress().n_duplicates == 3
        [event] = store.events(review.topic)
        assert (event.judge, event.value) == ("Ada", ["pubmed:0"])
        review.duplicates.join(["pubmed:0", "embase:0"])
        assert review.duplicates.groups().others("embase:0") == ["pubmed:0"]
        assert "pubmed:0" not in [document.doc_id for document in review.next(9)]
    with pytest.raises(InputError):
        Review(engine, "x").duplicates.separate(["embase:4"])
    for doc_ids in (["embase:0"], ["embase:0", "unknown"]):
        with pytest.raises(InputError):
            Review(engine, "x").duplicates.join(doc_ids)


def test_topics_of_earlier_versions_read_all_until_somebody_decides(tmp_path: Path, engine: Engine) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        topic = store.add_topic("statins", "statins", {"combine": "any"})
        assert DUPLICATES not in topic.settings
        review = Review(engine, topic="statins", judgements=store)
        assert (review.progress().n_documents, review.progress().n_duplicates) == (8, 0)
        assert not review.duplicates.are_read_once
        assert Review(engine, topic="statins", judgements=store, duplicates=True).progress().n_duplicates == 3
        review.duplicates.read_once(True, "Ada")
        assert review.duplicates.are_read_once
        assert (review.progress().n_documents, review.progress().n_duplicates) == (5, 3)
        review.duplicates.read_once(False, "Ada")
        assert review.progress().n_documents == 8


def test_exports_and_training_have_all_documents_of_a_group(tmp_path: Path, engine: Engine) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        review = Review(engine, "statins", judgements=store)
        review.judge("pubmed:0", 2, "Ada", note="yes")
        review.judge("embase:3", 0, "Ada")
        rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(review.export("csv")))}
        assert {name: (row["grade"], row["duplicate_of"], row["judges"]) for name, row in rows.items()} == {
            "pubmed:0": ("2", "", "Ada: 2"),
            "embase:0": ("2", "pubmed:0", "Ada: 2"),
            "embase:3": ("0", "", "Ada: 0"),
        }
        assert rows["embase:0"]["title"] == records()["embase:0"]["title"]
        assert rows["embase:0"]["notes"] == ""
        assert review.export("qrels").splitlines() == [
            "statins 0 pubmed:0 2",
            "statins 0 embase:3 0",
            "statins 0 embase:0 2",
        ]
        assert '"duplicate_of": "pubmed:0"' in review.export("ris")
        _, qrels = judged_topics(store, engine)
        assert dict(zip(qrels["doc_id"], qrels["relevance"], strict=True)) == {
            "pubmed:0": 2,
            "embase:0": 2,
            "embase:3": 0,
        }


def test_documents_that_come_later_join_a_judged_group(engine: Engine) -> None:
    review = Review(engine, "statins")
    review.judge("embase:0", 1)
    engine.add({"wos:0": records()["pubmed:0"] | {"file": "wos.ris"}})
    assert "wos:0" not in [document.doc_id for document in review.next(9)]
    assert review.progress().n_duplicates == 4
    engine.remove(["embase:0"])
    assert review.progress().removed == ["embase:0"]
    assert [document.doc_id for document in review.next(9) if document.doc_id.endswith(":0")] == ["pubmed:0"]
