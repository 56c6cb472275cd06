"""What an audit certifies follows from the rows of the store and from the judgements of today."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from support.learners import CountingLearner

from haybale import Engine, InputError, Review
from haybale.review import Judgement, JudgementStore, parse_rule
from haybale.review.audit_log import AUDIT
from haybale.review.audit_statement import AuditStatement, check_program
from haybale.review.judgement_store import GRADED

WORDS = ["lease", "rent", "tenant", "pets", "noise", "garden", "cellar", "lift", "keys", "month"]
DOCUMENTS = {
    f"d{number:02}": " ".join(random.Random(number).choices(WORDS, k=3)) + f" number {number}" for number in range(60)
}
TRUTH = {doc_id: int("rent" in text or "lease" in text) for doc_id, text in DOCUMENTS.items()}


def made(store: JudgementStore | Path | None = None, engine: Engine | None = None) -> Review:
    engine = engine or Engine(DOCUMENTS, language="english", encoder="tfidf(min_df=1)")
    return Review(engine, "rent", topic="rent", judgements=store, learner=CountingLearner)


def draws_of(review: Review) -> list[Judgement]:
    return [row for row in review.store.judgements(review.topic) if row.kind == "drawn"]


def read(review: Review, n: int) -> None:
    for _ in range(n):
        doc_id = review.next()[0].doc_id
        review.judge(doc_id, TRUTH[doc_id])


def recomputed(statement: AuditStatement, folder: Path, program: str | None = None) -> tuple[int, int, float]:
    """Return found, largest total and bound by the printed program, in a process without haybale."""
    (folder / "check.py").write_text(program or check_program(), encoding="utf-8")
    statement.write(folder / "statement.json")
    command = [sys.executable, "-I", "-S", "check.py", "statement.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = re.findall(r"[\d.]+", done.stdout)
    return int(words[0]), int(words[1]), float(words[2])


def test_the_printed_program_computes_the_bound(tmp_path: Path) -> None:
    review = made()
    review.audit.begin(target=0.7, confidence=0.8, seed=3, judge="Ada")
    read(review, 40)
    statement = review.audit.statement()
    (audited,) = [advice for rule, advice in review.progress().advice.items() if rule.startswith("audit")]
    assert statement.looks
    assert audited.low == statement.bound.low == pytest.approx(statement.looks[-1].low)
    printed = re.search(r'<pre id="program">(.*?)</pre>', statement.to_html(), re.DOTALL)
    assert printed is not None
    found, total, low = recomputed(statement, tmp_path, unescape(printed[1]))
    assert (found, total) == (statement.bound.n_found, statement.bound.largest_total)
    assert low == pytest.approx(statement.bound.low, abs=1e-6)
    wrong = json.loads(statement.to_json())
    first = next(row for row in wrong["judgements"] if row["draw"])
    first["position"] = (first["position"] + 1) % len(DOCUMENTS)
    (tmp_path / "statement.json").write_text(json.dumps(wrong), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "check.py", "statement.json"], cwd=tmp_path, capture_output=True)
    assert b"AssertionError" in done.stderr  # the seed draws another document


@pytest.mark.parametrize("seed", range(12))
def test_draws_and_bounds_follow_from_the_rows(seed: int, tmp_path: Path) -> None:
    """Law: over judgements, skips, undos, changes, contradictions and searches of two judges in two processes."""
    rng, path = random.Random(seed), tmp_path / "judgements.sqlite"
    engine = Engine(DOCUMENTS, language="english", encoder="tfidf(min_df=1)")
    reviews = [made(path, engine), made(path, engine)]
    read(reviews[0], rng.randint(0, 6))
    reviews[0].audit.begin(target=0.6, confidence=0.7, seed=seed)
    for _ in range(70):
        review, judge, action = rng.choice(reviews), rng.choice(["Ada", "Bob"]), rng.random()
        following = review.next(rng.randint(1, 3))
        if not following:
            break
        doc_id = rng.choice(following).doc_id
        if action < 0.7:
            review.judge(doc_id, TRUTH[doc_id], judge)
        elif action < 0.78:
            review.skip(doc_id, judge)
        elif action < 0.85:
            other_id = rng.choice(sorted(DOCUMENTS))
            review.judge(other_id, rng.randint(0, 1), judge)
        elif action < 0.93 and review.judgements().shape[0]:
            review.undo()
        else:
            review.next(judge=judge)
    review = reviews[0]
    rows, taken = review.store.judgements(review.topic), list[str]()
    for row in rows:
        if row.kind == "drawn":
            assert row.doc_id not in taken
            assert row.details[AUDIT]["n_unread"] == len(DOCUMENTS) - len(taken)
            assert row.details[AUDIT]["draw"] == sum(
                other.kind == "drawn" for other in rows if other.number <= row.number
            )
        if row.doc_id not in taken and (row.kind == "drawn" or row.kind in GRADED):
            taken.append(row.doc_id)
    statement = review.audit.statement()
    assert [document.doc_id for document in statement.judgements] == taken
    grades = {doc_id: review._sync().state.grade(doc_id) for doc_id in taken}
    assert [document.relevant for document in statement.judgements] == [
        None if grades[doc_id] is None else grades[doc_id] > 0 for doc_id in taken
    ]
    found, total, low = recomputed(statement, tmp_path)
    assert (found, total) == (statement.bound.n_found, statement.bound.largest_total)
    assert low == pytest.approx(statement.bound.low, abs=1e-6)
    assert statement == reviews[1].audit.statement()
    rule = review.audit.settings.rule if review.audit.settings else ""
    advice = review.progress([rule]).advice[rule]
    if statement.looks and advice.reason != "every document has been read":
        assert advice.low == pytest.approx(low, abs=1e-6)
    for later in reviews:
        later.close()


def test_a_draw_is_kept_before_it_is_shown(tmp_path: Path) -> None:
    """A process that dies with an open draw leaves the draw, and nobody can draw again."""
    path, folder = tmp_path / "judgements.sqlite", tmp_path / "engine"
    engine = Engine.build(DOCUMENTS, folder, language="english", encoder="tfidf(min_df=1)")
    with made(path, engine) as review:
        review.audit.begin(target=0.6, seed=1)
        while not review._sync().audit_log.is_due(review.audit.settings):
            read(review, 1)
        n_drawn = len(draws_of(review))
    code = (
        "import os, sys; sys.path[:0] = sys.argv[3:]\n"
        "from haybale import Engine, Review\n"
        "from support.learners import CountingLearner\n"
        "review = Review(Engine.open(sys.argv[1]), topic='rent', judgements=sys.argv[2], learner=CountingLearner)\n"
        "review._show = lambda *shown: os._exit(7)\n"
        "review.next()\n"
    )
    arguments = [sys.executable, "-c", code, str(folder), str(path), *sys.path]
    assert subprocess.run(arguments, check=False).returncode == 7
    with made(path, engine) as review:
        drawn = draws_of(review)
        assert len(drawn) == n_drawn + 1
        for _ in range(3):
            [proposed] = review.next()
            assert (proposed.doc_id, proposed.model, proposed.rank) == (drawn[-1].doc_id, AUDIT, None)
        assert len(draws_of(review)) == n_drawn + 1
        review.judge(proposed.doc_id, TRUTH[proposed.doc_id])
        assert len(review.audit.statement().looks) == n_drawn + 1


def test_draws_that_are_not_judged_stop_the_count() -> None:
    review = made()
    review.audit.begin(target=0.6, seed=2)
    while len(draws_of(review)) < 3:
        read(review, 1)
    n_judged, before = len(review.audit.statement().looks), review.audit.statement().bound.largest_total
    skipped = review.next()[0].doc_id
    review.skip(skipped)
    read(review, 4)
    statement = review.audit.statement()
    assert (len(statement.looks), statement.bound.largest_total) == (n_judged, before)
    assert repr(skipped) in statement.gap
    assert repr(skipped) in next(advice.reason for rule, advice in review.progress().advice.items() if "audit" in rule)
    review.judge(skipped, 0)
    assert len(review.audit.statement().looks) == n_judged + 5
    first = statement.judgements[0].doc_id  # judged before the first draw
    while review._sync().state.grades(first):
        review.undo()
    assert not review.audit.statement().looks
    assert review.next()[0].doc_id == first


def test_a_changed_judgement_changes_the_bound() -> None:
    review = made()
    review.audit.begin(target=0.6, confidence=0.7, seed=2)
    read(review, 40)
    before = review.audit.statement()
    drawn = next(document.doc_id for document in before.judgements if document.draw and not document.relevant)
    review.judge(drawn, 1)
    after = review.audit.statement()
    assert after.bound.n_found == before.bound.n_found + 1
    assert after.bound.largest_total > before.bound.largest_total
    review.judge(drawn, 0)
    assert review.audit.statement().looks == before.looks


@pytest.mark.parametrize("change", ["add", "replace", "remove"])
def test_other_documents_need_another_audit(change: str) -> None:
    review = made()
    review.audit.begin(target=0.6, seed=2)
    read(review, 40)
    assert review.audit.statement().looks
    unread = next(doc_id for doc_id in DOCUMENTS if doc_id not in set(review.judgements()["doc_id"]))
    if change == "add":
        review.engine.add({"new": "Rent."})
    elif change == "replace":
        review.engine.replace({unread: "Another rent."})
    else:
        review.engine.remove([unread])
    statement, n_drawn = review.audit.statement(), len(draws_of(review))
    assert not statement.looks
    assert statement.bound.low == pytest.approx(statement.bound.n_found / statement.bound.largest_total)
    assert "another" in statement.gap
    review.next(3)
    assert len(draws_of(review)) == n_drawn  # nothing is drawn for an audit that says nothing
    began = review.audit.begin(target=0.6, seed=4)
    assert began.n_documents == review.progress().n_documents
    assert review.audit.statement().earlier == [statement.settings.time]
    for _ in range(8):
        doc_id = review.next()[0].doc_id
        review.judge(doc_id, TRUTH.get(doc_id, 1))
    assert review.audit.statement().looks


def test_a_document_that_was_replaced_before_is_not_judged() -> None:
    review = made()
    read(review, 12)
    judged = [doc_id for doc_id in review.judgements()["doc_id"] if TRUTH[doc_id]]
    review.engine.replace(dict.fromkeys(judged[:3], "Another text."))
    review.audit.begin(target=0.6, confidence=0.7, seed=2)
    assert not set(judged[:3]) & {document.doc_id for document in review.audit.statement().judgements}
    for _ in range(40):
        doc_id = review.next()[0].doc_id
        review.judge(doc_id, 0 if doc_id in judged[:3] else TRUTH[doc_id])
        statement = review.audit.statement()
        (low,) = [advice.low for rule, advice in review.progress().advice.items() if rule.startswith("audit")]
        assert low == (statement.bound.low if statement.looks else None)
    assert statement.looks
    assert statement.bound.n_found <= sum(TRUTH.values()) - 3


def test_what_was_known_counts_as_found() -> None:
    review = made()
    known = [doc_id for doc_id, grade in TRUTH.items() if grade][:8]
    review.add_judgements(dict.fromkeys(known, 1))
    review.audit.begin(target=0.6, confidence=0.7, seed=2)
    read(review, 30)
    statement = review.audit.statement()
    assert statement.bound.n_found == review.progress().n_relevant
    rule = statement.settings.rule
    assert review.progress([rule]).advice[rule].low == pytest.approx(statement.bound.low)
    assert parse_rule(rule).advise(review.screening()).low == pytest.approx(statement.bound.low)


def test_an_audit_that_was_not_begun() -> None:
    review = made()
    assert review.audit.settings is None
    with pytest.raises(InputError, match="audit"):
        review.audit.statement()
    with pytest.raises(InputError, match="target"):
        review.audit.begin(target=2)
    assert review.audit.settings is None
    read(review, len(DOCUMENTS))
    assert not draws_of(review)


def test_statements_are_files(tmp_path: Path) -> None:
    review = made()
    review.audit.begin(seed=1)
    read(review, 3)
    statement = review.audit.statement()
    statement.write(tmp_path / "statement.html")
    assert "Nothing is certified" in (tmp_path / "statement.html").read_text(encoding="utf-8")
    statement.write(tmp_path / "statement.json")
    assert json.loads((tmp_path / "statement.json").read_text(encoding="utf-8")) == statement.to_dict()
    with pytest.raises(InputError, match=r"\.html"):
        statement.write(tmp_path / "statement.pdf")


def test_a_document_that_waits_for_a_second_judge_is_not_judged() -> None:
    review = made()
    review.audit.begin(target=0.6, confidence=0.7, seed=2)
    for _ in range(40):
        doc_id = review.next(judge="Ada")[0].doc_id
        review.judge(doc_id, TRUTH[doc_id], "Ada")
    single = review.audit.statement()
    assert single.looks
    review.judges.screen_double()
    assert not review.audit.statement().looks
    for document in single.judgements:
        review.judge(document.doc_id, TRUTH[document.doc_id], "Bob")
    assert review.audit.statement().looks == single.looks


def test_a_group_of_duplicates_counts_as_one_document() -> None:
    record = {"year": 2010, "author": "Doe, Jane"}
    records = {
        doc_id: {"title": f"Study {doc_id} of {text}", "text": text, **record} for doc_id, text in DOCUMENTS.items()
    }
    records |= {f"{doc_id} again": records[doc_id] for doc_id in list(DOCUMENTS)[:20]}
    review = made(engine=Engine(records, language="english", encoder="tfidf(min_df=1)"))
    began = review.audit.begin(target=0.6, confidence=0.7, seed=2)
    assert began.n_documents == review.progress().n_documents < len(records)
    for _ in range(40):
        doc_id = review.next()[0].doc_id
        review.judge(doc_id, TRUTH[doc_id.partition(" ")[0]])
    statement = review.audit.statement()
    assert statement.looks
    assert statement.bound.n_found == review.progress().n_relevant
    review.duplicates.separate(["d03 again"])
    assert "another" in review.audit.statement().gap
