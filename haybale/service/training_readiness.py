"""What can be trained with the judgements that there are, and what is missing for the rest: said before a training."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.collections.queries import queries_from
from haybale.collections.query_groups import words_key
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.review import JudgementStore, Topic, judged_topics
from haybale.review.topic_lifecycle import listed_topics
from haybale.search.query_batch import QueryBatch

if TYPE_CHECKING:
    import pandas as pd

# What can be trained. Ranker texts of users are not accepted, because they can name files and models to load.
RECIPES = {
    "learned": "learned",
    "similar topics": "rrf(bm25-doc,parm-vrrf,knn-queries)",
    "svr": "rrf(bm25-doc,parm-vrrf,svr)",
}
QUESTIONS = ("new topics", "held-back half")
N_QUESTIONS_NEEDED = {"learned": 2, "similar topics": 1, "svr": 2}  # different questions that a recipe learns from
ENOUGH = 10  # questions from which "learned" is the default recipe: its weights are cross-validated over them
_DEFAULTS = ("learned", "svr", "similar topics")  # the first that can be trained is the default


@dataclass(frozen=True)
class TrainingReadiness:
    """What a training would learn from, and what is missing for what cannot be trained or compared.

    Parameters
    ----------
    n_topics, n_questions : int
        Topics with a text and a relevant document; the different questions among them. Topics with the same words, or
        nearly the same, are one question.
    n_judgements, n_relevant : int
        Judgements of these topics that count, and the relevant ones.
    missing : str
        Why nothing can be trained; empty if something can.
    default : str
        The recipe that is trained if none is chosen; empty if nothing can be trained.
    recipes, questions : dict of str to str
        By recipe, and by question that the comparison answers: what is missing; empty if nothing is.
    """

    n_topics: int
    n_questions: int
    n_judgements: int
    n_relevant: int
    missing: str
    default: str
    recipes: dict[str, str]
    questions: dict[str, str]

    def check(self, recipe: str | None) -> None:
        """Raise :class:`~haybale.InputError` with what is missing if a recipe, or the default, cannot be trained."""
        missing = self.missing or self.recipes.get(recipe or self.default, "")
        if missing:
            raise InputError(missing)

    def check_question(self, question: str) -> None:
        """Raise :class:`~haybale.InputError` with what is missing if the comparison cannot answer a question."""
        if self.questions[question]:
            raise InputError(self.questions[question])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


class StoreReadiness:
    """What can be trained with the judgements of a store, counted again when judgements or documents have changed.

    Several threads may use it.

    Parameters
    ----------
    store : JudgementStore
    """

    def __init__(self, store: JudgementStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._counted: tuple[Engine, Any, TrainingReadiness] | None = None

    def on(self, engine: Engine) -> TrainingReadiness:
        """Return what can be trained on the documents of a snapshot."""
        topics = listed_topics(self.store)
        seen = self.store.last_row(), self.store.last_move(), [self._last_event(topic) for topic in topics]
        with self._lock:
            if self._counted is None or self._counted[0] is not engine or self._counted[1] != seen:
                queries, qrels = judged_topics(self.store, engine)
                n_without_text = sum(self._is_without_text(topic) for topic in topics)
                self._counted = engine, seen, training_readiness(engine, queries, qrels, n_without_text)
            return self._counted[2]

    def _last_event(self, topic: Topic) -> tuple[int, int]:
        return topic.number, max((event.number for event in self.store.events(topic, latest=True)), default=0)

    def _is_without_text(self, topic: Topic) -> bool:
        return not topic.text.strip() and any(row.grade for row in self.store.judgements(topic))


def training_readiness(
    engine: Engine, queries: Mapping[str, str], qrels: pd.DataFrame, n_without_text: int = 0
) -> TrainingReadiness:
    """Return what can be trained on judged topics.

    Parameters
    ----------
    engine : Engine
    queries, qrels
        As :func:`~haybale.review.judged_topics` returns them.
    n_without_text : int, default 0
        Topics with a relevant document, but without a text, from which nothing can be learned.

    Examples
    --------
    >>> from haybale.review import Judgement, JudgementStore, judged_topics
    >>> engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    >>> store = JudgementStore()
    >>> _ = store.add(store.add_topic("cats", "Which cats are calm?"), Judgement("b", "judged", 1))
    >>> readiness = training_readiness(engine, *judged_topics(store, engine))
    >>> readiness.default, readiness.recipes["svr"]
    ('similar topics', 'svr needs 2 topics with different questions, each with a relevant document, found 1; judge a \
relevant document in 1 more topic')
    """
    is_relevant = qrels["relevance"].to_numpy() > 0
    counts = len(qrels), int(is_relevant.sum())
    if not queries:
        missing = "a training needs a topic with a text and a relevant document, found none"
        if n_without_text:
            is_one = n_without_text == 1
            missing += f", and {n_without_text:,} {'topic' if is_one else 'topics'} without a text"
        missing += "; judge a document as relevant in a topic that has a text"
        return TrainingReadiness(
            0, 0, *counts, missing, "", dict.fromkeys(RECIPES, missing), dict.fromkeys(QUESTIONS, missing)
        )
    n_questions = _n_questions(engine, queries)
    recipes = {name: _lacking(name, needed, n_questions) for name, needed in N_QUESTIONS_NEEDED.items()}
    words = qrels["query_id"].map({name: words_key(text) for name, text in queries.items()})
    relevant = qrels.assign(words=words)[is_relevant].drop_duplicates(["words", "doc_id"])
    lacks_relevant = relevant["words"].value_counts().max() < 2
    questions = {
        "new topics": _lacking("this comparison", 2, n_questions),
        "held-back half": "this comparison needs a topic with 2 relevant documents, found 1 at most; judge 1 more as "
        "relevant"
        if lacks_relevant
        else "",
    }
    return TrainingReadiness(len(queries), n_questions, *counts, "", default_recipe(n_questions), recipes, questions)


def default_recipe(n_questions: int) -> str:
    """Return the name of the recipe for so many different questions, from 1.

    >>> [default_recipe(n) for n in (1, 2, 10)]
    ['similar topics', 'svr', 'learned']
    """
    if n_questions >= ENOUGH:
        return "learned"
    return "svr" if n_questions >= N_QUESTIONS_NEEDED["svr"] else "similar topics"


def simpler_recipes(recipe: str) -> tuple[str, ...]:
    """Return the recipes that a training with the default falls back to, in order."""
    return _DEFAULTS[_DEFAULTS.index(recipe) + 1 :]


def _lacking(what: str, needed: int, n_questions: int) -> str:
    n_more = needed - n_questions
    if n_more <= 0:
        return ""
    return (
        f"{what} needs {needed} topics with different questions, each with a relevant document, found {n_questions}; "
        f"judge a relevant document in {n_more} more {'topic' if n_more == 1 else 'topics'}"
    )


def _n_questions(engine: Engine, queries: Mapping[str, str]) -> int:
    """Return the number of groups of topics that rankers learn from as from one question."""
    snapshot = engine.snapshot()
    batch = QueryBatch(snapshot, queries_from(snapshot.collection, dict(queries)))
    return len(np.unique(batch.groups))
