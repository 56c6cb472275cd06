"""TopicLearner: judgements change the scores, can be undone, and may come in any order."""

from __future__ import annotations

import numpy as np
import pytest

import haybale
from haybale.collections import CollectionBuilder
from haybale.review import judged_rows
from haybale.review.learner import BAGGED, Member, TopicFeatures, TopicLearner
from haybale.review.topic_features import SHORT

WORDS = (
    *("tax", "income", "court", "appeal", "tenant", "rent", "lease", "dog", "cat", "lead"),
    *("purr", "bark", "water", "river", "boat", "sail", "engine", "wheel"),
)


def texts(n: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Return texts of random words, and whether each has more words on leases than the others have."""
    rng = np.random.default_rng(seed)
    relevant = rng.random(n) < 0.2
    weights = np.ones((2, len(WORDS)))
    weights[1, 4:7] = 4
    weights /= weights.sum(axis=1, keepdims=True)
    return [" ".join(rng.choice(WORDS, 12, p=weights[int(y)])) for y in relevant], relevant


@pytest.fixture(scope="module")
def topic() -> tuple[TopicFeatures, np.ndarray]:
    made, relevant = texts(120)
    return TopicFeatures.of(made), relevant


def judged(topic: tuple[TopicFeatures, np.ndarray], documents: list[int], text: str | None = "rent") -> TopicLearner:
    features, relevant = topic
    learner = TopicLearner(features, text)
    for document in documents:
        learner.judge(document, float(relevant[document]))
    return learner


def test_the_text_ranks_before_the_first_judgement(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    features, _ = topic
    scores = TopicLearner(features, "rent lease").scores()
    [space] = features.kernels["words"]
    columns = space.word_columns[[space.words.vocabulary[word] for word in ("rent", "lease")]]
    has_both = (space.matrix[:, columns].toarray() > 0).all(axis=1)
    has_none = (space.matrix[:, columns].toarray() == 0).all(axis=1)
    assert scores[has_both].min() > scores[has_none].max()


@pytest.mark.parametrize("text", [None, "", "word that nobody wrote"])
def test_without_a_known_word_all_documents_are_equal_at_first(
    topic: tuple[TopicFeatures, np.ndarray], text: str | None
) -> None:
    learner = TopicLearner(topic[0], text)
    for values in (learner.scores(), learner.probabilities(), learner.disagreement()):
        assert values.shape == (120,)
        assert np.ptp(values) == 0


def test_learning_finds_the_relevant_documents_sooner_than_chance(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    features, relevant = topic
    learner, read = TopicLearner(features, "lease"), []
    while len(read) < 40:
        scores = learner.scores()
        scores[read] = -np.inf
        read.append(int(scores.argmax()))
        learner.judge(read[-1], float(relevant[read[-1]]))
    assert relevant[read].sum() > 2 * 40 * relevant.mean()


def test_the_order_of_judgements_does_not_matter(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    documents = list(range(0, 120, 3))
    one, other = judged(topic, documents), judged(topic, documents[::-1])
    np.testing.assert_allclose(one.scores(), other.scores(), atol=2e-3)  # weights depend on the order
    np.testing.assert_allclose(one.probabilities(), other.probabilities(), atol=0.05)


def test_asking_for_scores_changes_nothing(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    features, relevant = topic
    one, other = TopicLearner(features, "rent"), TopicLearner(features, "rent")
    for document in range(30):
        one.scores()
        for learner in (one, other):
            learner.judge(document, float(relevant[document]))
    np.testing.assert_array_equal(one.scores(), other.scores())


def test_unjudge_restores(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    documents = list(range(0, 60, 2))
    learner = judged(topic, documents)
    before = learner.scores(), learner.probabilities(), learner.disagreement()
    learner.judge(7, 1.0)
    learner.scores()
    learner.judge(9, 0.0)
    learner.unjudge(7)
    learner.unjudge(9)
    after = learner.scores(), learner.probabilities(), learner.disagreement()
    for old, new, atol in zip(before, after, (1e-3, 0.05, 0.05), strict=True):
        np.testing.assert_allclose(new, old, atol=atol)
    for document in documents:
        learner.unjudge(document)
    np.testing.assert_allclose(learner.scores(), TopicLearner(topic[0], "rent").scores(), atol=1e-5)


def test_the_order_of_documents_does_not_matter() -> None:
    made, relevant = texts(60, 1)
    order = np.random.default_rng(0).permutation(60)
    one = judged((TopicFeatures.of(made), relevant), list(range(20)))
    place = np.argsort(order)
    other = judged((TopicFeatures.of([made[i] for i in order]), relevant[order]), place[:20].tolist())
    np.testing.assert_allclose(other.scores(), one.scores()[order], atol=1e-4)


@pytest.mark.parametrize("grade", [0.0, 1.0])
def test_judgements_all_alike_still_rank(topic: tuple[TopicFeatures, np.ndarray], grade: float) -> None:
    features, _ = topic
    learner = TopicLearner(features)
    for document in (1, 2, 3):
        learner.judge(document, grade)
    scores, probabilities = learner.scores(), learner.probabilities()
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0
    assert ((probabilities > 0.5) == (grade > 0)).all()


def test_all_documents_judged(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    learner = judged(topic, list(range(120)))
    assert np.isfinite(learner.scores()).all()
    assert np.isfinite(learner.disagreement()).all()


def test_probabilities_lie_between_0_and_1_and_rise_with_relevance(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    learner, relevant = judged(topic, list(range(60))), topic[1]
    probabilities = learner.probabilities()
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert probabilities[60:][relevant[60:]].mean() > probabilities[60:][~relevant[60:]].mean()


def test_documents_without_words_are_scored() -> None:
    features = TopicFeatures.of(["", "tax court", "...", "tax"])
    learner = TopicLearner(features, "tax")
    learner.judge(0, 1)
    learner.judge(1, 0)
    assert np.isfinite(learner.scores()).all()
    assert np.isfinite(learner.probabilities()).all()


def test_invalid_judgements_are_refused(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    learner = judged(topic, [3])
    for document in (3, -1, 120):
        with pytest.raises(haybale.InputError):
            learner.judge(document, 1)
    for document in (4, -1):
        with pytest.raises(haybale.InputError):
            learner.unjudge(document)
    with pytest.raises(haybale.InputError):
        TopicFeatures.of([])
    with pytest.raises(haybale.InputError):
        TopicFeatures.of("one text")


def test_a_long_document_has_the_score_of_its_best_passage() -> None:
    filler = " ".join(list(WORDS[10:]) * SHORT)
    builder = CollectionBuilder("three")
    builder.add_document("long", [filler, "the tenant pays the rent", filler], title="one")
    builder.add_document("short", ["a dog", "a lease of the tenant", "a cat"], title="two")
    builder.add_document("other", ["water"])
    builder.add_document("none", [])
    features = TopicFeatures.of(builder.build())
    assert np.diff(features.row_offsets).tolist() == [3, 1, 1, 1]
    learner = TopicLearner(features, "rent of a tenant")
    assert [learner.best_passage(document) for document in range(3)] == [1, 4, 6]
    assert learner.scores()[:2].min() > learner.scores()[2:].max()
    learner.judge(0, 1)
    assert [learner.best_passage(document) for document in range(3)] == [1, 4, 6]


def test_of_a_large_collection_the_nearest_documents_are_considered() -> None:
    made, relevant = texts(400, 3)
    features = TopicFeatures.of(made)
    learner = TopicLearner(features, "lease rent", max_rows=40)
    whole = TopicLearner(features, "lease rent")
    first = np.argsort(-whole.scores(), kind="stable")[:10]
    assert set(np.argsort(-learner.scores(), kind="stable")[:10]) == set(first)
    last = int(whole.scores().argmin())
    for document in [*first.tolist(), last]:
        for each in (learner, whole):
            each.judge(document, float(relevant[document]))
    scores = learner.scores()
    assert scores.shape == (400,)
    assert np.isfinite(scores).all()
    assert np.isfinite(learner.probabilities()).all()
    assert learner.disagreement().shape == (400,)
    learner.unjudge(last)
    assert np.isfinite(learner.scores()).all()


def test_considered_rows_have_the_scores_that_they_have_in_a_small_collection() -> None:
    """With a judgement that brings all others in, few rows considered first must not change the scores."""
    made, relevant = texts(100, 4)
    features = TopicFeatures.of(made)
    few, whole = TopicLearner(features, "lease", max_rows=99), TopicLearner(features, "lease")
    relevant_document = int(np.flatnonzero(relevant)[0])
    for document in (relevant_document, 5, 6):
        for each in (few, whole):
            each.judge(document, float(document == relevant_document))
    np.testing.assert_allclose(few.scores(), whole.scores(), atol=1e-3)


def test_few_references_give_nearly_the_same_scores(
    topic: tuple[TopicFeatures, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = list(range(0, 120, 3))
    whole = judged(topic, documents)
    monkeypatch.setattr(judged_rows, "_MAX_REFERENCES", 60)
    few = judged(topic, documents)
    np.testing.assert_allclose(few.scores(), whole.scores(), atol=1e-3)
    before = few.scores()
    few.judge(1, 1.0)
    few.unjudge(1)
    np.testing.assert_allclose(few.scores(), before, atol=1e-3)


def test_a_member_that_ranks_well_earns_the_ranking(topic: tuple[TopicFeatures, np.ndarray]) -> None:
    """One member sees words, the other only pairs of words, which say nothing in texts of random words."""
    features, relevant = topic
    members = [Member("pairs", True), BAGGED, Member("words", False, ratio=3.0)]
    found = {}
    for share_for_all in (0.0, 1.0):
        settings: dict = {"members": members, "rank_constant": 5.0, "share_for_all": share_for_all}
        learner, read = TopicLearner(features, "lease", **settings), []
        while len(read) < 60:
            scores = learner.scores()
            scores[read] = -np.inf
            read.append(int(scores.argmax()))
            learner.judge(read[-1], float(relevant[read[-1]]))
        found[share_for_all] = np.flatnonzero(relevant[read]).mean()
    assert found[0.0] < found[1.0]
