"""Searches in several processes give what searches in one give, whatever happens to the processes."""

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.decisions import decisions
from support.served import Served, is_running

from haybale import Engine, parse
from haybale.errors import HaybaleError, InputError
from haybale.folders import write_json
from haybale.review import JudgementStore
from haybale.service import Workspace
from haybale.service.search_processes import SearchProcesses, SearchSetup, SearchTask
from haybale.service.search_worker import SearchWorker

RANKERS = {"both": "rrf(bm25-doc,parm-rrf)", "bm25": "bm25", "vrrf": "parm-vrrf"}
SEARCHES = [
    {"text": "who pays for the damage of a dog"},
    {"text": "dog damage rent", "k": 3, "offset": 4, "ranker": "bm25"},
    {"text": '"the dog" damage', "where": "court = 'BVerfG' and year > 2005"},
    {"text": "rent of the tenant", "where": "year > 3000", "ranker": "bm25"},
    {"text": "The tenant paid no rent.\n\nThe dog did damage.", "k": 24, "ranker": "vrrf"},
    {"text": "rent of the tenant", "k": 3, "together": "copies"},
]


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def whole(results):
    return results.query, results.ranker, results.hits, results.groups


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched") / "engine"
    Engine.build(decisions(), folder, language="english", encoder="tfidf(min_df=1)").prepare()
    return folder


def opened(folder, store, processes):
    engine = Engine.open(folder)
    return Workspace(engine, {name: parse(text).fit(engine) for name, text in RANKERS.items()}, store, None, processes)


@pytest.fixture(scope="module")
def workspaces(folder):
    """Return two workspaces of one engine, of which the second searches in two processes."""
    with JudgementStore(folder.parent / "judgements.sqlite") as store:
        alone, shared = opened(folder, store, 0), opened(folder, store, 2)
        shared.start_processes()
        until(lambda: shared.processes.n_ready == 2)
        yield alone, shared
        shared.close()
    assert not shared.processes.process_ids
    assert shared.processes.n_ready == 0


