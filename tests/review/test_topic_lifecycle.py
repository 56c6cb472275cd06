"""Topics are renamed, closed, deleted and restored, and nothing that was judged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from haybale import Engine
from haybale.errors import InputError
from haybale.review import (
    Judgement,
    JudgementStore,
    Review,
    close_topic,
    delete_topic,
    judged_topics,
    reopen_topic,
    restore_topic,
    topic_status,
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine({"a": "dogs", "b": "cats", "c": "cows"}, language="english", encoder="tfidf(min_df=1)")


def test_a_renamed_topic_keeps_its_judgements_and_frees_its_name(engine: Engine, tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        review, other = (Review(engine, "dogs", topic="first", judgements=store) for _ in range(2))
        review.judge("a", 1)
        store.rename(review.topic, " second ", "Ada")
        assert store.topic("second").number == review.topic.number
        assert other.next()
        assert (other.topic.name, review.export().split()[0]) == ("second", "second")
        assert Review(engine, topic="second", judgements=store).judgements()["doc_id"].tolist() == ["a"]
        [event] = store.events(review.topic, "renamed")
        assert (event.value, event.judge) == ({"from": "first", "to": "second"}, "Ada")
        again = store.add_topic("first", "other dogs")
        assert again.number != review.topic.number
        for name in ("first", " ", "second"):
            if name == "second":
                store.rename(review.topic, name)  # its own name is no change
            else:
                with pytest.raises(InputError, match="name"):
                    store.rename(review.topic, name)
        assert len(store.events(review.topic)) == 1


@pytest.mark.parametrize(("shut", "again"), [(close_topic, reopen_topic), (delete_topic, restore_topic)])
def test_a_topic_that_is_shut_is_read_but_not_judged(engine: Engine, shut, again) -> None:
    review = Review(engine, "dogs")
    review.judge("a", 1, "Ada")
    store, topic = review.store, review.topic
    shut(store, topic, "Eve")
    before = store.judgements(topic)
    for judging in (
        lambda: review.judge("b", 0),
        lambda: review.skip("b"),
        lambda: review.undo(),
        lambda: review.draw_sample(1),
        lambda: review.add_judgements({"b": 1}),
        lambda: store.add(topic, Judgement("b", "judged", 1)),
    ):
        with pytest.raises(InputError, match="must be open"):
            judging()
    assert store.judgements(topic) == before
    assert review.next()[0].doc_id != "a"
    assert review.progress([]).n_judged == len(review.export().splitlines()) == 1
    again(store, topic)
    review.judge("b", 0)
    assert review.progress([]).n_judged == 2


def test_deleted_topics_are_not_learned_from_and_come_back_closed(engine: Engine) -> None:
    store = JudgementStore()
    for name in ("dogs", "cats"):
        Review(engine, name, judgements=store).judge("a", 1)
    topic = store.topic("cats")
    close_topic(store, topic)
    delete_topic(store, topic)
    delete_topic(store, topic)
    assert list(judged_topics(store, engine)[0]) == ["dogs"]
    assert list(judged_topics(store, engine, topics=["cats"])[0]) == ["cats"]  # who names it gets it
    restore_topic(store, topic)
    assert topic_status(store, topic) == (True, False)
    assert list(judged_topics(store, engine)[0]) == ["dogs", "cats"]
    assert [event.kind for event in store.events(topic)] == ["closed", "deleted", "deleted"]
