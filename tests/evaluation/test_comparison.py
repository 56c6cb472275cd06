"""Comparisons: rankings, independence from judgements, files, and errors before any work."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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


def relabelled(collection: Collection, split: str) -> Collection:
    """Return the collection with other relevant documents in one split."""
    part = collection.splits[split]
    other = replace(part, judged_documents=np.roll(part.judged_documents, 1))
    return replace(collection, splits={**collection.splits, split: other})


def test_all_rankers(engine: Engine, topics: Collection) -> None:
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


def test_judgements_of_the_split_do_not_change_rankings(engine: Engine, topics: Collection) -> None:
    first, second = compare(engine, SOME), compare(relabelled(topics, "dev"), SOME)
    for name in SOME:
        assert first.runs[name] == second.runs[name], name
    assert not first.results.values["bm25"].equals(second.results.values["bm25"])
    assert compare(engine, ["knn"], split="test").split == "test"


def test_a_first_look_learns_from_some_training_queries(engine: Engine) -> None:
    whole, first_look, enough = (compare(engine, ["knn-queries"], n_train=n) for n in (None, 10, 10**6))
    train = engine.collection.queries.ids.take(engine.collection.split("train").queries).to_pylist()
    ids = first_look.rankers["knn-queries"].learned_from()
    assert len(ids) == 10
    assert ids < set(train) == whole.rankers["knn-queries"].learned_from()
    assert first_look.runs["knn-queries"] != whole.runs["knn-queries"] == enough.runs["knn-queries"]


def test_trained_and_evaluated_on_the_same_split(engine: Engine, tmp_path: Path) -> None:
    for name in SOME[2:]:
        with pytest.raises(InputError, match=f"{re.escape(name)} .*'train'"):
            compare(engine, [name], split="train", report=never)
    on_dev = RRF(BM25(), SimilarQueries()).fit(engine, "dev")
    on_dev.save(tmp_path / "ranker")
    for name, ranker in {"rrf(bm25,knn-queries)": on_dev, "saved": load(tmp_path / "ranker", engine)}.items():
        with pytest.raises(InputError, match=rf"{re.escape(name)} .*'dev'.* 15 "):
            compare(engine, {name: ranker}, report=never)
    assert compare(engine, [on_dev], split="test").rankers["rrf(bm25,knn-queries)"] is on_dev


def never(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} ran before the error")


def test_saved_rankers_are_not_fitted_again(
    topics: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Engine.build(topics, tmp_path / "engine")
    ranker = parse(LEARNED).fit(built)
    ranker.save(tmp_path / "ranker")
    expected = compare(built, [LEARNED])
    monkeypatch.setattr(SVREnsemble, "fit", lambda *args, **kwargs: pytest.fail("trained again"))
    engine = Engine.open(tmp_path / "engine")
    saved = load(tmp_path / "ranker", engine)
    outcome = compare(engine, {"saved": saved, "knn": "knn"})
    assert outcome.rankers["saved"] is saved
    assert_same(outcome.runs["saved"], expected.runs[LEARNED])
    assert outcome.facts["saved"] == expected.facts[LEARNED]


def test_errors_come_before_any_work(topics: Collection) -> None:
    for rankers, how, error, named in [
        ("bm25,bm26", {}, UnknownNameError, "'bm26'"),
        (["bm25"], {"split": "tset"}, UnknownNameError, "topics 'tset' .*train, dev, test"),
        (["bm25"], {"measures": ["nDCG@10", "mAP?"]}, InputError, "'mAP"),
        ([RRF(BM25(), BM25())], {}, InputError, "bm25 twice"),
        (["svr"], {"train": "tain"}, InputError, "svr .*topics .*'tain', only train, dev, test"),
        ({"a b": "bm25", "a-b": "knn"}, {}, InputError, "'a b' and 'a-b'"),
    ]:
        with pytest.raises(error, match=named):
            compare(topics, rankers, report=never, **how)  # type: ignore[arg-type]
    unjudged = CollectionBuilder("unjudged", language="english")
    unjudged.add_document("d", ["one two"] * 2)
    unjudged.add_query("q", ["one"], split="dev")
    unjudged.add_judgement("dev", "q", "d", 0)
    with pytest.raises(InputError, match="'relevance'"):
        compare(unjudged.build(), "bm25", report=never)


def test_files(engine: Engine, topics: Collection, tmp_path: Path) -> None:
    outcome, out = compare(engine, [*SOME, "rrf(knn, bm25-doc)"]), tmp_path / "new" / "out"
    outcome.write(out)
    runs = [f"out/runs/{file_name(name)}.trec" for name in outcome.runs]
    others = [f"out/{name}" for name in ("per_query.csv", "results.json", "settings.json", "table.md")]
    assert sorted(tree(tmp_path / "new")) == sorted([*runs, *others])
    values = pd.read_csv(out / "per_query.csv", dtype={"query_id": str})
    pd.testing.assert_frame_equal(values, outcome.to_frame(per_query=True, groups=True), check_dtype=False, rtol=1e-15)
    for name in outcome.runs:
        read = Run.from_trec(out / "runs" / f"{file_name(name)}.trec")
        assert evaluate(read, topics.qrels_frame("dev")).equals(outcome.results.values[name])
    record, settings = (json.loads((out / f"{name}.json").read_text()) for name in ("results", "settings"))
    assert set(record) == {
        *("date", "collection", "settings", "queries measured", "intervals", "rankers", "seen", "forecasts", "seconds"),
        *("facts", "environment"),
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


def test_file_names_of_any_ranker_name(engine: Engine, tmp_path: Path) -> None:
    names = ["../../up", "a b\tc", "ünïcode", "()", "x" * 300, "cross-encoder(bm25,model='org/name')"]
    outcome = compare(engine, {name: BM25(k1=1 + place) for place, name in enumerate(names)})
    (tmp_path / "out").mkdir()  # an empty folder is used
    outcome.write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    written = list((tmp_path / "out" / "runs").iterdir())
    assert len(written) == 7
    assert all(len(path.name) < 200 for path in written)
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["rankers"]) == ["bm25", *names]
    with pytest.raises(OutputExistsError, match="out"):
        outcome.write(tmp_path / "out")
