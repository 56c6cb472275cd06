"""With dates, the ranking of each query is that within the documents that are certainly earlier than it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import assert_same
from support.topics import RANKERS, SVR

from haybale import Engine, Stored, compare, load, parse
from haybale.collections import Collection
from haybale.collections.dates import UNDATED, days_of, first_day
from haybale.collections.metadata import metadata_table
from haybale.errors import InputError, UnknownNameError
from haybale.rankers import Ranker, Share, Training, queries_from
from haybale.reports import write_report
from haybale.retrieval import Run
from haybale.retrieval.exclusion import NO_DATE
from haybale.search import query_batch
from haybale.search.cutoffs import cutoffs_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning"),
    pytest.mark.filterwarnings("ignore:.* bags"),
    pytest.mark.filterwarnings("ignore:.*training queries for n_bags"),
    pytest.mark.filterwarnings("ignore:before="),
]
CASES = (*RANKERS, f"svr(evidence=[],candidates=[bm25,knn],unit=passage,{SVR})", "popularity", "length")


class Length(Ranker):
    """Rank documents by their number of passages; it knows nothing of dates."""

    name = "length"

    def __init__(self) -> None:
        pass

    def rank_batch(self, batch: Any, depth: int) -> Run:
        sizes = np.diff(batch.engine.collection.passages.doc_offsets)
        rows, documents = (part.ravel() for part in np.indices((len(batch), len(sizes))))
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, sizes[documents], depth)

    def explain_document(self, batch: Any, document: int, base: Any) -> Any:
        size = np.diff(batch.engine.collection.passages.doc_offsets)[document]
        return replace(base, shares=[Share("passages", float(size))])


def dated(topics: Collection, seed: int, n_days: int = 9) -> Collection:
    """Return the collection with random dates: some documents and queries have none, or only a year or a month."""
    rng = np.random.default_rng(seed)

    def date_of() -> str | None:
        day = np.datetime64("2018-12-28") + int(rng.integers(n_days))
        return [str(day), str(day), str(day), str(day)[:7], str(day)[:4], None][int(rng.integers(6))]

    days = np.datetime64("2018-12-28").astype("datetime64[D]").astype(np.int64) + rng.integers(
        1, n_days + 4, size=len(topics.queries)
    )
    days[(rng.random(len(days)) < 0.3) & (topics.queries.own >= 0)] = UNDATED  # these have that of their own document
    metadata = metadata_table([{"date": date_of()} for _ in range(topics.n_documents)])
    return replace(topics, queries=replace(topics.queries, dates=days), metadata=metadata)


def days_of_queries(engine: Engine, split: str) -> dict[str, tuple[int, set[str]]]:
    """Return the day of each query with a date, and the ids of the earlier documents."""
    collection = engine.collection
    queries = collection.queries.take(collection.split(split).queries)
    cutoffs, ids = cutoffs_of(collection, queries, "date"), np.array(collection.doc_ids.to_pylist())
    return {
        query: (day, set(ids[cutoffs.documents < day].tolist()))
        for query, day in zip(queries.ids.to_pylist(), cutoffs.queries.tolist(), strict=True)
        if day != UNDATED
    }


def dated_queries(engine: Engine, split: str) -> Any:
    numbers = engine.collection.query_numbers(days_of_queries(engine, split))
    return engine.collection.queries.take(numbers)


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 1000), encoder=st.sampled_from(["tfidf", "lsa(n_components=12)"]))
@settings(max_examples=3, deadline=None)
def test_no_candidate_is_later_than_its_query(topics: Collection, name: str, seed: int, encoder: str) -> None:
    """Also out of fold, and the ranking is that within the earlier documents."""
    engine = Engine(dated(topics, seed), encoder=encoder)
    ranker = parse(name).fit(engine, before="date")
    for split, rank in (("dev", ranker.rank), ("train", ranker.out_of_fold)):
        earlier = days_of_queries(engine, split)
        run = rank(dated_queries(engine, split), before="date")
        assert run.query_ids == list(earlier)
        assert sum(len(run[query]) for query in run.query_ids) > 5
        for query in run.query_ids:
            assert {doc_id for doc_id, _ in run[query]} <= earlier[query][1]
    if any(part in name for part in ("queries", "svr", "popularity", "unseen")):
        return  # a training query that is later than the query is hidden, too, which `within` does not do
    for query, (_, ids) in days_of_queries(engine, "dev").items():
        one = engine.collection.queries.take(engine.collection.query_numbers([query]))
        has_text = {doc for doc in ids if doc != "blank"}
        part = ranker.rank(one, within=sorted(ids))[query] if has_text else []
        whole = ranker.rank(one, before="date")[query]
        assert [doc for doc, _ in whole] == [doc for doc, _ in part]
        assert [score for _, score in whole] == pytest.approx([score for _, score in part], rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_where_all_documents_are_earlier_nothing_changes(topics: Collection, name: str) -> None:
    rows = [{"date": 1990 + number % 9} for number in range(topics.n_documents)]
    days = np.full(len(topics.queries), 365 * 40)
    collection = replace(topics, metadata=metadata_table(rows), queries=replace(topics.queries, dates=days))
    engine = Engine(collection)
    plain, ranker = parse(name).fit(engine), parse(name).fit(engine, before="date")
    assert_same(ranker.rank("dev", before="date"), plain.rank("dev"))
    assert_same(ranker.out_of_fold("train", before="date"), plain.out_of_fold("train"))


def day(text: str) -> int:
    return int(np.datetime64(text, "D").astype(np.int64))


def test_a_year_or_month_means_any_of_its_days() -> None:
    ids = pa.chunked_array([["a", "b", "c", "d", "e"]])
    texts = pa.chunked_array([["2020", "2020-02", "2020-02-10", None, "2020-02-10T09:30:00"]])
    first, last = days_of(texts, ids, NO_DATE)
    assert first.tolist() == [day("2020-01-01"), day("2020-02-01"), day("2020-02-10"), NO_DATE, day("2020-02-10")]
    assert last.tolist() == [day("2020-12-31"), day("2020-02-29"), day("2020-02-10"), NO_DATE, day("2020-02-10")]
    years = pa.chunked_array([pa.array([2019, None], type=pa.int64())])
    assert days_of(years, ids, NO_DATE)[1].tolist() == [day("2019-12-31"), NO_DATE]
    dates = metadata_table([{"date": "2020-02-10"}, {}])
    assert dates is not None
    assert [part.tolist() for part in days_of(dates["date"], ids, NO_DATE)] == [[day("2020-02-10"), NO_DATE]] * 2
    assert [first_day(value, "") for value in (pd.Timestamp("2020-02-10 12:00"), 2020.0, "", float("nan"))] == [
        day("2020-02-10"), day("2020-01-01"), UNDATED, UNDATED,
    ]  # fmt: skip
    for value in ("10.02.2020", "2020-13", "2020-02-30", 20200210, 2020.5, True):
        with pytest.raises(InputError, match="query 'q'"):
            first_day(value, "query 'q'")
    with pytest.raises(InputError, match=r"'b'.*'n\. d\.'"):
        days_of(pa.chunked_array([["2020", "n. d."]]), ids, NO_DATE)


@pytest.fixture(scope="module")
def small() -> Engine:
    documents = pd.DataFrame(
        [
            ("old", "a dog on a lead", "1999"),
            ("same", "a dog in the park", "2005-06-01"),
            ("month", "the dog tax", "2005-06"),
            ("undated", "dogs and cats", None),
            ("late", "a dog must be muzzled", "2010-01-31"),
        ],
        columns=["doc_id", "text", "date"],
    )
    return Engine(documents, language="english")


def test_documents_must_be_certainly_earlier(small: Engine) -> None:
    """Documents of the same day, of a month that may be later, and without a date are not found."""
    ranker = parse("bm25").fit(small)
    frame = pd.DataFrame(
        {"query_id": ["a", "b", "c", "d"], "text": "dog", "date": ["2005-06-01", "2005-07", 2010, 2011]}
    )
    found = {"a": {"old"}, "b": {"old", "same", "month"}, "c": {"old", "same", "month"}}
    found["d"] = found["c"] | {"late"}
    run = ranker.rank(frame, before="date")
    assert {query: {doc for doc, _ in run[query]} for query in run.query_ids} == found
    of_documents = pd.DataFrame({"query_id": ["a", "b"], "text": "dog", "own": ["same", "late"]})
    own = ranker.rank(of_documents, before="date")
    assert [{doc for doc, _ in own[query]} for query in "ab"] == [{"old"}, {"old", "same", "month"}]


def test_wrong_dates(small: Engine) -> None:
    ranker = parse("bm25").fit(small)
    with pytest.raises(InputError, match=r"1 of 2 .*'b'"):
        ranker.rank(pd.DataFrame({"query_id": ["a", "b"], "text": "dog", "date": ["2005", None]}), before="date")
    with pytest.raises(InputError, match="'q'"):
        ranker.rank({"q": "dog"}, before="date")
    with pytest.raises(InputError, match="have none"):
        ranker.rank(pd.DataFrame({"query_id": ["a"], "text": "dog", "own": ["undated"]}), before="date")
    with pytest.raises(UnknownNameError, match="date"):
        ranker.rank({"q": "dog"}, before="dates")
    with pytest.raises(InputError, match="no metadata"):
        parse("bm25").fit(Engine({"a": "dog"})).rank({"q": "dog"}, before="date")
    qrels = pd.DataFrame({"query_id": ["a", "b"], "doc_id": "old", "relevance": 1})
    judged = {"a": "dog", "b": "a lead"}
    undated = parse("knn-queries").fit(small, judged, qrels)
    with pytest.raises(InputError, match="before="):
        undated.rank(pd.DataFrame({"query_id": ["q"], "text": "dog", "date": ["2005"]}), before="date")
    with pytest.raises(InputError, match="earlier"):
        parse("knn-queries").fit(small, judged, qrels, before="date")


def test_what_training_leaves_out_is_counted(small: Engine) -> None:
    queries = pd.DataFrame(
        {"query_id": ["a", "b", "c"], "text": ["dog", "lead", "dog tax"], "date": ["2005", None, "2009"]}
    )
    qrels = pd.DataFrame([("a", "old", 1), ("a", "same", 1), ("b", "old", 1), ("c", "late", 0), ("c", "month", 1)])
    qrels.columns = ["query_id", "doc_id", "relevance"]
    training = Training.of(small, queries, qrels, before="date")
    assert training.batch.ids == ["a", "c"]
    assert training.relevant == [["old"], ["month"]]
    assert list(training.left_out.values()) == [1, 2]
    with pytest.warns(UserWarning, match="leaves out 1 .*, 2 "):
        ranker = parse("knn-queries").fit(small, queries, qrels, before="date")
    for name in ("knn-queries", "popularity"):  # judgements of later queries are not known yet
        ranker = parse(name)._fitted_copy(training)
        for date, found in (("2004", []), ("2005", ["old"]), ("2010-02", ["month", "old"])):
            asked = pd.DataFrame({"query_id": ["q"], "text": "dog park", "date": [date]})
            assert sorted(doc for doc, _ in ranker.rank(asked, before="date")["q"]) == found


@pytest.mark.parametrize("name", ["bm25-doc", "knn", "parm-vrrf", "length", "popularity", "learned(bm25,knn-queries)"])
def test_segments_blocks_other_processes_and_saved_rankers(
    topics: Collection, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    collection = dated(topics, 5)
    whole = Engine(collection)
    expected = parse(name).fit(whole, before="date").rank(dated_queries(whole, "test"), before="date")
    engine = Engine.build(collection, tmp_path / "engine", segments=4)
    ranker = parse(name).fit(engine, before="date")
    queries = dated_queries(engine, "test")
    assert_same(ranker.rank(queries, before="date"), expected)
    ranker.save(tmp_path / "ranker")
    again = load(tmp_path / "ranker", Engine.open(tmp_path / "engine"))
    assert_same(again.rank(queries, before="date"), expected)
    monkeypatch.setattr(query_batch, "BLOCK", 2)
    monkeypatch.setattr(query_batch, "_MAX_BLOCK_FACTOR", 1)
    with joblib.parallel_config(backend="loky" if name != "length" else "threading", n_jobs=2):
        assert_same(again.rank(queries, before="date"), expected)


def test_added_queries_keep_their_dates(small: Engine, tmp_path: Any) -> None:
    documents = pd.DataFrame({"doc_id": ["a", "b"], "text": ["a dog", "dogs"], "date": ["2001", "2003"]})
    engine = Engine.build(documents, tmp_path / "engine", language="english")
    queries = pd.DataFrame({"query_id": ["x", "y"], "text": ["dog", "two dogs"], "date": ["2002-05", None]})
    qrels = pd.DataFrame({"query_id": ["x", "y"], "doc_id": "a", "relevance": 1})
    engine.judge(qrels, queries)
    for opened in (engine, Engine.open(tmp_path / "engine")):
        assert opened.collection.queries.dates.tolist() == [day("2002-05-01"), UNDATED]
        run = parse("bm25").fit(opened).rank(opened.collection.queries.take([0]), before="date")
        assert [doc for doc, _ in run["x"]] == ["a"]


@pytest.mark.parametrize("name", ["bm25", "length", "rrf(length,bm25)", "learned(bm25,knn-queries,popularity)"])
def test_explanations(topics: Collection, name: str) -> None:
    engine = Engine(dated(topics, 11))
    ranker = parse(name).fit(engine, before="date")
    earlier = days_of_queries(engine, "dev")
    run = ranker.rank(dated_queries(engine, "dev"), before="date")
    for query in run.query_ids[:4]:
        one = engine.collection.queries.take(engine.collection.query_numbers([query]))
        for rank, (doc_id, score) in enumerate(run[query][:3], 1):
            explanation = ranker.explain(one, doc_id, before="date")
            assert (explanation.rank, explanation.score) == (rank, pytest.approx(score))
            assert sum(share.share for share in explanation.shares) == pytest.approx(score)
        later = next(doc for doc in engine.collection.doc_ids.to_pylist() if doc not in earlier[query][1])
        assert ranker.explain(one, later, before="date").rank is None


def test_comparisons_leave_out_later_documents(topics: Collection, tmp_path: Any) -> None:
    engine = Engine(dated(topics, 3))
    outcome = compare(engine, "bm25,knn-queries", before="date")
    earlier = days_of_queries(engine, "dev")
    assert outcome.settings_dict()["before"] == "date"
    relevant = dict(zip(earlier, engine.collection.relevant_ids("dev"), strict=True))
    judged = {query: set(ids) & earlier[query][1] for query, ids in relevant.items()}
    assert outcome.results.n_queries == sum(map(bool, judged.values()))
    for name, run in outcome.runs.items():
        assert run == parse(name)._fitted_copy(Training.of(engine, before="date")).rank(
            dated_queries(engine, "dev"), before="date"
        )
    n_relevant = sum(map(len, relevant.values())) - sum(map(len, judged.values()))
    n_irrelevant = sum(
        doc not in earlier[query][1]
        for query, ids in zip(earlier, engine.collection.irrelevant_ids("dev"), strict=True)
        for doc in ids
    )
    left_out = list(outcome.facts["left out by dates"].values())
    assert left_out[:2] == [0, n_relevant + n_irrelevant]
    outcome.write(tmp_path / "out")
    report = write_report([tmp_path / "out"], tmp_path / "page.html", collection=engine, picture="none")
    for name, values in outcome.results.values.items():
        pd.testing.assert_frame_equal(report.results.values[name], values)


def test_queries_in_files(small: Engine, tmp_path: Any) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": "a", "text": "dog", "date": "2005-06"}\n{"_id": "b", "text": "cat"}\n')
    (tmp_path / "q.csv").write_text("id,text,date\na,dog,2005-06\nb,cat,\n")
    for name in ("q.jsonl", "q.csv"):
        assert queries_from(small.collection, tmp_path / name).dates.tolist() == [day("2005-06-01"), UNDATED]
    (tmp_path / "q.csv").write_text("id,text,date\na,dog,June\n")
    with pytest.raises(InputError, match="June"):
        queries_from(small.collection, tmp_path / "q.csv")


@pytest.mark.parametrize("name", ["knn", "knn-doc(top=1)", "parm-vrrf", "rrf(knn,bm25)"])
def test_an_engine_on_a_device_finds_the_same(topics: Collection, cupy: Any, name: str) -> None:
    collection = dated(topics, 7)
    runs = []
    for device in ("cpu", "cuda"):
        engine = Engine(collection, encoder="lsa(n_components=8)", device=device)
        runs.append(parse(name).fit(engine).rank(dated_queries(engine, "test"), before="date"))
    for query in runs[0].query_ids:
        expected, found = (dict(run[query]) for run in runs)
        assert found == pytest.approx(expected, abs=1e-5)


def test_runs_of_another_engine_have_the_dates_of_the_documents(topics: Collection) -> None:
    engine = Engine(dated(topics, 13))
    knn = parse("knn").fit(engine)
    queries = dated_queries(engine, "dev")
    stored = Stored(knn.rank(queries)).fit(engine, before="date")
    run = stored.rank(queries, before="date", depth=5)
    assert sum(len(run[query]) for query in run.query_ids) > 10
    assert [doc for query in run.query_ids for doc, _ in run[query]] == [
        doc for query in run.query_ids for doc, _ in knn.rank(queries, before="date", depth=5)[query]
    ]
