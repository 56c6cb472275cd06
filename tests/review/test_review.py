"""The review of a topic: the loop, the store behind it, several judges, samples, and an engine that changes."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.learners import CountingLearner
from support.topics import TWINS

from haybale import Engine, InputError, Review, UnknownNameError
from haybale.review import Judgement, JudgementStore, agreement, cohen_kappa, combined_grade
from haybale.review.topic_state import TopicState

TEXTS = {
    "lease-end": ["The lease ends with the month.", "Keys are returned when the lease ends."],
    "lease-rent": "The tenant of a lease pays the rent.",
    "parking": "A parking space may be let with a lease.",
    "pets": "A dog needs the consent of the landlord.",
    "noise": "Music must be quiet after ten.",
    "garden": "The garden belongs to the ground floor.",
    "cellar": "Each flat has a cellar.",
    "lift": "The lift is checked every year.",
}
RELEVANT = {"lease-end", "lease-rent", "parking"}
TEXT = "when does a lease end"


@pytest.fixture
def engine() -> Engine:
    return Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")


def review_of(engine: Engine, text: str | None = TEXT, **options: Any) -> Review:
    return Review(engine, text, learner=CountingLearner, **options)


def read_on(review: Review, n: int) -> list[str]:
    """Judge the next n documents as they are, and return their ids."""
    ids = []
    for _ in range(n):
        ids.append(review.next()[0].doc_id)
        review.judge(ids[-1], int(ids[-1] in RELEVANT))
    return ids


def test_documents_are_proposed_by_the_text_and_then_by_the_judgements(engine: Engine) -> None:
    review = review_of(engine)
    first = review.next()[0]
    assert first.doc_id == "lease-end"
    assert first.snippets[0].text == "Keys are returned when the lease ends."
    marked = [first.snippets[0].text[a:b] for a, b in first.snippets[0].highlights]
    assert marked == ["when", "lease", "ends"]
    assert (first.rank, first.model, first.near_duplicates) == (1, "learner", [])
    assert review.next()[0] == first  # nothing was judged
    assert len({document.doc_id for document in review.next(5)}) == 5
    read = read_on(review, len(TEXTS))
    assert set(read[:3]) == RELEVANT
    assert sorted(read) == sorted(TEXTS)
    assert review.next() == []
    progress = review.progress([])
    assert (progress.n_documents, progress.n_judged, progress.n_relevant, progress.n_since_relevant) == (8, 8, 3, 5)


def test_what_was_shown_is_kept_with_the_judgement(engine: Engine) -> None:
    review = review_of(engine)
    review.next()
    review.judge("lease-end", 2, judge="Ada", note="clear", seconds=1.5)
    review.judge("pets", 0)  # nobody proposed it
    one, two = review.store.judgements(review.topic)
    assert (one.passage, one.rank, one.model) == ("Keys are returned when the lease ends.", 1, "learner")
    assert (one.grade, one.judge, one.note, one.seconds) == (2, "Ada", "clear", 1.5)
    assert (two.passage, two.rank, two.model) == (None, None, None)
    frame = review.judgements()
    assert frame["doc_id"].tolist() == ["lease-end", "pets"]
    assert frame["grade"].tolist() == [2, 0]
    assert review.progress([]).n_known == 1
    assert review.screening().labels.tolist() == [True]
    assert review.screening().n_documents == 7  # the chosen document is left out


def test_a_reopened_review_goes_on_where_it_was(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with review_of(engine, judgements=path, topic="lease", random_state=7, explore_every=3) as review:
        read = read_on(review, 3)
        review.skip()
        following, progress = review.next(3), review.progress()
    for text in (None, TEXT):
        with review_of(engine, text, judgements=path, topic="lease") as again:
            assert again.settings == {"random_state": 7, "explore_every": 3, "combine": "any", "duplicates": True}
            assert again.next(3) == following
            assert again.progress() == progress
            assert again.judgements()["doc_id"].tolist() == read
            # A judgement of the document that the closed review had proposed counts as proposed.
    with review_of(engine, judgements=path, topic="lease") as again:
        again.judge(following[0].doc_id, 0)
        assert len(again.screening().labels) == 4


def test_the_default_learner_goes_on_where_it_was(topics: Any, tmp_path: Path) -> None:
    """After any judgements, skips and undos, a review that is opened again proposes the same, with the same numbers."""

    def named(document: Any) -> str:
        """Return all that is shown, with one name for the two documents that have the same text.

        On some processors their scores differ in the last bit, so either may be first after opening.
        """
        return repr(document.to_dict()).replace(*reversed(TWINS))

    engine, rng = Engine(topics), random.Random(0)
    path = tmp_path / "store.sqlite"
    split = topics.split("train")
    query = int(split.relevant()[0][0])
    relevant = {topics.doc_ids[int(d)].as_py() for q, d in zip(*split.relevant(), strict=True) if q == query}
    with Review(engine, topics.queries.texts([query])[0], judgements=path, topic="t", explore_every=4) as review:
        for step in range(30):
            found = review.next(3)
            if step % 10 == 9:
                with Review(engine, judgements=path, topic="t") as again:
                    assert list(map(named, again.next(3))) == list(map(named, found))
                    assert again.progress() == review.progress()
            action = rng.random()
            if action < 0.8 or step < 2:
                review.judge(found[0].doc_id, int(found[0].doc_id in relevant), rng.choice(["Ada", "Bob"]))
            elif action < 0.9:
                review.undo()
            else:
                review.skip()


JUDGING = """
import sys
from haybale import Engine, Review
review = Review(Engine.open(sys.argv[1]), "when does a lease end", judgements=sys.argv[2], topic="t")
while found := review.next():
    review.judge(found[0].doc_id, int("lease" in found[0].snippets[0].text), seconds=1.0)
    print(found[0].doc_id, flush=True)
