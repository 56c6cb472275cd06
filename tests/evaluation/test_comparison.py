"""Comparisons as a whole: what is ranked, what no ranker sees, what is written, what is refused, what a kill leaves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same, tree
from support.topics import LEARNED, RANKERS, SVR

from haybale import Engine
from haybale.collections import Collection, CollectionBuilder
from haybale.ensemble import SVREnsemble
from haybale.errors import InputError, OutputExistsError, UnknownNameError
from haybale.evaluation import MEASURES, compare, evaluate
from haybale.evaluation.comparison import default_rankers, file_name
from haybale.rankers import BM25, KNN, RRF, SimilarQueries, from_spec, load, parse
from haybale.retrieval import Run

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* bags have no relevant row", "ignore::haybale.rankers.EmptyRankingWarning"
)
SOME = ("bm25", "knn-doc", "knn-queries(k=7)", f"svr-memory({SVR})", f"rrf(bm25,svr-memory({SVR}))", LEARNED)


@pytest.fixture(scope="module")
def engine(topics: Collection) -> Engine:
    return Engine(topics)


def turned(collection: Collection, split: str) -> Collection:
    """With other judgements in one split: every document's are the next one's."""
    part = collection.splits[split]
    other = replace(part, judged_documents=np.roll(part.judged_documents, 1))
    return replace(collection, splits={**collection.splits, split: other})


def test_every_ranker_is_compared(engine: Engine, topics: Collection) -> None:
    stages: list[str] = []
    assert ",".join(map(str, default_rankers())) == "bm25,bm25-doc,knn,knn-doc,parm-vrrf,svr,learned"
    outcome = compare(engine, RANKERS, report=lambda stage, seconds: stages.append(stage))
    assert list(outcome.runs) == list(outcome.rankers) == list(RANKERS)
    ids = topics.queries.ids.take(topics.split("dev").queries).to_pylist()
    for name, run in outcome.runs.items():
        assert run.query_ids == ids, name
        assert_same(run, parse(name).fit(engine).rank("dev"))
        assert evaluate(run, topics.qrels_frame("dev")).equals(outcome.results.values[name]), name
        assert outcome.rankers[name] == parse(name)
    assert outcome.results.baseline == "bm25"
    assert outcome.results.measures == list(MEASURES)
    assert outcome.results.n_queries == len(set(topics.qrels_frame("dev").query("relevance > 0")["query_id"]))
    assert set(stages) == set(outcome.seconds)
    assert all(seconds >= 0 for seconds in outcome.seconds.values())
    assert "evaluate" in outcome.seconds


@pytest.mark.parametrize(
    ("rankers", "how", "expected"),
    [
        ("knn, bm25, knn-doc", {}, ["bm25", "knn", "knn-doc"]),
        ([KNN(), "bm25-doc"], {"baseline": "bm25-doc"}, ["bm25-doc", "knn"]),
        (["knn"], {"baseline": BM25("document", k1=6)}, ["bm25-doc(k1=6)", "knn"]),
        ({"mine": KNN(), "theirs": "bm25"}, {"baseline": "theirs"}, ["theirs", "mine"]),
        ({"mine": KNN(), "theirs": "bm25"}, {}, ["bm25", "mine", "theirs"]),
        ([], {"baseline": "knn"}, ["knn"]),
    ],
)
def test_the_baseline_comes_first(engine: Engine, rankers: Any, how: dict[str, Any], expected: list[str]) -> None:
    outcome = compare(engine, rankers, **how)
    assert list(outcome.runs) == expected
    assert outcome.results.baseline == expected[0]
    assert set(outcome.results.comparisons) == set(expected[1:])


def test_an_engine_or_a_collection(engine: Engine, topics: Collection) -> None:
    first, second = compare(engine, ["knn"], split="test"), compare(topics, ["knn"], split="test")
    assert first.runs == second.runs
    assert first.split == "test"


def test_other_labels_change_measures_and_no_ranking(topics: Collection) -> None:
    first, second = compare(topics, SOME), compare(turned(topics, "dev"), SOME)
    for name in SOME:
        assert first.runs[name] == second.runs[name], name
    assert not first.results.values["bm25"].equals(second.results.values["bm25"])


def test_trained_and_evaluated_on_the_same_split(engine: Engine, tmp_path: Path) -> None:
    for name in SOME[2:]:
        with pytest.raises(InputError, match="would be trained and evaluated on the same split, 'train'"):
            compare(engine, [name], split="train", report=never)
    on_dev = RRF(BM25(), SimilarQueries()).fit(engine, "dev")
    on_dev.save(tmp_path / "ranker")
    for name, ranker in {"rrf(bm25,knn-queries)": on_dev, "saved": load(tmp_path / "ranker", engine)}.items():
        with pytest.raises(InputError, match=rf"{re.escape(name)} was trained on 15 queries of 'dev', where it would"):
            compare(engine, {name: ranker}, report=never)
    assert compare(engine, [on_dev], split="test").rankers["rrf(bm25,knn-queries)"] is on_dev


def never(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} was done first")


def test_a_saved_ranker_is_compared_as_it_is(
    topics: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Engine.build(topics, tmp_path / "engine")
    ranker = parse(LEARNED).fit(built)
    ranker.save(tmp_path / "ranker")
    expected = compare(built, [LEARNED])
    monkeypatch.setattr(SVREnsemble, "fit", lambda *args, **kwargs: pytest.fail("trained anew"))
    engine = Engine.open(tmp_path / "engine")
    saved = load(tmp_path / "ranker", engine)
    outcome = compare(engine, {"saved": saved, "knn": "knn"})
    assert outcome.rankers["saved"] is saved
    assert_same(outcome.runs["saved"], expected.runs[LEARNED])
    assert outcome.facts["saved"] == expected.facts[LEARNED]


def test_what_is_wrong_is_said_before_the_work(topics: Collection) -> None:
    for rankers, how, error, message in [
        ("bm25,bm26", {}, UnknownNameError, "unknown ranker 'bm26'"),
        (["bm25"], {"split": "tset"}, UnknownNameError, "unknown split of topics 'tset' .*known: train, dev, test"),
        (["bm25"], {"measures": ["nDCG@10", "mAP?"]}, InputError, "unknown measure .mAP"),
        ([RRF(BM25(), BM25())], {}, InputError, "bm25 is given twice"),
        (["svr"], {"train": "tain"}, InputError, "topics has no split 'tain', only train, dev, test; leave svr out"),
        ({"a b": "bm25", "a-b": "knn"}, {}, InputError, "'a b' and 'a-b' would be written to one file"),
    ]:
        with pytest.raises(error, match=message):
            compare(topics, rankers, report=never, **how)  # type: ignore[arg-type]


def test_everything_is_written(engine: Engine, topics: Collection, tmp_path: Path) -> None:
    outcome, out = compare(engine, [*SOME, "rrf(knn, bm25-doc)"]), tmp_path / "new" / "out"
    outcome.write(out)
    runs = [f"out/runs/{file_name(name)}.trec" for name in outcome.runs]
    assert sorted(tree(tmp_path / "new")) == sorted([*runs, "out/results.json", "out/settings.json", "out/table.md"])
    for name in outcome.runs:
        read = Run.from_trec(out / "runs" / f"{file_name(name)}.trec")
        assert evaluate(read, topics.qrels_frame("dev")).equals(outcome.results.values[name])
    record, settings = (json.loads((out / f"{name}.json").read_text()) for name in ("results", "settings"))
    assert set(record) == {
        *("date", "collection", "settings", "queries measured", "rankers", "seconds", "facts", "environment")
    }
    assert record["collection"]["queries"] == {"train": 60, "dev": 15, "test": 15}
    assert (record["collection"]["documents"], record["queries measured"]) == (42, outcome.results.n_queries)
    assert (record["seconds"], record["settings"]) == (outcome.seconds, settings)
    for name, found in record["rankers"].items():
        assert found["measures"] == outcome.results.values[name].mean().to_dict()
        assert set(found["against_baseline"]) == (set() if name == "bm25" else set(MEASURES))
    assert record["facts"][LEARNED]["training queries"] == outcome.rankers[LEARNED].fit_report_["training queries"]
    assert record["facts"]["vectors"] == list(engine.passages.vectors.shape)
    assert {"python", "machine", "haybale", "numpy"} <= set(record["environment"])
    assert [settings[name] for name in ("split", "baseline", "encoder")] == ["dev", "bm25", "tfidf"]
    for name, spec in settings["rankers"].items():
        assert from_spec(spec) == outcome.rankers[name] == parse(name)
    assert all(name in (out / "table.md").read_text() for name in ("bm25", "knn-doc", *MEASURES))


def test_names_of_any_kind_are_written(engine: Engine, tmp_path: Path) -> None:
    names = ["../../up", "a b\tc", "ünïcode", "()", "x" * 300, "cross-encoder(bm25,model='org/name')"]
    outcome = compare(engine, {name: BM25(k1=1 + place) for place, name in enumerate(names)})
    (tmp_path / "out").mkdir()  # an empty folder is taken
    outcome.write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    written = list((tmp_path / "out" / "runs").iterdir())
    assert len(written) == 7
    assert all(len(path.name) < 200 for path in written)
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["rankers"]) == ["bm25", *names]
    with pytest.raises(OutputExistsError, match="exists and is not empty"):
        outcome.write(tmp_path / "out")


def test_what_cannot_be_measured_is_not_ranked() -> None:
    builder = CollectionBuilder("odd", language="english")
    builder.add_document("d", ["one two"] * 2)
    builder.add_query("q", ["one"], split="dev")
    builder.add_judgement("dev", "q", "d", 0)
    stages: list[str] = []
    with pytest.raises(InputError, match="no relevant document"):
        compare(builder.build(), "bm25", report=lambda stage, _: stages.append(stage))
    assert not stages
