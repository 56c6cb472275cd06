"""A ranker is trained in a process of its own on the judgements, and serves when it was accepted."""

import json
import time

import pandas as pd
import pytest
from support.decisions import decisions

from haybale import Engine, parse
from haybale.collections.query_groups import words_key
from haybale.errors import InputError
from haybale.review import Judgement, JudgementStore, judged_topics
from haybale.service import Workspace, trainings
from haybale.service.model_training import _halves, train
from haybale.service.training_readiness import QUESTIONS, RECIPES, training_readiness


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    Engine.build(decisions(60), folder / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    with JudgementStore(folder / "judgements.sqlite") as store:
        for subject, text in [
            ("lease", "ending a rental contract"),
            ("dog", "keeper of animals"),
            ("tax", "state income"),
        ]:
            topic = store.add_topic(text, text)
            for number in range(0, 60, 5):
                doc_id = f"{('lease', 'dog', 'tax', 'road')[number % 4]}/{number}"
                store.add(topic, Judgement(doc_id, "judged", int(doc_id.startswith(subject)), "Ada"))
    return folder


@pytest.fixture
def served(folder):
    engine = Engine.open(folder / "engine")
    with JudgementStore(folder / "judgements.sqlite") as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        yield workspace
        workspace.close()


def wait(workspace, number):
    for _ in range(2400):
        found = workspace.training(number)
        if found.status != "running":
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_trains_compares_accepts_and_reverts(served, folder):
    before = served.search("keeper of animals")
    started = served.start_training()
    assert started.status == "running"
    with pytest.raises(InputError):
        served.start_training()  # one at a time
    assert served.search("keeper of animals").to_dict() == before.to_dict()  # the old ranker serves
    done = wait(served, started.id)
    assert done.status == "done", done
    assert done.result["recipe"] == "svr"
    assert done.result["n_topics"] == 3
    for question in QUESTIONS:
        values = done.result["questions"][question]["measures"]["nDCG@10"]
        assert values["difference"] == pytest.approx(values["after"] - values["before"])
        assert 0 < values["p"] <= 1
    assert served.accept(started.id) == f"trained {started.id}"
    assert served.rankers[0] == f"trained {started.id}"
    after = served.search("keeper of animals")
    assert after[0].doc_id.startswith("dog/")
    assert served.training(started.id).is_accepted

    # It still serves after a restart, and so does the old one after it was taken back.
    again = Workspace(served.engine, {"bm25": parse("bm25").fit(served.engine)}, served.store)
    assert again.search("keeper of animals").to_dict() == after.to_dict()
    assert again.revert() == "bm25"
    assert again.search("keeper of animals").to_dict() == before.to_dict()
    with pytest.raises(InputError):
        again.revert()


def test_an_interrupted_training_has_failed(served):
    started = served.start_training("svr")
    served.close()
    found = served.training(started.id)
    assert found.status == "failed"
    assert "start it again" in found.detail
    with pytest.raises(InputError):
        served.accept(started.id)


def test_says_why_it_failed(served, monkeypatch):
    """Judgements that are taken back after a training was begun are not there any more for its process."""
    started = trainings._started

    def without_judgements(folder):
        request = json.loads((folder / "request.json").read_text())
        empty = folder / "empty.sqlite"
        JudgementStore(empty).close()
        (folder / "request.json").write_text(json.dumps(request | {"judgements": str(empty)}))
        return started(folder)

    monkeypatch.setattr(trainings, "_started", without_judgements)
    found = wait(served, served.start_training().id)
    assert found.status == "failed"
    assert found.detail == training_readiness(served.engine, *judged_topics(JudgementStore())).missing


@pytest.mark.filterwarnings("ignore:svr. 3 training queries")
@pytest.mark.filterwarnings("ignore:svr. [12] training quer")
@pytest.mark.parametrize("recipe", RECIPES)
def test_measures_each_recipe(served, recipe):
    judged = judged_topics(served.store, served.engine)
    trained, result = train(served.engine, judged, served.ranker("bm25"), recipe)
    assert str(trained) == result["ranker"]
    for question in QUESTIONS:
        assert result["questions"][question]["n_topics"] == 3
    if recipe == "similar topics":  # a ranker that has learned from the topics is trained anew in each fold
        same = train(served.engine, judged, trained, recipe)[1]["questions"]
        assert all(each["difference"] == 0 for question in same.values() for each in question["measures"].values())


def test_topics_with_the_same_text_are_held_back_together(folder):
    """A topic under a second name teaches nothing that the first one is measured on."""
    engine = Engine.open(folder / "engine")
    queries, qrels = judged_topics(folder / "judgements.sqlite", engine)
    before = parse("bm25").fit(engine)
    _, alone = train(engine, (queries, qrels), before, "similar topics")
    twice = queries | {f"{name}-again": f"{text.upper()}?" for name, text in queries.items()}
    copies = pd.concat([qrels, qrels.assign(query_id=qrels["query_id"] + "-again")], ignore_index=True)
    _, result = train(engine, (twice, copies), before, "similar topics")
    assert result["n_topics"] == 2 * alone["n_topics"]
    for name in QUESTIONS:
        for measure, found in result["questions"][name]["measures"].items():
            expected = alone["questions"][name]["measures"][measure]
            if name == "new topics":
                assert found["after"] == pytest.approx(expected["after"])
            assert found["before"] == pytest.approx(expected["before"], abs=0.15)
            for topic in queries:
                assert found["topics"][topic][1] == pytest.approx(found["topics"][f"{topic}-again"][1], abs=0.2)
    halves = _halves(copies, {name: words_key(text) for name, text in twice.items()}, 0)
    one, other = ({(row.query_id.removesuffix("-again"), row.doc_id) for row in half.itertuples()} for half in halves)
    assert not one & other