"""


def test_a_review_that_is_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    texts = TEXTS | {f"n{i}": f"Flat {i} has {i} rooms and number{i}x." for i in range(60)}
    opened = Engine.build(texts, tmp_path / "engine", language="english", encoder="tfidf(min_df=1)")
    path, order = tmp_path / "store.sqlite", []
    with Review(opened, TEXT) as review:
        while found := review.next():
            order.append(found[0].doc_id)
            review.judge(order[-1], int("lease" in found[0].snippets[0].text))
    assert sorted(order) == sorted(texts)
    call = [sys.executable, "-c", JUDGING, str(tmp_path / "engine"), str(path)]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(9)]
    process.kill()
    acknowledged += process.communicate()[0].split()
    with Review(opened, judgements=path, topic="t") as review:
        judged = review.judgements()["doc_id"].tolist()
        assert len(acknowledged) <= len(judged) <= len(acknowledged) + 1
        assert judged == order[: len(judged)]
        assert [each.doc_id for each in review.next()] == order[len(judged) : len(judged) + 1]


def test_undo_and_skip(engine: Engine) -> None:
    review = review_of(engine)
    before = review.next(3)
    assert review.skip() == "lease-end"
    assert review.next()[0].doc_id == before[1].doc_id
    assert review.progress([]).n_skipped == 1
    assert [each.doc_id for each in review.next(8)][-1] == "lease-end"  # after all others
    assert review.undo() == "lease-end"
    assert review.next(3) == before
    read_on(review, 2)
    assert review.undo() == before[1].doc_id
    assert review.undo() == before[0].doc_id
    assert review.next(3) == before
    with pytest.raises(InputError, match="undo"):
        review.undo()
    assert len(review.store.judgements(review.topic)) == 6  # the store keeps all that was done


def test_labels_that_change_are_learned_again(engine: Engine) -> None:
    review = review_of(engine)
    review.judge("pets", 1)
    assert review.next()[0].doc_id != "pets"
    review.judge("pets", 0)
    assert review.progress([]).n_relevant == 0
    learner = review._sync().learner
    assert learner.calls == [("judge", 3, 1.0), ("unjudge", 3), ("judge", 3, 0.0)]
    review.undo()
    assert review.progress([]).n_relevant == 1


def test_several_judges(engine: Engine) -> None:
    expected = {"any": (1, 1, 1), "latest": (0, 1, 1), "majority": (1, 1, 1), "maximum": (1, 2, 1)}
    for rule, grades in expected.items():
        review = review_of(engine, combine=rule)
        review.judge("parking", 1, "Ada")
        review.judge("parking", 0, "Bob")
        for judge, grade in (("Ada", 1), ("Bob", 2), ("Cyd", 0), ("Cyd", 1)):
            review.judge("pets", grade, judge)
        review.judge("noise", 1, "Ada")
        found = dict(line.split()[2:] for line in review.export().splitlines())
        assert (int(found["parking"]), int(found["pets"]), int(found["noise"])) == grades
        assert review.progress([]).contradictory == ["parking"]
        table = review.judges.agreement().set_index(["judge", "other"])
        assert table.loc[("Ada", "Bob"), "documents"] == 2
        assert table.loc[("Ada", "Bob"), "agreement"] == 0.5
        assert review.undo("Bob") == "pets"
        assert {each.doc_id for each in review.next(8, judge="Bob")} == set(TEXTS) - {"parking"}
        assert {each.doc_id for each in review.next(8)} == set(TEXTS) - {"parking", "pets", "noise"}


def test_kappa_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import cohen_kappa_score

    rng = random.Random(0)
    for _ in range(20):
        one, two = ([rng.random() < 0.4 for _ in range(12)] for _ in range(2))
        assert cohen_kappa(one, two) == pytest.approx(cohen_kappa_score(one, two))
    assert cohen_kappa([True], [True]) is None
    assert cohen_kappa([], []) is None
    assert agreement({"a": {"Ada": 1}}).empty


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["judged", "skipped", "drawn", "reached", "undone"]),
                          st.integers(0, 2), st.sampled_from("AB"), st.booleans()), max_size=25))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_state_is_that_of_the_rows_that_count(actions: list[tuple[int, str, int, str, bool]]) -> None:
    """Slow and obvious: leave out the undone rows, and look at the others in order."""
    rows: list[Judgement] = []
    for number, (place, kind, grade, judge, ranked) in enumerate(actions, 1):
        row = Judgement(f"d{place}", kind, judge=judge, number=number)  # type: ignore[arg-type]
        if kind == "judged":
            row = Judgement(row.doc_id, kind, grade, judge, rank=1 if ranked else None, number=number)
        if kind == "undone":
            count = {each.undoes for each in rows}
            left = [each for each in rows if each.kind == "judged" and each.number not in count]
            if not left:
                continue
            row = Judgement(left[-1].doc_id, kind, judge=judge, undoes=left[-1].number, number=number)
        rows.append(row)
    undone = {row.undoes for row in rows}
    counting = [row for row in rows if row.kind != "undone" and row.number not in undone]
    for rule in ("any", "latest", "majority", "maximum"):
        state = TopicState(rule, rows)
        for doc_id in {row.doc_id for row in rows}:
            own = [row for row in counting if row.doc_id == doc_id]
            latest: dict[str, int] = {}
            for row in own:
                if row.grade is not None:
                    latest = {name: value for name, value in latest.items() if name != row.judge}
                    latest[row.judge] = row.grade
            assert state.grade(doc_id) == (combined_grade(latest, rule) if latest else None)
            proposed = [row for row in own if row.kind == "reached" or (row.grade is not None and row.rank)]
            drawn = any(row.kind == "drawn" for row in own)
            assert state.is_held_out(doc_id) == bool(drawn and latest and not proposed)
            assert state.is_known(doc_id) == bool(latest and not drawn and not proposed)
            assert state.is_skipped(doc_id) == (not latest and any(row.kind == "skipped" for row in own))
        order = {row.doc_id: None for row in counting if row.kind == "reached" or (row.grade is not None and row.rank)}
        graded = {row.doc_id for row in counting if row.grade is not None}
        assert state.reading_order() == [doc_id for doc_id in order if doc_id in graded]


def test_a_random_sample_comes_first_and_is_held_out(engine: Engine) -> None:
    review = review_of(engine)
    ranked = [each.doc_id for each in review_of(engine).next(8)]
    drawn = review.draw_sample(4)
    assert len(set(drawn)) == 4
    assert review_of(engine).draw_sample(4) == drawn
    assert "qbcb" in review.progress().advice
    for doc_id in drawn:
        following = review.next()[0]
        assert (following.doc_id, following.rank, following.model) == (doc_id, None, "random sample")
        review.judge(doc_id, int(doc_id in RELEVANT))
    screening = review.screening()
    assert screening.n_documents == 8
    assert screening.n_read == 0
    assert screening.held_out.sum() == len(RELEVANT & set(drawn))
    assert review._sync().learner.calls == []  # it has learned nothing
    following = review.next()[0]
    assert following.doc_id == next(doc_id for doc_id in ranked if doc_id not in drawn) or screening.n_read < 4
    while found := review.next():
        assert found[0].doc_id not in drawn
        review.judge(found[0].doc_id, int(found[0].doc_id in RELEVANT))
    screening = review.screening()
    assert screening.n_read == 8
    assert screening.sampled.sum() == 4
    assert len(screening.held_out) == 0
    assert screening.labels.sum() == 3
    progress = review.progress()
    assert (progress.n_drawn, progress.n_drawn_judged) == (4, 4)
    assert "qbcb" in progress.advice
    assert all(advice.stop for advice in progress.advice.values())
    with pytest.raises(InputError, match="at most 4"):
        review.draw_sample(5)


def test_explored_documents_come_at_their_turns(engine: Engine) -> None:
    review = review_of(engine, explore_every=2)
    models = []
    for _ in range(6):
        document = review.next()[0]
        models.append(document.model)
        review.judge(document.doc_id, 0)
    assert models == ["learner", "learner, explored"] * 3
    assert len(review.screening().labels) == 6


def test_known_documents_and_old_judgements(engine: Engine, tmp_path: Path) -> None:
    review = review_of(engine, None, known=["lease-rent"], topic="by example")
    assert review.next()[0].doc_id in RELEVANT - {"lease-rent"}
    assert review.progress([]).n_known == 1
    with pytest.raises(InputError, match="unknown"):
        review_of(engine, known=["lease-rent", "nowhere"])
    with pytest.raises(InputError):
        review_of(engine, known="lease-rent")
    qrels = tmp_path / "old.txt"
    qrels.write_text("q1 0 pets 0\nq1 0 parking 2\nq1 0 lease-rent 0\nq2 0 lift 1\n")
    with pytest.raises(InputError, match="q1"):
        review.add_judgements(qrels)
    assert review.add_judgements(qrels, query="q1") == 2  # lease-rent is judged already
    found = {line.split()[2]: line.split()[3] for line in review.export().splitlines()}
    assert found == {"lease-rent": "1", "pets": "0", "parking": "2"}
    frame = pd.DataFrame({"query_id": ["q"] * 2, "doc_id": ["lift", "unknown"], "relevance": [0, 1]})
    with pytest.raises(InputError, match="unknown"):
        review.add_judgements(frame)
    assert review.add_judgements({"lift": 0}) == 1
    with pytest.raises(UnknownNameError):
        review.add_judgements(qrels, query="q3")


def test_a_topic_needs_something_to_look_for(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for text, known in ((None, ()), ("  ", ()), (None, {"pets": 0})):
        with pytest.raises(InputError, match="text"):
            review_of(engine, text, known=known, topic="empty", judgements=path)
    with JudgementStore(path) as store:
        assert store.topics() == []
    with review_of(engine, judgements=path, topic="one"), pytest.raises(InputError, match=TEXT):
        review_of(engine, "another text", judgements=path, topic="one")


def test_no_relevant_document_at_all_and_everything_relevant(engine: Engine) -> None:
    for grade in (0, 1):
        review = review_of(engine)
        for _ in TEXTS:
            review.judge(review.next()[0].doc_id, grade)
            progress = review.progress()
            assert progress.n_relevant == grade * progress.n_judged
        assert review.next() == []
        assert all(advice.stop for advice in progress.advice.values())
        with pytest.raises(InputError, match="skip"):
            review.skip()


def test_a_document_that_is_removed_replaced_or_added(engine: Engine) -> None:
    review = review_of(engine)
    read_on(review, 3)
    engine.remove(["lease-end"])
    engine.replace({"lease-rent": "Cats purr.", "new": "A lease may end early."})
    progress = review.progress()
    assert (progress.n_documents, progress.n_judged, progress.n_relevant) == (8, 3, 3)
    assert (progress.removed, progress.replaced) == (["lease-end"], ["lease-rent"])
    assert review.next()[0].doc_id == "new"
    assert review.screening().n_read == 2
    assert "lease-end" in review.export()
    with pytest.raises(InputError, match="lease-end"):
        review.judge("lease-end", 1)
    review.judge("lease-rent", 0)
    assert review.progress([]).replaced == []
    engine.replace({"lease-end": TEXTS["lease-end"]})  # it is there again, with its judgement
    assert review.progress([]).removed == []
    assert "lease-end" not in {each.doc_id for each in review.next(9)}


def test_the_default_learner_goes_on_whatever_happens_to_judgements_and_documents(
    engine: Engine, tmp_path: Path
) -> None:
    """After each change the review proposes what a review of the same judgements proposes that begins anew."""
    for grade in (0, 1):
        with Review(engine, TEXT) as review:
            for _ in TEXTS:
                review.judge(review.next()[0].doc_id, grade)
            assert review.next() == []
    review = Review(engine, TEXT, judgements=tmp_path / "store.sqlite", topic="leases")
    steps: list[Callable[[], object]] = [
        lambda: read_on(review, 2),
        lambda: review.judge("pets", 1, "Ada"),
        lambda: review.judge("pets", 0, "Bob"),  # they contradict each other
        lambda: review.judge("lease-rent", 0),
        lambda: review.judge("lease-rent", 2),  # a label that changes
        review.undo,
        lambda: engine.remove(["pets"]),
        lambda: engine.replace({"lease-rent": "Cats purr.", "new": "A lease may end early."}),
        lambda: [review.judge(doc_id, 0) for doc_id in ("lease-end", "parking", "lease-rent")],  # none is relevant now
    ]
    for step in steps:
        step()
        found = review.next(9)
        with Review(engine, judgements=tmp_path / "store.sqlite", topic="leases") as again:
            assert [each.doc_id for each in again.next(9)] == [each.doc_id for each in found]
        assert all(0 <= each.probability <= 1 for each in found)
    review.close()


@pytest.mark.parametrize("grade", [-1, 0.5, "1", None, float("nan"), 2**40])
def test_grades_are_whole_numbers(engine: Engine, grade: Any) -> None:
    review = review_of(engine)
    with pytest.raises(InputError, match="grade"):
        review.judge("pets", grade)
    assert review.judgements().empty


def test_unknown_ids_and_names_are_refused(engine: Engine) -> None:
    review = review_of(engine)
    for wrong in (lambda: review.judge("nowhere", 1), lambda: review.skip("nowhere"), lambda: review.next(0),
                  lambda: review.judge("pets", 1, seconds=-1), lambda: review.export("pdf"),
                  lambda: review_of(engine, combine="vote"), lambda: review.progress(["quaint"])):  # fmt: skip
        with pytest.raises(InputError):
            wrong()
    assert review.store.judgements(review.topic) == []


def test_exports_are_read_again(engine: Engine, tmp_path: Path) -> None:
    from haybale.collections.qrels import read_qrels
    from haybale.review import read_records

    review = review_of(engine, topic="end of a\tlease")
    review.next()
    review.judge("lease-end", 2, "Ada", note="yes; indeed")
    review.judge("pets", 0, "Bob")
    for format in ("qrels", "beir"):
        review.export(format, tmp_path / format)
        path = tmp_path / format if format == "qrels" else tmp_path / format / "qrels" / "train.tsv"
        rows = [row[1:] for row in read_qrels(path)]
        assert rows == [("end-of-a-lease", "lease-end", 2), ("end-of-a-lease", "pets", 0)]
    table = pd.read_csv(__import__("io").StringIO(review.export("csv")), keep_default_na=False)
    assert table["label_included"].tolist() == [1, 0]
    assert table["judges"].tolist() == ["Ada: 2", "Bob: 0"]
    assert table["notes"].tolist() == ["yes; indeed", ""]
    review.export("ris", tmp_path / "records.ris")
    records = read_records(tmp_path / "records.ris")
    assert records.collection.n_documents == 2
    assert records.relevant == ["lease-end"]
    engine.add({"two words": "A lease."})
    review.judge("two words", 1)
    with pytest.raises(InputError, match="beir"):
        review.export("qrels")
    assert "two words" in review.export("beir")


def test_reviews_of_one_topic_learn_from_each_other(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with review_of(engine, judgements=path) as one, review_of(engine, judgements=path) as two:
        assert one.next() == two.next()
        one.judge("lease-end", 1)
        assert one.next() == two.next()
        two.judge("lease-rent", 1)
        assert one.progress() == two.progress()


def test_threads_may_judge_at_once(engine: Engine) -> None:
    review = review_of(engine)

    def judge(name: str) -> None:
        while found := review.next(judge=name):
            review.judge(found[0].doc_id, 1, name)

    threads = [threading.Thread(target=judge, args=[name]) for name in "ABC"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(review.judgements()) == 3 * len(TEXTS)
    assert review.judges.agreement()["agreement"].tolist() == [1.0] * 3


def test_near_duplicates_are_listed_with_the_document(engine: Engine) -> None:
    text = "The tenant of a lease pays the rent on the first of the month, in advance and without deduction"
    engine.add({"copy": text + ".", "copy-2": text.upper(), "other": text + ", by bank transfer or in cash or in kind"})
    review = review_of(engine, near_duplicates=0.9)
    while (document := review.next()[0]).doc_id not in ("copy", "copy-2"):
        review.judge(document.doc_id, 0)
    assert {document.doc_id, *document.near_duplicates} == {"copy", "copy-2"}
    review.judge(document.near_duplicates[0], 0)
    assert review.next()[0].near_duplicates == []
