"""What can be trained is said before: whatever was judged, the default trains, or the page says what is missing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.decisions import decisions

from haybale import Engine, parse
from haybale.errors import InputError
from haybale.review import Judgement, JudgementStore, judged_topics
from haybale.service import Workspace, create_app, trainings
from haybale.service.model_training import train, train_default
from haybale.service.training_readiness import RECIPES, TrainingReadiness, training_readiness

QUESTIONS = {"lease": "ending a rental contract", "dog": "keeper of animals", "tax": "state income"}
KINDS = ("with tenants", "in the city", "by night", "under water", "for gain", "with care", "at home", "at sea")


def judge(store: JudgementStore, n_topics: int, n: int, kind: str = "mixed", text: str | None = None) -> None:
    """Add topics with n judgements each: half of them relevant, or all, or none."""
    ids = list(decisions(240))
    for number in range(n_topics):
        subject, question = list(QUESTIONS.items())[number % 3]
        words = f"{question} {'' if number < 3 else KINDS[number // 3 % 8]} {'' if number < 24 else 'again and again'}"
        topic = store.add_topic(f"topic {number}", words if text is None else text)
        relevant = [doc_id for doc_id in ids if doc_id.startswith(subject)][number:]
        others = [doc_id for doc_id in ids if not doc_id.startswith(subject)][number:]
        n_relevant = {"mixed": (n + 1) // 2, "relevant": n, "irrelevant": 0}[kind]
        grades = dict.fromkeys(relevant[:n_relevant], 1) | dict.fromkeys(others[: n - n_relevant], 0)
        store.add(topic, *(Judgement(doc_id, "judged", grade, "Ada") for doc_id, grade in grades.items()))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("engine") / "engine"
    return Engine.build(decisions(240), folder, language="english", encoder="tfidf(min_df=1)")


CASES = [
    ((0, 0), ""),
    ((1, 0), ""),
    ((1, 1), "similar topics"),
    ((1, 1, "irrelevant"), ""),
    ((1, 14), "similar topics"),
    ((1, 100), "similar topics"),
    ((2, 6, "relevant"), "svr"),
    ((2, 6, "irrelevant"), ""),
    ((2, 6, "mixed", "keeper of animals"), "similar topics"),
    ((2, 6, "mixed", "?!"), "similar topics"),
    ((2, 6, "mixed", ""), ""),
    ((30, 4), "learned"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("judged", "default"), CASES)
def test_each_recipe_trains_or_says_before_what_is_missing(engine: Engine, judged: Any, default: str) -> None:
    """The law: a training with the default succeeds, unless readiness says that nothing can be trained."""
    store = JudgementStore()
    judge(store, *judged)
    topics, before = judged_topics(store, engine), parse("bm25").fit(engine)
    readiness = training_readiness(engine, *topics)
    assert readiness.default == default
    assert bool(readiness.missing) == (not default)
    for recipe in RECIPES:
        if readiness.recipes[recipe]:
            with pytest.raises(InputError, match=re.escape(readiness.recipes[recipe])):
                train(engine, topics, before, recipe)
    if not default:
        with pytest.raises(InputError, match=re.escape(readiness.missing)):
            train_default(engine, topics, before)
        return
    ranker, result = train_default(engine, topics, before)
    assert (result["recipe"], result["instead_of"]) == (default, {})
    assert ranker.search("keeper of a dog")
    for question, missing in readiness.questions.items():
        if missing:
            assert result["unanswered"][question] == missing
        else:
            assert question in result["questions"]


@pytest.mark.filterwarnings("ignore")
def test_topics_whose_words_no_document_has_train_a_simpler_ranker(engine: Engine) -> None:
    store = JudgementStore()
    for number in range(12):
        topic = store.add_topic(f"topic {number}", f"{chr(ord('k') + number) * 9} zyzzy{number}")
        store.add(topic, Judgement(f"dog/{4 * number + 1}", "judged", 1))
    topics = judged_topics(store, engine)
    assert training_readiness(engine, *topics).default == "learned"
    _, result = train_default(engine, topics, parse("bm25").fit(engine))
    assert result["recipe"] == "similar topics"
    assert list(result["instead_of"]) == ["learned", "svr"]


@pytest.fixture
def workspace(engine: Engine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """Return a workspace whose trainings start no process."""
    monkeypatch.setattr(trainings, "_started", lambda folder: None)
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        yield Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)


@pytest.mark.parametrize(("judged", "default"), [case for case in CASES if case[0][0] < 30])
def test_the_page_and_the_interface_say_what_is_missing(workspace: Workspace, judged: Any, default: str) -> None:
    judge(workspace.store, *judged)
    client = TestClient(create_app(workspace), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    readiness = TrainingReadiness(**client.get("/api/train").json()["readiness"])
    page = client.get("/train").text
    (button,) = re.findall(r"<button class=\"primary\"([^>]*)>Train", page)
    assert ("disabled" in button) == (not default)
    token = page.partition('name="csrf_token" value="')[2].partition('"')[0]
    for recipe in (None, *RECIPES):
        missing = readiness.missing or readiness.recipes.get(recipe or "", "")
        started = client.post("/api/train", json={} if recipe is None else {"recipe": recipe})
        sent = client.post("/train", data={"csrf_token": token, "recipe": recipe or ""}, follow_redirects=False)
        if not missing:
            assert (started.status_code, sent.status_code) == (202, 303)
            continue
        assert (started.status_code, started.json()["detail"]) == (409, missing)
        assert sent.status_code == 422
        assert f"{missing[1:]}." in page  # a sentence of its own begins with a capital
        if recipe is not None and default:
            assert f'<option value="{recipe}" disabled>' in page
    if default == "similar topics" and judged[0] == 1:
        assert "learned=1" in page  # the ranking of the review, which learns from one topic


def test_what_can_be_trained_follows_the_judgements(workspace: Workspace) -> None:
    assert workspace.training_readiness().missing
    judge(workspace.store, 2, 2)
    readiness = workspace.training_readiness()
    assert (readiness.default, readiness.n_judgements, readiness.n_relevant) == ("svr", 4, 2)
    assert workspace.training_readiness() is readiness
    workspace.desk.delete(1)
    assert workspace.training_readiness().default == "similar topics"
    workspace.desk.delete(2)
    assert workspace.training_readiness().missing
    with pytest.raises(InputError, match="judge a document as relevant"), warnings.catch_warnings():
        workspace.start_training()
