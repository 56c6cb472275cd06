"""Train rankers on the judgements of a store: each reviewed topic is a training query."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from haybale.engine import Duplicates, Engine
from haybale.engine.reattaching import TextDigests, unattached
from haybale.errors import InputError
from haybale.rankers import Ranker
from haybale.review.combined_judgements import DEFAULT_RULE, find_rule
from haybale.review.engine_of_judgements import bind
from haybale.review.exports import query_id
from haybale.review.judgement_store import JudgementStore
from haybale.review.reattachment import counting, ensure_attached
from haybale.review.screening_plan import SCREENING_EVENT, plan_of
from haybale.review.topic_duplicates import TopicDuplicates
from haybale.review.topic_state import TopicState

if TYPE_CHECKING:
    import pandas as pd

AnyRanker = TypeVar("AnyRanker", bound=Ranker)


def judged_topics(
    judgements: JudgementStore | str | Path,
    engine: Engine | None = None,
    *,
    topics: Sequence[str] | None = None,
    combine: str | None = None,
) -> tuple[dict[str, str], pd.DataFrame]:
    """Return the topics of a store as queries with judgements, for :meth:`Ranker.fit` and :meth:`Engine.judge`.

    A judgement of one document of a group of duplicates counts for all of them, if the topic reads a group once. Topics
    without a text, and those without a relevant document, are left out: nothing can be learned from them. So are
    documents that wait for a second judge, because a ranker that has learned them would tell the first one's grade.

    Parameters
    ----------
    judgements : JudgementStore, str or Path
        A store, or its file.
    engine : Engine, optional
        Leave out judgements of documents that this engine does not have, or has with another text than the one that was
        judged. Default: return all.
    topics : sequence of str, optional
        The names of the topics. Default: all topics of the store.
    combine : {"any", "latest", "majority", "maximum"}, optional
        As in :class:`~haybale.Review`. Default: the rule of each topic.

    Returns
    -------
    queries : dict of str to str
        The text of each topic by query id, which is its name with hyphens in place of white space.
    qrels : DataFrame
        The judgements, with the columns ``query_id``, ``doc_id`` and ``relevance``.

    Raises
    ------
    UnknownNameError
        If the store does not have a topic.
    StoreError
        If the judgements are those of another engine.
    """
    import pandas as pd

    if combine is not None:
        find_rule(combine)
    with ExitStack() as block:
        opened = isinstance(judgements, JudgementStore)
        store = judgements if isinstance(judgements, JudgementStore) else JudgementStore(_existing(judgements))
        if not opened:
            block.enter_context(store)
        if engine is not None:
            bind(store, engine)
            ensure_attached(store, engine)
        chosen = store.topics() if topics is None else [store.topic(name) for name in topics]
        rows = {topic.name: store.judgements(topic) for topic in chosen}
        plans = {topic.name: plan_of(store.events(topic, SCREENING_EVENT)) for topic in chosen}
        groups = (
            {} if engine is None else {topic.name: TopicDuplicates(engine, store, topic).groups() for topic in chosen}
        )
    collection = None if engine is None else engine.snapshot().collection
    queries: dict[str, str] = {}
    judged: list[tuple[str, str, int]] = []
    for topic in chosen:
        topic_rows, duplicates = rows[topic.name], groups.get(topic.name, Duplicates([], {}))
        if collection is not None:
            latest = ((row.doc_id, row.document) for row in counting(topic_rows))
            without_text = unattached(latest, TextDigests(collection))
            left_out = {*without_text.orphaned, *without_text.replaced}
            topic_rows = [row for row in topic_rows if row.doc_id not in left_out]
        rule = combine or topic.settings.get("combine", DEFAULT_RULE)
        state = TopicState(rule, topic_rows, plans[topic.name], duplicates.representatives)
        grades = {
            member: grade
            for doc_id in filter(state.is_read, state.rows)
            if (grade := state.grade(doc_id)) is not None
            for member in (doc_id, *duplicates.others(doc_id))
        }
        if topic.text.strip() and any(grades.values()):
            name = query_id(topic)
            name = name if name not in queries else f"{name}-{topic.number}"
            queries[name] = topic.text
            judged += [(name, doc_id, grade) for doc_id, grade in grades.items()]
    frame = pd.DataFrame(judged, columns=["query_id", "doc_id", "relevance"])
    return queries, frame.astype({"query_id": str, "doc_id": str, "relevance": int})


def train_ranker(
    ranker: AnyRanker,
    engine: Engine,
    judgements: JudgementStore | str | Path,
    *,
    topics: Sequence[str] | None = None,
    combine: str | None = None,
) -> AnyRanker:
    """Fit a ranker on the topics of a store, and return it.

    To learn from the judged queries of the engine too, add the topics to it: ``engine.judge(qrels, queries)`` with what
    :func:`judged_topics` returns.

    Parameters
    ----------
    ranker : Ranker
        A ranker that learns, such as ``SVR()`` or ``Learned()``.
    engine : Engine
    judgements, topics, combine
        As in :func:`judged_topics`.

    Raises
    ------
    InputError
        If no topic has a text and a relevant document in the engine, or the ranker needs more topics than there are.

    Examples
    --------
    >>> from haybale import SimilarQueries
    >>> from haybale.review import Judgement
    >>> engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    >>> store = JudgementStore()
    >>> _ = store.add(store.add_topic("cats", "Which cats are calm?"), Judgement("b", "judged", 1))
    >>> train_ranker(SimilarQueries(), engine, store).rank({"q": "calm cats"})["q"][0][0]
    'b'
    """
    queries, qrels = judged_topics(judgements, engine, topics=topics, combine=combine)
    if not queries:
        raise InputError(
            f"{judgements!s:.200}: expected a topic with a text and a relevant document of the engine, found none; "
            "judge documents first"
        )
    return ranker.fit(engine, queries, qrels)


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise InputError(f"{path}: expected a store of judgements, found no file; check the path")
    return Path(path)
