"""Two judges for a document: who gets what, what they do not see, what counts, conflicts and agreement."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from support.learners import CountingLearner

from haybale import Engine, InputError, Review
from haybale.review import Judgement, JudgementStore, ScreeningPlan, agreement_over_time, judged_topics, pabak
from haybale.review.combined_judgements import are_contradictory, combined_grade
from haybale.review.judgement_store import RESOLUTION
from haybale.review.topic_state import TopicState

TEXTS = {f"d{number}": [f"Dog number {number} barks.", f"Cat number {number} purrs."] for number in range(12)}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")


def double_review(engine: Engine, share: float = 1.0, **options: Any) -> Review:
    review = Review(engine, "which dog barks", learner=CountingLearner, **options)
    review.judges.screen_double(share)
    return review


# Who needs two.


def test_the_share_is_drawn_by_id_and_seed() -> None:
    ids = [f"record {number}" for number in range(20_000)]
    small, large = (ScreeningPlan(share, seed=3) for share in (0.2, 0.5))
    chosen = set(filter(small.needs_two, ids))
    assert abs(len(chosen) / len(ids) - 0.2) < 0.01
    assert chosen < set(filter(large.needs_two, ids))
    assert chosen != set(filter(ScreeningPlan(0.2, seed=4).needs_two, ids))
    assert all(map(ScreeningPlan(1.0).needs_two, ids[:50]))
    assert not any(map(ScreeningPlan(0.0).needs_two, ids[:50]))
    for wrong in ({"double_share": 1.1}, {"double_share": -0.1}, {"seed": -1}):
        with pytest.raises(InputError):
            ScreeningPlan(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_three_judges_judge_as_many_times_as_the_plan_says(engine: Engine, share: float) -> None:
    review, rng = double_review(engine, share), random.Random(0)
    open_judges = ["Ada", "Bob", "Cyd"]
    while open_judges:
        judge = rng.choice(open_judges)
        documents = review.next(judge=judge) if share else review.next()
        if not documents:
            open_judges.remove(judge)
        else:
            assert judge not in review._sync().state.grades(documents[0].doc_id)
            review.judge(documents[0].doc_id, rng.randint(0, 1), judge)
    counts = review.judgements().groupby("doc_id")["judge"].nunique().to_dict()
    assert counts == {doc_id: 1 + review.judges.plan.needs_two(doc_id) for doc_id in TEXTS}
    assert review.progress([]).n_waiting == 0


def test_the_plan_is_kept_and_others_follow_it(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    options: dict[str, Any] = {"judgements": path, "learner": CountingLearner}
    with Review(engine, "dogs", **options) as one, Review(engine, "dogs", **options) as two:
        one.judge("d1", 1, "Ada")
        assert two.judges.plan == ScreeningPlan()
        one.judges.screen_double(0.7, seed=9, judge="Eve")
        assert two.judges.plan == ScreeningPlan(0.7, 9)
        one.judges.screen_double(judge="Eve")
        assert two.next(judge="Bob")[0].doc_id == "d1"  # was judged before
        assert [event.judge for event in one.store.events(one.topic)] == ["Eve", "Eve"]
        with pytest.raises(InputError, match="name"):
            two.judge("d1", 1)
        assert two.next()[0].doc_id != "d1"
    with Review(engine, "cats", **options, combine="latest") as last_wins:
        with pytest.raises(InputError, match="latest"):
            last_wins.judges.screen_double()
        assert not last_wins.judges.plan.is_double


def test_documents_known_from_the_start_wait_for_nobody(engine: Engine) -> None:
    review = double_review(engine, known=["d3"])
    assert review.progress([]).n_waiting == 0
    assert "d3" not in {document.doc_id for document in review.next(20, judge="Ada")}


# What the second judge sees.


@pytest.mark.parametrize("text", ["which dog barks", "purring cats"])
def test_what_the_second_judge_gets_does_not_depend_on_the_first_grades(engine: Engine, text: str) -> None:
    order = [f"d{number}" for number in (7, 2, 9, 4, 11)]
    shown = []
    for grades in ((0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (0, 1, 0, 1, 1)):
        review = Review(engine, text, learner=CountingLearner)
        review.judges.screen_double()
        proposed = {document.doc_id: document for document in review.next(20, judge="Ada")}
        for doc_id, grade in zip(order, grades, strict=True):
            review.judge(doc_id, grade, "Ada")
        documents = review.next(5, judge="Bob")
        assert [document.doc_id for document in documents] == order
        for document in documents:
            first = proposed[document.doc_id]
            assert document.probability is None
            assert (document.rank, document.model) == (first.rank, first.model)
            assert document.snippets[0].text == first.snippets[0].text
            plain = replace(document, snippets=[replace(snippet, highlights=[]) for snippet in document.snippets])
            shown.append((document.doc_id, repr(plain)))
        collection, scores = review.scores(seen_by="Bob")
        hidden = {str(collection.doc_ids[number].as_py()) for number in np.flatnonzero(np.isnan(scores))}
        assert hidden == set(order)
        assert not np.isnan(review.scores(seen_by="Ada")[1]).any()
        assert review.judgements(seen_by="Bob").empty
        assert len(review.judgements(seen_by="Ada")) == len(review.judgements()) == 5
        assert review.export("csv", seen_by="Bob").count("\n") == 1
        assert review.progress([]).n_relevant == 0
    assert len(set(shown)) == len(order)
    # With one waiting document, not even the marked terms differ.
    for grade in (0, 1):
        review = double_review(engine)
        review.judge("d5", grade, "Ada")
        shown.append(("one", repr(review.next(judge="Bob"))))
    assert len(set(shown[-2:])) == 1


def test_a_document_that_is_put_off_comes_last(engine: Engine) -> None:
    review = double_review(engine)
    first = review.next(judge="Ada")[0].doc_id
    review.judge(first, 1, "Ada")
    assert review.next(judge="Bob")[0].doc_id == first
    review.skip(first, "Bob")
    assert [document.doc_id for document in review.next(20, judge="Bob")][-1] == first
    assert review.next(judge="Cyd")[0].doc_id == first
    review.judge(first, 1, "Bob")
    assert first not in {document.doc_id for document in review.next(20, judge="Cyd")}


def test_a_document_is_read_when_both_have_judged_it(engine: Engine) -> None:
    review = double_review(engine)
    read = []
    for _ in range(4):
        read.append(review.next()[0].doc_id)
        review.judge(read[-1], 1, "Ada")
    assert (review.screening().n_read, review.progress([]).n_judged, review.progress([]).n_waiting) == (0, 4, 4)
    review.judge(read[1], 0, "Bob")
    review.judge(read[2], 1, "Bob")
    progress = review.progress(["consecutive(1)"])
    assert review.screening().labels.tolist() == [True, True]  # a conflict counts as relevant
    assert review.screening().n_documents == len(TEXTS)
    assert (progress.n_relevant, progress.n_waiting, progress.contradictory) == (2, 2, [read[1]])
    assert review.undo("Bob") == read[2]
    assert review.screening().labels.tolist() == [True]
    review.judges.screen_double(0)  # back to one judge
    assert review.screening().n_read == 4


def test_a_sample_certifies_nothing_until_both_have_judged_it(engine: Engine) -> None:
    review = double_review(engine)
    drawn = review.draw_sample(3)
    assert [document.doc_id for document in review.next(3, judge="Ada")] == drawn
    for judge in ("Ada", "Bob"):
        assert review.screening().sample_gap
        assert len(review.screening().held_out) == 0
        for _ in drawn:
            [document] = review.next(judge=judge)
            assert document.doc_id in drawn
            review.judge(document.doc_id, 0, judge)
    assert review.screening().sample_gap == ""
    assert len(review.screening().held_out) == 3


# Conflicts and resolutions.


def test_a_resolution_counts_and_both_judgements_stay(engine: Engine) -> None:
    review = double_review(engine)
    for doc_id, grades in {"d0": (1, 0), "d1": (0, 0), "d2": (0, 1), "d3": (1, 1)}.items():
        for judge, grade in zip(("Ada", "Bob"), grades, strict=True):
            review.judge(doc_id, grade, judge, note=f"{judge} on {doc_id}")
    review.judge("d4", 1, "Ada")
    judges = review.judges
    assert [conflict.doc_id for conflict in judges.conflicts()] == ["d0", "d2"]
    assert [(row["judge"], row["note"]) for row in judges.conflicts()[0].to_dict()["judgements"]] == [
        ("Ada", "Ada on d0"),
        ("Bob", "Bob on d0"),
    ]
    wrong: list[tuple[Any, ...]] = [
        ("d1", 1, "Cyd"),  # they agree
        ("d4", 1, "Cyd"),  # one has judged
        ("d5", 1, "Cyd"),  # nobody has
        ("d0", 1, ""),
        ("d0", 1, "Ada"),  # alone
        ("d0", 1, "Ada", None, "Cyd"),
        ("d0", 1, "Cyd", None, "Ada"),
        ("d0", -1, "Cyd"),
        ("unknown", 1, "Cyd"),
    ]
    n_rows = review.store.n_rows()
    for arguments in wrong:
        with pytest.raises(InputError):
            judges.resolve(*arguments)
    assert review.store.n_rows() == n_rows
    learner: CountingLearner = review._sync().learner  # type: ignore[assignment]
    judges.resolve("d0", 0, "Cyd", note="no bark")
    judges.resolve("d2", 0, "Bob", together_with="Ada")
    with pytest.raises(InputError, match="resolved"):
        judges.resolve("d2", 1, "Cyd")
    assert judges.conflicts() == []
    assert [conflict.resolved_by for conflict in judges.conflicts(resolved=True)] == [["Cyd"], ["Bob", "Ada"]]
    assert (learner.judged[0], learner.judged[2], learner.judged[3]) == (0.0, 0.0, 1.0)
    progress = review.progress([])
    assert (progress.n_relevant, progress.contradictory, progress.resolved) == (1, [], ["d0", "d2"])
    review.judge("d0", 1, "Bob")  # the last judge does not win, and no resolution is lost
    assert review._sync().state.grade("d0") == 0
    assert review.undo("Bob") == "d0"
    rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(review.export("csv")))}
    assert [rows["d0"][name] for name in ("grade", "judges", "contradictory", "resolution", "resolved_by")] == [
        "0", "Ada: 1; Bob: 0", "1", "0", "Cyd",
    ]  # fmt: skip
    assert "no bark" in rows["d0"]["notes"]
    assert (rows["d2"]["resolved_by"], rows["d3"]["resolution"]) == ("Bob and Ada", "")
    assert '"resolution": {"by": ["Cyd"]}' in review.export("ris")
    assert "which-dog-barks 0 d0 0\n" in review.export("qrels")
    frame = review.judgements()
    assert frame["is_resolution"].sum() == 2
    assert len(frame) == 11
    assert review.undo() != "d2"  # takes a judgement back, not a resolution
    judges.undo_resolution("d2", "Ada")
    assert [conflict.doc_id for conflict in judges.conflicts()] == ["d2"]
    assert review._sync().state.grade("d2") == 1
    with pytest.raises(InputError, match="none"):
        judges.undo_resolution("d2")
    judges.resolve("d2", 1, "Cyd")
    assert review._sync().state.grade("d2") == 1


def test_a_resolution_is_about_a_text(tmp_path: Path) -> None:
    engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    review = double_review(engine)
    review.judge("a", 1, "Ada")
    review.judge("a", 0, "Bob")
    review.judges.resolve("a", 0, "Cyd")
    engine.replace({"a": "Dogs howl."})
    assert review.progress([]).replaced == ["a"]
    review.judge("a", 1, "Ada")
    assert review._sync().state.waiting == {"a": "Ada"}
    assert review.next(judge="Bob")[0].doc_id == "a"
    review.judge("a", 1, "Bob")
    assert review.judges.conflicts(resolved=True) == []
    assert review._sync().taught == {"a": 1}
    engine.replace({"c": "Dogs howl."}, remove=["a"])  # the text has another id
    assert review._sync().taught == {"c": 1}


def test_rankers_learn_from_what_both_have_judged_and_from_resolutions(engine: Engine) -> None:
    review = double_review(engine)
    for doc_id, grades in {"d0": (1, 0), "d1": (1, 1), "d2": (1,)}.items():
        for judge, grade in zip(("Ada", "Bob"), grades, strict=False):
            review.judge(doc_id, grade, judge)
    review.judges.resolve("d0", 0, "Cyd")
    _, qrels = judged_topics(review.store, engine)
    assert dict(zip(qrels["doc_id"], qrels["relevance"], strict=True)) == {"d0": 0, "d1": 1}


@pytest.mark.parametrize("seed", range(30))
def test_the_state_is_that_of_an_oracle(seed: int) -> None:
    """Slow and obvious: leave out the undone rows, and look at the others in order."""
    rng, rows, undone = random.Random(seed), list[Judgement](), set[int]()
    plan, rule = ScreeningPlan(rng.choice((0.0, 0.5, 1.0)), seed), rng.choice(("any", "majority", "maximum"))
    for number in range(1, rng.randint(2, 40)):
        doc_id, judge, action = f"d{rng.randint(0, 3)}", rng.choice("ABC"), rng.random()
        graded = [row for row in rows if row.grade is not None and row.number not in undone]
        row = Judgement(doc_id, "judged", rng.randint(0, 2), judge, document=rng.choice("xxxy"), number=number)
        if action < 0.1:
            row = replace(row, kind="known", judge="")
        elif action < 0.3:
            row = replace(row, details={RESOLUTION: {"by": [judge]}})
        elif action < 0.5 and graded:
            last = rng.choice(graded)
            row = Judgement(last.doc_id, "undone", judge=judge, undoes=last.number, number=number)
            undone.add(last.number)
        rows.append(row)
    state, late = TopicState(rule, rows, plan), TopicState(rule, rows)
    late.follow(plan)
    counting = [row for row in rows if row.kind != "undone" and row.number not in undone]
    for doc_id in {row.doc_id for row in rows}:
        of_document = [row for row in counting if row.doc_id == doc_id]
        judged = [row for row in of_document if not row.is_resolution]
        latest = {row.judge: row for row in sorted(judged, key=lambda row: row.number)}
        in_order = sorted(latest.values(), key=lambda row: row.number)
        reviewed = [row for row in in_order if row.kind == "judged"]
        judges = {row.judge for row in reviewed if row.document == reviewed[-1].document}
        is_known = any(row.kind == "known" for row in of_document)
        waits = plan.needs_two(doc_id) and len(judges) == 1 and not is_known
        assert (doc_id in state.waiting) == (doc_id in late.waiting) == waits
        assert state.is_read(doc_id) == (bool(judged) and not waits)
        resolutions = [row for row in of_document if row.is_resolution]
        resolution = resolutions[-1] if resolutions else None
        if resolution and any(
            row.document != resolution.document for row in of_document if row.number > resolution.number
        ):
            resolution = None
        assert state.resolution(doc_id) == resolution
        grades = {row.judge: row.grade or 0 for row in in_order}
        assert list(state.grades(doc_id).items()) == list(grades.items())
        expected = resolution.grade if resolution else combined_grade(grades, rule) if grades else None
        assert state.grade(doc_id) == (expected if grades else None)
        assert state.is_conflict(doc_id) == (are_contradictory(grades) and not waits and resolution is None)
        for judge in "ABC":
            seen = state.seen_by(judge)
            hidden = {name for name in grades if waits and judge not in judges and name != judge}
            assert set(seen.grades(doc_id)) == set(grades) - hidden
            assert {row.judge for row in state.hidden_rows(doc_id, judge) if not row.is_resolution} == hidden


# Agreement.


def test_agreement_is_that_of_the_judgements_before_both_saw_them(engine: Engine) -> None:
    review = double_review(engine)
    ada, bob = (1, 0, 1, 0, 0, 0, 0, 1), (1, 0, 0, 0, 0, 0, 1, 1)
    for number, (one, two) in enumerate(zip(ada, bob, strict=True)):
        review.judge(f"d{number}", 1 - one, "Ada")
        review.judge(f"d{number}", one, "Ada")  # before the other has judged
        review.judge(f"d{number}", two, "Bob")
    review.judge("d9", 1, "Ada")
    review.judge("d2", 1, "Bob")  # after both have seen it: they agree now, and did not
    assert [conflict.doc_id for conflict in review.judges.conflicts()] == ["d6"]
    review.judges.resolve("d6", 1, "Ada", together_with="Bob")
    [pair] = review.judges.agreement().to_dict("records")
    assert (pair["documents"], pair["only_judge"], pair["only_other"], pair["agreement"]) == (8, 1, 0, 0.75)
    assert pair["kappa"] == pytest.approx(cohen_kappa_score(ada, bob))
    assert pair["pabak"] == pytest.approx(0.5)
    review.judges.screen_double(0)
    [pair] = review.judges.agreement().to_dict("records")
    assert pair["agreement"] == 0.875  # of one judge for each document, the latest grades


def test_agreement_over_time_is_that_of_the_latest_documents() -> None:
    rng, judgements = random.Random(1), dict[str, dict[str, Judgement]]()
    numbers = rng.sample(range(1000), 80)
    for position in range(40):
        rows = {}
        for judge in "AB" if position % 5 else "ABC":
            number = numbers.pop() if numbers else 1000 + 3 * position + "ABC".index(judge)
            rows[judge] = Judgement("d", "judged", int(rng.random() < 0.4), judge, time=str(number), number=number)
        judgements[f"d{position}"] = rows
    table = agreement_over_time(judgements, window=7)
    assert set(table.groupby(["judge", "other"]).size().items()) == {(("A", "B"), 40), (("A", "C"), 8), (("B", "C"), 8)}
    for (judge, other), part in table.groupby(["judge", "other"]):
        both = [(rows[judge], rows[other]) for rows in judgements.values() if other in rows]
        both.sort(key=lambda pair: max(pair[0].number, pair[1].number))
        for n, row in enumerate(part.to_dict("records"), 1):
            latest = both[max(0, n - 7) : n]
            one, two = ([bool(pair[side].grade) for pair in latest] for side in (0, 1))
            assert (row["documents"], row["time"]) == (n, str(max(pair.number for pair in both[n - 1])))
            assert row["agreement"] == pytest.approx(np.mean(np.equal(one, two)))
            assert row["pabak"] == pytest.approx(pabak(one, two))
            if len({*one, *two}) == 1:
                assert np.isnan(row["kappa"])
            else:
                assert row["kappa"] == pytest.approx(cohen_kappa_score(one, two))
    assert agreement_over_time({}).empty
    assert pabak([], []) is None


def test_the_events_of_a_file_are_read_again(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with double_review(engine, judgements=path) as review:
        review.judge("d0", 1, "Ada")
        review.judge("d0", 0, "Bob")
        review.judges.resolve("d0", 0, "Cyd", note="together read")
    with JudgementStore(path) as store, Review(engine, "which dog barks", judgements=store) as again:
        assert again.judges.plan.is_double
        [conflict] = again.judges.conflicts(resolved=True)
        assert conflict.resolution is not None
        assert conflict.to_dict()["resolution"]["by"] == ["Cyd"]
        assert (again.progress([]).n_relevant, conflict.resolution.note) == (0, "together read")