@pytest.fixture
def elsewhere(monkeypatch, workspaces):
    """Return a function that searches, and fails if the service searches itself."""
    alone, shared = workspaces

    def searched_alone(**given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("haybale.service.workspace.search", lambda *_: pytest.fail("searched in the service"))
            return shared.search(**given)

    return alone, searched_alone


@pytest.mark.parametrize("given", SEARCHES)
def test_answers_are_those_of_one_process(elsewhere, given):
    alone, searched = elsewhere
    assert whole(searched(**given)) == whole(alone.search(**given))


@pytest.mark.parametrize("wrong", [{"where": "colour = 'red'"}, {"where": "year >"}])
def test_errors_are_those_of_one_process(elsewhere, wrong):
    alone, searched = elsewhere
    with pytest.raises(InputError) as expected:
        alone.search(**{"text": "dog"} | wrong)
    with pytest.raises(type(expected.value)) as found:
        searched(**{"text": "dog"} | wrong)
    assert str(found.value) == str(expected.value)


def test_new_documents_and_an_accepted_training(elsewhere, workspaces, folder):
    alone, searched = elsewhere
    _, shared = workspaces
    Engine.open(folder).add({"whale/1": {"text": "A whale is no fish.", "title": "Whale", "year": 2024}})
    shared.processes.refresh()
    assert shared.engine.collection.n_documents == 24
    assert searched(text="whale")[0].doc_id == "whale/1"  # the processes have it before the service
    assert shared.document("whale/1").title == "Whale"  # but the service knows what a process has found
    assert not shared.refresh()
    shared.engine.add({"whale/2": {"text": "Whale, whale.", "title": "Whales", "year": 2024}})
    assert searched(text="whale")[0].doc_id == "whale/2"
    Engine.open(folder).remove(["whale/2"])
    assert shared.refresh()
    assert [hit.doc_id for hit in searched(text="whale")] == ["whale/1"]
    alone.refresh()
    for given in SEARCHES:
        assert whole(searched(**given)) == whole(alone.search(**given))

    place = folder.parent / "judgements-models" / "1"
    parse("bm25(k1=0.1)").fit(alone.engine).save(place / "model")
    for name in ("request", "result"):
        write_json(place / f"{name}.json", {"time": "2024-01-01"})
    assert alone.accept(1) == shared.accept(1)
    assert searched(text="dog damage").ranker == "bm25(k1=0.1)"
    assert whole(searched(text="dog damage")) == whole(alone.search("dog damage"))
    alone.revert()


def test_killed_processes_are_replaced_and_no_search_fails(workspaces):
    alone, shared = workspaces
    expected = whole(alone.search("dog damage", ranker="both"))
    is_over, found = threading.Event(), []

    def search():
        while not is_over.is_set():
            found.append(whole(shared.search("dog damage", ranker="both")) == expected)

    with ThreadPoolExecutor(4) as clients:
        searching = [clients.submit(search) for _ in range(4)]
        try:
            first, second = shared.processes.process_ids.values()
            os.kill(first, signal.SIGTERM)  # ignored
            until(lambda: len(found) > 20)
            assert first in shared.processes.process_ids.values()
            os.kill(first, signal.SIGKILL)
            until(lambda: len(found) > 40)
            os.kill(second, signal.SIGKILL)  # the service searches itself
            until(lambda: len(found) > 80)
        finally:
            is_over.set()
    assert [each.result() for each in searching] == [None] * 4
    assert all(found)
    until(lambda: shared.processes.n_ready == 2)
    assert not {first, second} & set(shared.processes.process_ids.values())


def test_the_service_searches_itself_without_a_process_that_can(workspaces, folder, tmp_path):
    alone, _ = workspaces
    processes = SearchProcesses(alone.engine, {}, 1)
    assert processes.search("both", "dog", 10) is None  # none was started
    processes.close()
    with JudgementStore() as store:
        engine = Engine(decisions(), language="english", encoder="tfidf(min_df=1)")
        in_memory = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store, processes=2)
        in_memory.start_processes()
        assert in_memory.search("dog")
        assert in_memory.processes is None

    # A process tells the service why it cannot search.
    with pytest.raises(HaybaleError):
        SearchWorker(SearchSetup(folder, "of another engine", None, [], tmp_path))
    worker = SearchWorker(SearchSetup(folder, alone.engine.id, None, [tmp_path / "missing"], tmp_path))
    assert isinstance(worker.answer(SearchTask(tmp_path / "missing", "dog", 10, None, 0, True)), str)


def test_a_process_searches_only_by_the_ranker_of_the_service(folder, tmp_path):
    """The ranker in a folder is replaced by another one: it is searched when the service has it, too."""
    engine, model = Engine.open(folder), tmp_path / "model"
    worker = SearchWorker(SearchSetup(folder, engine.id, None, [], tmp_path))
    tasks, expected = [], []
    for text in ("bm25(k1=0.1,b=0)", "bm25(k1=8,b=1)"):
        shutil.rmtree(model, ignore_errors=True)
        ranker = parse(text).fit(engine)
        ranker.save(model)
        processes = SearchProcesses(engine, {}, 1)
        processes.add("trained", model)
        [(place, manifest)] = processes._folders.values()
        tasks.append(SearchTask(place, "dog damage rent", 10, None, 0, True, manifest))
        expected.append([(hit.doc_id, hit.score) for hit in ranker.search("dog damage rent")])
        assert [(hit.doc_id, hit.score) for hit in worker.answer(tasks[-1])] == expected[-1]
    assert expected[0] != expected[1]
    assert isinstance(worker.answer(tasks[0]), str)
    assert [(hit.doc_id, hit.score) for hit in worker.answer(tasks[1])] == expected[1]


@pytest.mark.thorough
def test_processes_end_when_the_service_is_killed(folder, tmp_path, monkeypatch):
    """``test_durability.py`` ends a service as it should be."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Served(folder, "--judgements", str(tmp_path / "judgements.sqlite"), processes=1) as served:
        served.wait_for_processes()
        [child] = served.children
        assert served.ask("/api/search?q=dog")["hits"]
        assert served.memory()[1] > 1e6
        assert list(tmp_path.glob("haybale-*/0"))  # the saved ranker
        served.process.kill()
        served.process.wait()
        until(lambda: not is_running(child), 20)
        until(lambda: not list(tmp_path.glob("haybale-*")), 20)
