"""A random sample certifies nothing while one of its documents is not judged, or if the documents are others now."""

from __future__ import annotations

import random

import pytest
from support.learners import CountingLearner

from haybale import Engine, Review
from haybale.review import Advice

WORDS = ["lease", "rent", "tenant", "pets", "noise", "garden", "cellar", "lift", "keys", "month"]
DOCUMENTS = {
    f"d{number:02}": f"{random.Random(number).choice(WORDS)} {random.Random(number + 99).choice(WORDS)} number {number}"
    for number in range(40)
}
RULE = "qbcb(target=0.5,confidence=0.6)"


def made() -> Review:
    engine = Engine(DOCUMENTS, language="english", encoder="tfidf(min_df=1)")
    return Review(engine, "rent", topic="rent", learner=CountingLearner)


def certificate(review: Review) -> Advice:
    return review.progress([RULE]).advice[RULE]


def certifies(advice: Advice) -> bool:
    return advice.stop or advice.recall is not None or advice.low is not None


def read_one(review: Review) -> None:
    """Judge the first document that is not of the sample, so that something was read."""
    review.judge(review.next()[0].doc_id, 0)


def test_a_skipped_document_of_the_sample_is_not_judged() -> None:
    review = made()
    drawn = review.draw_sample(20)
    for doc_id in drawn[:12]:
        review.judge(doc_id, 1)
    for doc_id in drawn[12:]:
        review.skip(doc_id)
    for _ in range(15):  # the ranking gets to the judged half
        following = review.next()[0].doc_id
        if following in drawn:
            break
        review.judge(following, 0)
    assert not certifies(certificate(review))
    for doc_id in drawn[12:]:
        review.judge(doc_id, 0)
    assert certifies(certificate(review))
    review.undo()
    assert not certifies(certificate(review))


def test_documents_that_change_after_the_draw() -> None:
    review = made()
    drawn = review.draw_sample(10)
    for doc_id in drawn:
        review.judge(doc_id, 1)
    read_one(review)
    assert certifies(certificate(review))
    review.engine.replace({drawn[0]: "The rent of a lift."})
    assert not certifies(certificate(review))
    review.judge(drawn[0], 1)
    assert certifies(certificate(review))
    review.engine.add({"new": "Rent, and nothing else."})  # had no chance to be drawn
    assert not certifies(certificate(review))
    again = review.draw_sample(30)  # a new sample, which may have documents of the first one
    assert set(again) & set(drawn)
    for doc_id in again:
        review.judge(doc_id, 1)
    assert certifies(certificate(review))
    review.engine.remove([again[0]])
    assert not certifies(certificate(review))


def test_a_simulation_judges_its_sample() -> None:
    from haybale.review import simulate
    from haybale.review.simulation import LabelledTopic

    engine = Engine(DOCUMENTS, language="english", encoder="tfidf(min_df=1)")
    topic = LabelledTopic("rent", [doc_id for doc_id in DOCUMENTS if "rent" in DOCUMENTS[doc_id]], "rent")
    found = simulate(engine, topics=[topic], rules=[RULE], sample=30, seeds=1, learner=CountingLearner)
    assert found.runs[0].stops[RULE] is not None


@pytest.mark.parametrize("seed", range(25))
def test_no_certificate_without_a_sample_that_was_judged_whole(seed: int) -> None:
    """Law: over random draws, judgements, skips, undos and changes, against a plain count of what was done."""
    rng, review = random.Random(seed), made()
    engine, truth = review.engine, {doc_id: int(rng.random() < 0.4) for doc_id in DOCUMENTS}
    texts, said = dict(DOCUMENTS), list[tuple[str, int | None, str]]()  # document, grade, its text then
    sample: dict[frozenset[str], set[str]] = {}  # what was drawn, by the documents that there were
    for step in range(rng.randint(5, 40)):
        action, doc_id = rng.random(), rng.choice(sorted(texts))
        if action < 0.15:
            known = set(review._sync().to_draw()[0])
            if known:
                drawn = review.draw_sample(rng.randint(1, min(6, len(known))))
                sample.setdefault(frozenset(texts), set()).update(drawn)
        elif action < 0.6:
            following = review.next()
            doc_id = following[0].doc_id if following and rng.random() < 0.8 else doc_id
            review.judge(doc_id, truth[doc_id])
            said.append((doc_id, truth[doc_id], texts[doc_id]))
        elif action < 0.75:
            review.skip(doc_id)
            said.append((doc_id, None, ""))
        elif action < 0.85 and said:
            review.undo()
            said.pop()
        elif action < 0.9 and len(texts) > 10:
            engine.remove([doc_id])
            del texts[doc_id]
        elif action < 0.95:
            engine.replace({doc_id: f"{texts[doc_id]} {step}"})
            texts[doc_id] = f"{texts[doc_id]} {step}"
        elif action < 0.97:
            engine.add({f"new{step}": "Rent."})
            texts[f"new{step}"], truth[f"new{step}"] = "Rent.", 1
        grades = {about: (grade, text) for about, grade, text in said if grade is not None}
        members = sample.get(frozenset(texts), set())
        is_whole = bool(members) and all(about in grades and grades[about][1] == texts[about] for about in members)
        advice = certificate(review)
        left = review.progress([]).n_documents - review.screening().n_read
        if not is_whole:
            assert not certifies(advice) or advice.reason == "every document has been read", (seed, step, advice)
        elif certifies(advice) and left:
            reached = review.screening()
            n_found = int((reached.labels & reached.sampled).sum())
            n_relevant = sum(truth[about] for about in members)
            assert advice.recall == pytest.approx(n_found / n_relevant)
            assert advice.low is not None
            assert advice.low <= n_found / n_relevant
