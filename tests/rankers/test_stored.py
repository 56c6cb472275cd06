"""Runs of other engines as rankers: forms, order, unknown ids, saving, and what learns from them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.topics import SVR as SMALL_SVR
from support.topics import topic_collection

from haybale import Engine, Run, compare, load
from haybale.errors import FileFormatError, InputError
from haybale.rankers import BM25, KNN, RRF, SVR, ChangedRunWarning, Learned, Stored, parse
from haybale.search.query_batch import QueryBatch

pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
ROWS = [("q1", "b", 2.0, 1), ("q1", "c", 1.0, 2), ("q1", "a", 1.0, 3), ("q2", "d", 0.0, 1), ("q2", "a", -0.0, 2)]
ORDER = {"q1": ["b", "c", "a"], "q2": ["d", "a"]}  # by score, then by rank, and not by id


@pytest.fixture(scope="module")
def small() -> Engine:
    return Engine({name: f"text {name}" for name in "abcd"}, encoder="tfidf(min_df=1)", language="english")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(topic_collection())


@pytest.fixture(scope="module")
def runs(engine: Engine) -> dict[str, dict[str, Run]]:
    """Return runs of two rankers by split, as another engine would have made them."""
    return {
        name: {split: parse(name).fit(engine).rank(split, depth=30) for split in ("train", "dev")}
        for name in ("bm25-doc", "knn")
    }


def frame(rows: list[tuple[str, str, float, int]] = ROWS) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "score", "rank"])


def trec(path: Path, rows: list[tuple[str, str, float, int]] = ROWS) -> Path:
    text = "".join(f"{query} Q0 {doc} {rank} {score} other\n" for query, doc, score, rank in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def in_order(engine: Engine, stored: Stored, **options: Any) -> dict[str, list[str]]:
    run = stored.fit(engine).rank({"q1": "one", "q2": "two"}, **options)
    return {query: [doc for doc, _ in run[query]] for query in run.query_ids}


def test_every_form_is_ranked_in_the_same_order(small: Engine, tmp_path: Path) -> None:
    backwards = frame(ROWS[::-1])
    one, other = (trec(tmp_path / f"{query}.trec", [row for row in ROWS if row[0] == query]) for query in ("q1", "q2"))
    lists = {query: [(doc, score) for name, doc, score, _ in ROWS if name == query] for query in ORDER}
    ranked = {query: {"q": 1}.get(query, documents) for query, documents in ORDER.items()}
    forms: list[Any] = [
        trec(tmp_path / "run.trec"),
        str(trec(tmp_path / "run.trec.gz", ROWS[::-1])),
        [one, str(other)],
        {"train": one, "test": other},
        {"train": one, "test": frame([row for row in ROWS if row[0] == "q2"])},
        {"all": lists},
        frame(),
        backwards,
        lists,
        ranked,
        Stored(frame()).fit(small).rank({"q1": "one", "q2": "two"}),
        lambda texts, depth: {query: lists[query] for query in texts},
    ]
    for form in forms:
        assert in_order(small, Stored(form)) == ORDER, form
        assert in_order(small, Stored(form), depth=1) == {"q1": ["b"], "q2": ["d"]}, form


def test_ties_without_a_rank_are_in_the_order_of_ids(small: Engine, tmp_path: Path) -> None:
    by_id = {"q1": ["b", "a", "c"], "q2": ["a", "d"]}
    mapping = {query: {doc: score for name, doc, score, _ in ROWS if name == query} for query in ORDER}
    path = tmp_path / "run.trec"
    path.write_text("".join(f"{query} Q0 {doc} - {score} other\n" for query, doc, score, _ in ROWS))
    for form in (frame().drop(columns="rank"), mapping, path):
        assert in_order(small, Stored(form)) == by_id


def test_documents_in_order_have_reciprocal_scores(small: Engine) -> None:
    assert Stored({"q": ["c", "a"], "none": []}).fit(small).rank({"q": "x", "none": "y"}).to_frame()[
        ["query_id", "doc_id", "true_score"]
    ].to_numpy().tolist() == [["q", "c", 1.0], ["q", "a", 0.5]]


def test_own_documents_and_those_outside_are_left_out(small: Engine) -> None:
    fitted = Stored(frame()).fit(small)
    queries = pd.DataFrame({"query_id": ["q2", "q1"], "text": ["x", "y"], "own": [None, "b"]})
    run = fitted.rank(queries)
    assert {query: [doc for doc, _ in run[query]] for query in run.query_ids} == {"q2": ["d", "a"], "q1": ["c", "a"]}
    assert fitted.rank({"q1": "x"}, within=["a", "c", "d"])["q1"] == [("c", 1.0), ("a", 1.0)]
    assert fitted.explain({"q1": "x"}, "a", within=["a", "c", "d"]).rank == 2
    assert fitted.explain({"q1": "x"}, "d").rank is None


def test_unknown_queries_and_documents(small: Engine) -> None:
    fitted = Stored(frame()).fit(small)
    with pytest.raises(InputError, match=r"all 4 queries, found none for 2, such as 'q8', 'q9'"):
        fitted.rank({"q1": "x", "q8": "x", "q2": "x", "q9": "x"})
    empty = Stored(frame(), unknown_queries="empty").fit(small).rank({"q8": "x", "q1": "x"})
    assert (empty["q8"], empty["q1"][0][0]) == ([], "b")
    elsewhere = frame([*ROWS, ("q1", "z9", 1.5, 4), ("q3", "y", 1.0, 1)])
    with pytest.raises(InputError, match=r"found 1 others, such as 'z9'"):
        Stored(elsewhere).fit(small).rank({"q1": "x"})
    assert in_order(small, Stored(elsewhere, unknown_documents="drop")) == ORDER
    assert Stored(elsewhere).fit(small).rank({"q2": "x"})["q2"][0][0] == "d"


def test_a_text_without_an_id_is_refused_before_any_work(small: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have a query '0', which is not the first of some texts."""
    fitted = RRF(BM25(), Stored({"0": ["a"], "query": ["b"]})).fit(small)
    assert fitted.rank({"0": "text a"}, depth=1)["0"][0][0] == "a"
    monkeypatch.setattr(BM25, "rank_batch", lambda *_: pytest.fail("ranked"))
    for use in (fitted.rank, fitted.search, lambda text: fitted.rank([text]), lambda text: fitted.explain(text, "a")):
        with pytest.raises(InputError, match="a text without an id"):
            use("text a")


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (3, "TREC file.*found int"),
        ([], "empty list"),
        ({"q": 3}, "found int"),
        ({"q": [("a", "x")]}, "query 'q'"),
        ({"q": ["a", "a"]}, "'a' twice"),
        ({"q": {"a": float("nan")}}, "finite"),
        ([{"q": ["a"]}, {"q": ["b"]}], "'q' in two"),
        (pd.DataFrame({"query_id": ["q"], "doc_id": ["a"]}), "column score"),
        (frame().assign(doc_id=[None, "b", "c", "d", "e"]), "row 0 has no doc_id"),
    ],
)
def test_wrong_runs_are_refused(small: Engine, runs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Stored(runs).fit(small)


def test_wrong_files_are_named(small: Engine, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"none\.trec: .*found no file"):
        parse(f"run('{tmp_path / 'none.trec'}')").fit(small)
    for name, text, message in (
        ("a", "q1 Q0 a 1 x tag\n", "line 1: .*finite number"),
        ("b", "q1 Q0 a 1 2 tag\nq1 Q0 a 2 1 tag\n", "'a' twice"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(FileFormatError, match=rf"{tmp_path / name}.*{message}"):
            Stored(tmp_path / name).fit(small)


def test_files_are_saved_by_their_digest(small: Engine, tmp_path: Path) -> None:
    path = trec(tmp_path / "run.trec")
    ranker = RRF(BM25(), Stored(path)).fit(small)
    ranker.save(tmp_path / "model")
    expected = ranker.rank({"q1": "text a", "q2": "x"})
    assert load(tmp_path / "model", small).rank({"q1": "text a", "q2": "x"}) == expected
    trec(path, [*ROWS, ("q3", "d", 1.0, 1)])
    with pytest.warns(ChangedRunWarning, match=r"run\.trec.*another run file"):
        changed = load(tmp_path / "model", small)
    assert changed.rank({"q3": "x"})["q3"][0][0] == "d"
    assert ranker.rank({"q1": "text a", "q2": "x"}) == expected, "a fitted ranker keeps the run that it has read"
    path.unlink()
    with pytest.raises(FileFormatError, match=r"run\.trec: .*found no file"):
        load(tmp_path / "model", small)


def test_runs_in_memory_are_saved_with_the_ranker(small: Engine, tmp_path: Path) -> None:
    runs = {"q1": {"b": 2.0, "c": 1.0}, "q2": ["d"], "q3": {}}
    for number, label in enumerate((None, "other")):
        ranker = RRF(Stored(runs, label=label), BM25()).fit(small)
        ranker.save(tmp_path / str(number))
        loaded = load(tmp_path / str(number), small)
        queries = {"q1": "text a", "q2": "x", "q3": "x"}
        assert (str(loaded), loaded.rank(queries)) == (str(ranker), ranker.rank(queries))
        loaded.save(tmp_path / f"again{number}")
        with pytest.raises(InputError, match="give the run again"):
            loaded.clone().fit(small)
    with pytest.raises(InputError, match="found a function"):
        Stored(lambda texts, depth: {}).fit(small).save(tmp_path / "function")


def test_equal_runs_are_equal_rankers() -> None:
    assert Stored(frame()) == Stored(frame(ROWS[::-1])) != Stored(frame(ROWS[1:]))
    assert str(Stored(frame())) == str(Stored(frame(ROWS[::-1]))) != str(Stored(frame(ROWS[1:])))
    given_frame = frame()
    ranker = Stored(given_frame, label="bm25s")
    assert ranker.clone().runs is given_frame
    assert str(ranker) == "run(label='bm25s')"
    assert ranker.set_params(runs=["a"]) == Stored(("a",), label="bm25s")


def test_learned_and_evidence_are_those_of_the_rankers_that_made_the_runs(
    engine: Engine, runs: Mapping[str, Mapping[str, Run]], tmp_path: Path
) -> None:
    """Fusing runs of BM25 and kNN gives what fusing BM25 and kNN gives, in memory, from files and after loading."""
    for split, run in runs["knn"].items():
        run.to_trec(tmp_path / f"{split}.trec.gz")
    stored = Stored(runs["bm25-doc"]), Stored([tmp_path / "train.trec.gz", tmp_path / "dev.trec.gz"])
    originals = BM25("document"), KNN()
    kinds: list[Any] = [
        lambda parts: RRF(*parts, depth=30),
        lambda parts: Learned(*parts, depth=30),
        lambda parts: parse(f"svr({SMALL_SVR})").set_params(evidence=parts),
    ]
    for number, kind in enumerate(kinds):
        expected = kind(originals).fit(engine).rank("dev", depth=12)
        ranker = kind(stored).fit(engine)
        run = ranker.rank("dev", depth=12)
        for query in run.query_ids:
            ranked = dict(run[query])
            assert list(ranked) == [doc for doc, _ in expected[query]]
            np.testing.assert_allclose(
                list(ranked.values()), list(dict(expected[query]).values()), rtol=1e-5, atol=1e-6
            )
        best = run[run.query_ids[0]][0][0]
        dev = engine.collection.queries.take(engine.collection.split("dev").queries[:1])
        why = ranker.explain(dev, best)
        assert sum(share.share for share in why.shares) == pytest.approx(why.score, rel=1e-4)
        ranker.save(tmp_path / str(number))
        assert load(tmp_path / str(number), engine).rank("dev", depth=12) == run


def test_training_queries_without_rankings_are_an_error_before_training(
    engine: Engine, runs: Mapping[str, Mapping[str, Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BM25, "fit_batch", lambda *_: pytest.fail("fitted"))
    only_dev = Stored(runs["knn"]["dev"])
    for ranker in (Learned(BM25(), only_dev), SVR([BM25(), only_dev]), Learned(SVR(), RRF(BM25(), only_dev))):
        with pytest.raises(InputError, match=r"found none for \d+, such as"):
            ranker.fit(engine)


def test_compare_checks_the_queries_of_the_split_first(
    engine: Engine, runs: Mapping[str, Mapping[str, Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = compare(engine, {"other": Stored(runs["knn"]["dev"])}, measures=["nDCG@10"])
    own = compare(engine, "knn", measures=["nDCG@10"])
    assert outcome.results.values["other"].equals(own.results.values["knn"])
    monkeypatch.setattr(BM25, "fit_batch", lambda *_: pytest.fail("fitted"))
    with pytest.raises(InputError, match="found none for"):
        compare(engine, {"other": Stored(runs["knn"]["train"])})


def test_removed_documents(tmp_path: Path, runs: Mapping[str, Mapping[str, Run]]) -> None:
    engine = Engine.build(topic_collection(), tmp_path / "engine")
    strict, lenient = Stored(runs["knn"]["dev"]), Stored(runs["knn"]["dev"], unknown_documents="drop")
    fitted = [stored.fit(engine) for stored in (strict, lenient)]
    query = runs["knn"]["dev"].query_ids[0]
    first, second, *_ = [doc for doc, _ in runs["knn"]["dev"][query]]
    batch = QueryBatch(engine, engine.collection.queries.take(engine.collection.split("dev").queries[:1]))
    assert fitted[0].run(batch, 2)[query][0][0] == first
    engine.remove([first])
    with pytest.raises(InputError, match=f"such as {first!r}"):
        fitted[0].rank("dev")
    assert fitted[1].rank("dev")[query][0][0] == second
    assert fitted[0].run(batch, 2)[query][0][0] == first, "a batch keeps the documents that it began with"
