"""The workspace does what the pages and the REST interface offer, with what the rest of haybale has."""

import pytest
from support.decisions import decisions

from haybale import Engine, parse
from haybale.errors import InputError, UnknownNameError
from haybale.review import JudgementStore
from haybale.service import Workspace


def test_searches_page_by_page_and_explains_each_hit(workspace):
    whole = workspace.search("dog damage rent", k=10)
    parts = [*workspace.search("dog damage rent", k=6), *workspace.search("dog damage rent", k=4, offset=6)]
    assert [(hit.rank, hit.doc_id, hit.score) for hit in parts] == [(hit.rank, hit.doc_id, hit.score) for hit in whole]
    for hit in whole:
        explanation, snippets = workspace.explain("dog damage rent", hit.doc_id)
        assert explanation.score == hit.score
        assert snippets == hit.snippets
        assert sum(share.share for share in explanation.shares) == pytest.approx(hit.score)
    assert workspace.search("dog", ranker="bm25").ranker == "bm25"


def test_explains_hits_of_a_filtered_search_as_it_ranked_them(workspace):
    where = "court = 'BVerfG' and year > 2005"
    [first, *_] = workspace.search('"the dog" damage', where=where)
    assert workspace.explain('"the dog" damage', first.doc_id, where)[0].score == first.score
    assert workspace.explain('"the dog" damage', "dog/1", where)[0].score is None  # of 2001


def test_refuses_wrong_searches(workspace):
    for wrong in ({"text": " "}, {"text": "x" * 300_000}, {"text": "dog", "k": 0}, {"text": "dog", "k": 5000}):
        with pytest.raises(InputError):
            workspace.search(**wrong)
    with pytest.raises(UnknownNameError):
        workspace.search("dog", ranker="bm26")


def test_facets_count_values_and_conditions_choose_them(workspace):
    facets = {each.name: each for each in workspace.facets()}
    assert facets["court"].values == [("BGH", 12), ("BVerfG", 12)]
    assert (facets["year"].least, facets["year"].most) == (2000, 2023)
    assert (facets["date"].least, facets["date"].most) == ("2000-05-01", "2023-05-01")
    assert dict(facets["topics"].values)["civil"] == 24
    chosen = {"court": ["BGH"], "year": ["2010", ""], "topics": ["dog", "lease"], "date": [None, "2021-01-01"]}
    found = workspace.search("rent dog tax road", k=24, where=workspace.condition(chosen))
    assert found
    for hit in found:
        assert hit.metadata["court"] == "BGH"
        assert 2010 <= hit.metadata["year"] <= 2020
        assert {"dog", "lease"} & set(hit.metadata["topics"])


def test_opens_documents(workspace):
    topic = workspace.create_topic("dogs that bite")
    workspace.judge(topic.id, "dog/1", 1, "Ada")
    opened = workspace.document("dog/1", "damage of dogs")
    assert (opened.title, opened.n_passages, opened.judged) == ("Dog 1", 2, {"dogs that bite": {"Ada": 1}})
    assert opened.matching[0].passage_id == opened.passages[0].passage_id
    assert [opened.passages[0].text[a:b] for a, b in opened.passages[0].highlights] == ["dog", "damage", "dog", "dog"]
    assert workspace.document("dog/1", offset=1).passages[0].text.startswith("The appeal")
    with pytest.raises(InputError):
        workspace.document("../../etc/passwd")


def test_two_judges_get_different_documents(workspace):
    topic = workspace.create_topic("dogs")
    for _ in range(12):
        for judge in ("Ada", "Bob"):
            [document] = workspace.next(topic.id, judge=judge)
            workspace.judge(topic.id, document.doc_id, int("dog" in document.doc_id), judge)
    judged = workspace.judgements(topic.id)
    assert judged["doc_id"].is_unique
    assert len(judged) == 24
    assert workspace.next(topic.id, judge="Ada") == []
    assert workspace.topic(topic.id).judges == {"Ada": 12, "Bob": 12}


def test_offers_a_document_to_one_judge_at_a_time(workspace):
    topic = workspace.create_topic("dogs").id
    [first] = workspace.next(topic, judge="Ada")
    [second] = workspace.next(topic, judge="Bob")
    assert first.doc_id != second.doc_id
    assert workspace.next(topic, judge="Ada")[0].doc_id == first.doc_id
    assert workspace.next(topic, judge="Bob", independent=True)[0].doc_id == first.doc_id


def test_a_repeated_judgement_adds_nothing(workspace, store):
    topic = workspace.create_topic("dogs").id
    for _ in range(3):
        workspace.judge(topic, "dog/1", 1, "Ada", "bites")
    assert len(store.judgements(store.topic("dogs"))) == 1
    workspace.judge(topic, "dog/1", 0, "Ada")
    workspace.judge(topic, "dog/1", 0, "Bob")
    assert len(store.judgements(store.topic("dogs"))) == 3
    assert workspace.undo(topic, "Bob") == "dog/1"
    assert workspace.document("dog/1").judged == {"dogs": {"Ada": 0}}


def test_measures_agreement(workspace):
    topic = workspace.create_topic("dogs").id
    for number, (ada, bob) in enumerate([(1, 1), (1, 0), (0, 0), (0, 0)]):
        doc_id = list(workspace.engine.collection.doc_ids.to_pylist())[number]
        workspace.judge(topic, doc_id, ada, "Ada")
        workspace.judge(topic, doc_id, bob, "Bob")
    [pair] = workspace.judges(topic).agreement().to_dict("records")
    assert (pair["documents"], pair["agreement"], pair["kappa"]) == (4, 0.75, 0.5)


def test_reviews_go_on_while_documents_are_added_and_prepared():
    engine = Engine(decisions(), language="english", encoder="tfidf(min_df=1)")
    with JudgementStore() as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        topic = workspace.create_topic("dogs").id
        [shown] = workspace.next(topic, judge="Ada")
        engine.add({"dog/99": {"text": "Dogs, dogs and dogs.", "title": "Dogs"}})
        assert workspace.search("dogs")[0].doc_id == "dog/99"
        assert workspace.next(topic, judge="Ada")[0].doc_id == shown.doc_id  # as before
        workspace.judge(topic, "dog/99", 1, "Ada")  # found by a search before reviews know it
        assert workspace.prepare_reviews()
        assert not workspace.prepare_reviews()
        assert workspace.progress(topic).n_judged == 1
        workspace.judge(topic, shown.doc_id, 1, "Ada")
        judged = workspace.judgements(topic).set_index("doc_id")
        assert judged.loc[shown.doc_id, "rank"] == 1  # what was shown is known, after the change too
        engine.remove([workspace.next(topic, judge="Ada")[0].doc_id])
        workspace.prepare_reviews()
        assert workspace.next(topic, judge="Ada")
