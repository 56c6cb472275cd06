"""Scripts of benchmarks/, on small collections, and pages that say what their JSON does."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import runpy
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.commands import word_folder
from support.structured import structured_collection
from support.tiny_models import save_bi_encoder
from support.topics import topic_collection

from haybale import BM25, KNN, SVR, Engine, Learned, Run, SimilarQueries, open_collection
from haybale.parallel import cpus

ROOT = Path(__file__).parents[2]
BENCHMARKS, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks" / "results"
LIBRARIES = ("effectiveness", "gpu_arrays", "gpu_bench", "gpu_whole", "provenance", "reading_orders")
LIBRARIES += ("resampled", "synthetic")
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in LIBRARIES)


def loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_small_graph(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts without the ensemble; and the page that is made of them."""
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    module, made = script("bench_graph"), structured_collection(5)
    made = replace(made, splits=made.splits | {"test": replace(made.split("dev"), name="test")})
    monkeypatch.setattr(module, "open_collection", lambda name: made)
    first, *others = module.CONTEXT
    small = (first, *(f"{name[:-1]},heads=1,epochs=1)" for name in others))
    for name, value in {"DIM": 8, "SHARES": (0.2, 0.6), "CONTEXT": small}.items():
        monkeypatch.setattr(module, name, value)
    module.measured("structured", tmp_path, "lsa")
    module.write(tmp_path)
    page = (tmp_path / "graph.md").read_text(encoding="utf-8")
    assert "## structured" in page
    for name in small:
        assert page.count(f"| `{name}` |") == 2
    assert len(re.findall(r"^\| (own|relevant|off) \|", page, re.M)) == 3
    model = save_bi_encoder(tmp_path / "tiny")
    monkeypatch.setattr(module, "SMALL", f"lim({module.FIRST},n_documents=20,heads=1,epochs=1)")
    module.measured_tokens("structured", tmp_path, model, 12, 4, 3)
    module.write(tmp_path)
    longer = (tmp_path / "graph.md").read_text(encoding="utf-8")
    assert longer.startswith(page.rstrip())
    assert "dev 3, test 3" in longer
    for name in module.TOKENS:
        assert longer.count(f"| `{name}` |") == 3
    assert str(tmp_path) not in longer + (tmp_path / "graph-structured.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name: str, script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name in ("bench_backends", "bench_longformer"):
        pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert left.value.code == 0
    assert "usage: " in capsys.readouterr().out


@pytest.mark.thorough
def test_small_other_engines(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of bm25s and of a tiny encoder are fused; a weight of 1 is the first engine's ranking."""
    pytest.importorskip("bm25s")
    pytest.importorskip("sentence_transformers")
    runs, module, made = script("other_engine_runs"), script("bench_other_engines"), topic_collection()
    folder, model = tmp_path / made.name, Path(save_bi_encoder(tmp_path / "tiny"))
    for title, hits in (("bm25s", runs.lexical(made)), ("dense", runs.dense(made, model, 16, "passage"))):
        runs.write(made, folder, title, hits)
    (folder / "runs.json").write_text(json.dumps({"encoder": "tiny", "length": 16, "made": {"command": "made"}}))
    monkeypatch.setattr(module, "open_collection", lambda *_, **__: made)
    monkeypatch.setattr(module, "N_SINGLE", 2)
    record = module.measured("topics", tmp_path, True)
    assert set(record["means"]) == {*module.ENGINES, "rrf", "grid", *module.LEARNERS}
    page = "\n".join(module.page([json.loads(json.dumps(record)) | {"made": runs.made("bench_other_engines.py", [])}]))
    assert page.count("learned, 100 documents a run") == 1
    pair = [Run.from_trec(folder / f"{title}-dev.trec.gz") for title in module.ENGINES]
    alone = module.weighted(pair, 1.0)
    for query in pair[0].query_ids:
        ranked = [doc for doc, _ in pair[0][query]]
        assert [doc for doc, _ in alone[query]][: len(ranked) - 1] == ranked[:-1]


@pytest.mark.thorough
def test_small_bm25_and_parm(ran: Any, words: Path) -> None:
    assert "| search, 6 queries, k = 24 |" in ran("bench_bm25", "bm25.md", str(words), "--rounds", "1")
    page = ran("bench_parm", "parm.md", str(words), "--rounds", "1", "--hits", "20")
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| v?[a-z]+ \| \d", line)]
    assert [row[0][2:] for row in rows[:9]] == list(importlib.import_module("bench_parm").NAMES)
    assert all(float(row[7].rstrip(" |")) < 1e-5 for row in rows[:9])  # the dictionaries agree


@pytest.mark.thorough
def test_small_first_stages(ran: Any, script: Any, words: Path, tmp_path: Path) -> None:
    """The other commit is this one."""
    stages = script("bench_first_stages")
    Engine.build(words, tmp_path / "folder" / "engine", encoder="tfidf").prepare()

    def in_this_process(_: str, step: str, given: Any) -> Any:
        return json.loads(json.dumps(stages.STEPS[step](**json.loads(json.dumps(given, default=str)))))

    how = "--queries", "4", "--rounds", "1", "--before", str(ROOT)
    page = ran("bench_first_stages", "first-stages.md", str(tmp_path / "folder"), *how, in_a_process=in_this_process)
    assert "equal to the last bit" in page
    assert re.search(r"^\| kNN, passages \| [\d.]+ \|", page, re.M)
    assert re.search(r"^\| 24 passages \| documents, k = 10 \| [\d.]+ \| [\d.]+ \|", page, re.M)


@pytest.mark.filterwarnings("ignore")
def test_small_filters(ran: Any) -> None:
    pytest.importorskip("duckdb")
    assert "| `id = 'd777'` | 1 |" in ran("bench_filters", "filters.md", "--documents", "1000", "--rounds", "2")


@pytest.mark.filterwarnings("ignore")
def test_small_log(ran: Any, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    folder = tmp_path / "folder"
    word_folder(folder)
    page = ran("bench_log", "log.md", str(folder), "--searches", "20", "--lines", "100")
    assert re.search(r"^\| 10 hits, 20 threads at once \| [\d.]+ \|", page, re.M)
    assert "100 lines" in page


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext")
def test_small_readers(ran: Any, tmp_path: Path) -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    pytest.importorskip("pypdfium2")
    packages = tmp_path / "packages"
    for name in ("docs", "messages"):
        (packages / name / "test_email" / "data").mkdir(parents=True)
        (packages / f"{name}_1.2_all.deb").touch()
    made = canvas.Canvas(str(packages / "docs" / "lease.pdf"))
    for line in range(30):
        made.drawString(72, 800 - 20 * line, f"The tenant of flat {line} shall return it in good order.")
    made.save()
    (packages / "docs" / "page.html").write_text("<head><title>x</title></head><nav>menu</nav><p>One two<p>three four")
    message = "From: a@example.org\nSubject: none\n\nOne two three\n"
    (packages / "messages" / "test_email" / "data" / "msg_01.txt").write_text(message)
    names = {"PDF_PACKAGES": ("docs",), "HTML_PACKAGES": ("docs",), "MESSAGES": "messages"}
    page = ran("bench_readers", "readers.md", str(packages), **names)
    assert re.search(r"^\| docs \| lease.pdf \| ReportLab.* \| 1 \| 330 \| 1.0000 \| 1.0000 \|", page, re.M)
    assert re.search(r"^\| HTML pages of docs \| 1 \| 4 \| 1.0000 \|", page, re.M)
    assert re.search(r"^\| messages of Python's tests \| 1 \| 3 \| 1.0000 \|", page, re.M)


def test_small_duplicates(ran: Any, tmp_path: Path) -> None:
    datasets, screening = tmp_path / "datasets", tmp_path / "screening"
    (screening / "topic").mkdir(parents=True)
    datasets.mkdir()
    for name, title in (("DBLP", "A Study of {} Joins"), ("ACM", "A study of {} joins.")):
        rows = [f'{n},{title.format(word)},"Ann Doe, Bo Ray",VLDB,1999' for n, word in enumerate(("hash", "merge"))]
        for file in (f"{name}.csv", f"{name.lower()}_demo.csv"):
            (datasets / file).write_text("\n".join(["id,title,authors,venue,year", *rows]))
    (datasets / "dblp_acm_demo_labels.csv").write_text("ltable.id,rtable.id,gold\n0,0,1\n0,1,0\n1,1,1\n")
    (datasets / "labeled_data_demo.csv").write_text("ltable_id,rtable_id,label\n0,0,1\n1,0,0\n")
    random, words = np.random.default_rng(0), [f"Word{letter * 4}" for letter in "abcdefghijklmnop"]
    records = [[" ".join(random.choice(words, n)) for n in (7, 300)] for _ in range(24)]
    pd.DataFrame(records, columns=["title", "abstract"]).to_csv(screening / "topic" / "records.csv.gz", index=False)
    arguments = [str(datasets), str(screening), "--records", "40"]
    page = ran("bench_duplicates", "duplicates.md", *arguments, WORKS_STEP=1)
    assert re.search(r"^\| DBLP and ACM, 415 .* \| 4 \| haybale \| 2 \| 1.0000 \| 1.0000 \|", page, re.M)
    assert re.search(r"^\| DBLP and ACM \(demo\).* \| haybale \| 1 \| 1.0000 \| 1.0000 \|", page, re.M)
    assert re.search(r"^\| screening records, three exports \|.*haybale", page, re.M)
    assert re.search(r"^\| after 1,000 were added \| ", page, re.M)


def test_small_files(ran: Any, script: Any, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    pytest.importorskip("reportlab")
    module, found = script("bench_files"), []

    def index(folder: Path) -> dict[str, Any]:
        module.index_here(folder)
        found.append(Engine.open(folder / "engine").whole.document_texts())
        return {"wall": 2.0, "cpu": 1.0, "read": 0.5, "peak": 10**6, "worker": 0, "load": 1.0}

    sizes = ["--files", "3", "--pages", "1", "--changed", "1"]
    assert "| update, 1 files changed | 2 |" in ran("bench_files", "files.md", str(tmp_path / "f"), *sizes, index=index)
    assert [len(texts) for texts in found] == [3, 3]
    assert len({*found[0], *found[1]}) == 4


@pytest.mark.thorough
def test_small_defaults(ran: Any, words: Path) -> None:
    page = ran("bench_defaults", "defaults.md", str(words), "--parts", "bm25", "rrf")
    assert re.search(r"^\| words \| \d+ \|( \d\.\d{4} / \d\.\d{4} \|){5}$", page, re.M)
    assert re.search(r"^\| words \|( \d\.\d{4} \|){3}$", page, re.M)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*found at most", "ignore:.*training queries for")
def test_small_sets(ran: Any, script: Any, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both answers of a small collection; the page is that of the records, and models are used again."""
    small = Learned(BM25(), SVR([BM25("document"), KNN()], n_bags=4, n_jobs=1))
    monkeypatch.setattr(script("bench_sets"), "Learned", small.clone)
    page = ran("bench_sets", "sets.md", str(words), "--work", str(tmp_path / "work"), TARGETS=(("recall", 0.5),))
    row = r"^\| words \| `cut\((?:learned|svr)\)` \| \w+ \| \d\.\d{3} \(\d+\) \| \d\.\d{3} \|"
    assert len(re.findall(row, page, re.M)) == 4
    record = loaded(tmp_path / "sets-words.json")
    for row in record["rows"].values():
        assert row["per query"] >= row["macro-f1"]["best"] >= row["macro-f1"]["fixed"]
        assert sum(row["bins"]["relevant"]) <= record["relevant"]
        assert row["micro-f1"]["interval"][0] <= row["micro-f1"]["values"]["MicroF1"] <= row["micro-f1"]["interval"][1]
    folder = tmp_path / "work" / "words" / "learned"
    written = folder.stat().st_mtime_ns
    assert ran("bench_sets", "sets.md", str(words), "--work", str(tmp_path / "work"), TARGETS=(("recall", 0.5),))
    assert folder.stat().st_mtime_ns == written


def test_small_forecasts(ran: Any, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two splits of a small collection; rankings that are kept give the same page."""
    small = Learned(BM25(), SimilarQueries(), SVR([BM25("document"), KNN()], n_bags=4, n_jobs=1))
    monkeypatch.setattr(script("bench_forecast"), "Learned", small.clone)
    monkeypatch.setattr(script("bench_forecast"), "open_collection", lambda name: topic_collection(80, 30, 30))
    given = ("bench_forecast", "forecast.md", "topics", "--work", str(tmp_path / "work"), "--splits", "2")
    page = ran(*given, "--training", "80", "--test", "30")
    assert len(re.findall(r"^\| topics \| `(?:learned|svr)` \| \d+ / 30 \| \d of 2 \|", page, re.M)) == 2
    record = loaded(tmp_path / "forecast-topics.json")
    for split in record["splits"]:
        for row in split["rankers"].values():
            assert row["forecast"]["low"] <= row["forecast"]["estimate"] <= row["forecast"]["high"]
            assert 0 <= row["measured"] <= 1
    n_held = sum(
        row["forecast"]["low"] <= row["measured"] <= row["forecast"]["high"]
        for split in record["splits"]
        for row in split["rankers"].values()
    )
    assert f"{n_held} of 4 intervals hold" in page
    monkeypatch.setattr(script("bench_forecast"), "Learned", None)
    assert ran(*given, "--training", "80", "--test", "30").splitlines()[:60] == page.splitlines()[:60]


def test_small_judgements(ran: Any, words: Path) -> None:
    page = ran("bench_judgements", "judgements.md", str(words), "--draws", "2", COUNTS=(3,))
    assert len(re.findall(r"^\| words \| 3 \| 0\.\d{4} \(0\.\d{4} to \d\.\d{4}\) \| \d of 2 \|", page, re.M)) == 1


def test_small_review(ran: Any, tmp_path: Path, words: Path) -> None:
    records, topics = tmp_path / "topics" / "tax", tmp_path / "topics"
    records.mkdir(parents=True)
    texts = ["tax and rent", "tax court", "dogs bark", "cats purr", "tax income", "boats sail", "a river"]
    labels = [int("tax" in text) for text in texts]
    frame = pd.DataFrame({"record_id": range(7), "title": texts, "abstract": texts, "label_included": labels})
    frame.to_csv(records / "records.csv.gz", index=False)
    pd.DataFrame({"topic": ["tax"], "title": ["the tax"]}).to_csv(topics / "topics.csv", index=False)
    (topics / "law").mkdir()
    documents = [{"_id": str(i), "title": "", "text": f"{text} {i}"} for i, text in enumerate(texts * 40)]
    queries = [{"_id": "q", "text": "tax"}]
    for name, lines in (("corpus", documents), ("queries", queries)):
        (topics / "law" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (topics / "law" / "qrels").mkdir()
    (topics / "law" / "qrels" / "all.tsv").write_text("query-id\tcorpus-id\tscore\nq\t0\t1\nq\t4\t1\n")
    given = ("bench_review", "review.md", str(topics), "--seeds", "1", "--corpus-topics", "1", "--copies", "2")
    ran(*given, STEPS=20)
    page = ran(*given, "--times", STEPS=20)  # beside what was found before
    assert re.search(r"^\| tax \| 7 \| -?[\d.]+ \| -?[\d.]+ \| -?[\d.]+ \| 1, 1, 1 \|$", page, re.M)
    assert len(re.findall(r"^\| (TopicLearner|linear|BM25) \| [01]\.?\d* \|", page, re.M)) == 3
    assert len(re.findall(r"^\| (280|560) \| [\d.]+ \|", page, re.M)) == 2


def test_small_learner(ran: Any, script: Any, tmp_path: Path) -> None:
    """Each topic has the setting that is best on the other topics, whatever is best on the topic itself."""
    texts = ["tax and rent", "tax court", "dogs bark", "cats purr", "tax income", "boats sail", "a river"]
    for name in ("tax", "dogs", "rent"):
        folder = tmp_path / "topics" / name
        folder.mkdir(parents=True)
        labels = [int(name in text or text == "tax income") for text in texts]
        frame = pd.DataFrame({"record_id": range(7), "title": texts, "abstract": texts, "label_included": labels})
        frame.to_csv(folder / "records.csv.gz", index=False)
    peers = [{"topic": name, "by": "ASReview", "seed": 1, "wss": 10.0} for name in ("tax", "dogs", "rent")]
    (tmp_path / "review.json").write_text(json.dumps(peers))
    settings = dict(list(script("bench_learner").SETTINGS.items())[:2])
    given = ("bench_learner", "learner.md", str(tmp_path / "topics"), "--seeds", "1")
    ran(*given, SETTINGS=settings)
    runs = json.loads((tmp_path / "learner.json").read_text())
    assert len(runs) == 6
    one, other = settings
    values = {("tax", one): 60, ("dogs", one): 20, ("rent", one): 20, ("tax", other): 0, ("dogs", other): 30}
    for run in runs:
        run["wss"] = values.get((run["topic"], run["setting"]), 40)
    (tmp_path / "learner.json").write_text(json.dumps(runs))
    page = ran(*given, SETTINGS=settings)
    assert f"| tax | {other} | 0.0 | 10.0 | -10.0 |" in page
    assert f"| dogs | {one} | 20.0 | 10.0 | +10.0 |" in page
    assert "| mean |  | 13.3 | 10.0 | +3.3 |" in page


@pytest.mark.filterwarnings("ignore")
def test_small_encoders(ran: Any, words: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    bert = save_bi_encoder(tmp_path / "bert")
    page = ran("bench_encoders", "encoders.md", str(words), bert, "--texts", "5", "--lengths", "16", "--rounds", "1")
    [tokens] = re.findall(r"^\| saved \| 16 \| float32 \| (\d+) \| [\d.,]+ \|  \|$", page, re.M)
    [least] = re.findall(r"^\| saved \| 16 \| bfloat16 \| \d+ \| [\d.,]+ \| (\S+) \|$", page, re.M)
    assert int(tokens) <= 16
    assert 0.9 < float(least) <= 1.00001


@pytest.mark.thorough
def test_small_svr(ran: Any, words: Path) -> None:
    page = ran("bench_svr", "svr.md", str(words), WIDTH=6, CASES=((40, False, 20, 1, 1),), PLANTED=60, CURVES=40)
    assert re.search(r"\| sklearn \(1 rounds\) .*e-0\d \|", page)
    page = ran("bench_svr", "svr-planted.md", "--planted", WIDTH=6, PLANTED_CASES=((60, 1),))
    assert len(re.findall(r"^\| 60 (?:few|many) \|.*\| haybale \(1 rounds\) ", page, re.M)) == 2


@pytest.mark.thorough
def test_small_stopping(ran: Any, script: Any, tmp_path: Path) -> None:
    random, folder = np.random.default_rng(0), tmp_path / "topics"
    (folder / "dogs").mkdir(parents=True)
    (folder / "many" / "qrels").mkdir(parents=True)
    labels = (random.random(60) < 0.3).tolist()
    texts = [" ".join(["dog"] * label + random.choice(["tree", "moon", "sea", "road"], 4).tolist()) for label in labels]
    frame = pd.DataFrame({"title": "", "abstract": texts, "label_included": np.array(labels, dtype=int)})
    frame.to_csv(folder / "dogs" / "records.csv.gz")
    corpus = pd.DataFrame({"_id": [f"d{i}" for i in range(60)], "text": texts})
    corpus.to_json(folder / "many" / "corpus.jsonl.gz", orient="records", lines=True)
    rows = [(topic, f"d{i}", 1) for topic in ("q1", "q2") for i in np.flatnonzero(labels)[:9]]
    frame = pd.DataFrame(rows, columns=["query-id", "corpus-id", "score"])
    frame.to_csv(folder / "many" / "qrels" / "all.tsv", sep="\t", index=False)
    kept = ("--orders", str(tmp_path / "orders"))
    options = ("--seeds", "2", "--draws", "100", "--orders", str(tmp_path / "orders"))
    page = ran("bench_stopping", "stopping.md", str(folder), *options, TARGETS=(0.9,))
    record = loaded(tmp_path / "stopping.json")
    assert record["groups"].keys() == {script("reading_orders").RECORDS, "many"}
    assert {each["reviews"] for each in record["rules"]["0.9"]["many"].values()} == {2}
    assert all(each["held"] >= 0.9 for rows in record["certificates"].values() for each in rows)
    same = [name for name in record["peer"] if "released=true" in name or not name.startswith("`iph")]
    assert all(record["peer"][name]["equal"] == 3 for name in same)
    assert page == "\n".join([*script("bench_stopping").page(record), ""])
    [kept, again] = [script("reading_orders").orders_of(folder, 1, 1, where) for where in (tmp_path / "orders", None)]
    for one, other in zip(kept["many"], again["many"], strict=True):
        assert one.labels.tolist() == other.labels.tolist()
        assert one.recall.tolist() == other.recall.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_scaling(ran: Any, script: Any, tmp_path: Path) -> None:
    small = {"PASSAGES": (10_000, 20_000), "ROWS": (5_000,), "PARAGRAPHS": (50,)}
    ran("bench_scaling", "scaling.md", "--shrink", "50", **small, TRAINING=(500,), SCORED=(2_500,))
    assert loaded(tmp_path / "scaling.json")["curves"].keys() == script("bench_scaling").CONTENT.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_serving(script: Any, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving, asked = script("bench_serving"), set()
    monkeypatch.setattr(serving, "ADDED", 30)

    def ask(step: str, given: Any) -> Any:  # in this process
        asked.add(step)
        return json.loads(json.dumps(serving.STEPS[step](**json.loads(json.dumps(given, default=str)))))

    record = serving.measured(str(words), tmp_path, 5, ask)
    assert asked == set(serving.STEPS)
    assert record["collection"] == {"name": "words", "documents": 12, "passages": 24}
    assert sum(record["disk after adding"].values()) > sum(record["disk"].values())
    for name in serving.RANKERS:
        warm = record["rankers"][name]["one by one"]["warm"]
        assert warm["queries"] == 4
        assert 0 < warm["median"] <= warm["p99"]
    grown, whole = (record["approximate"][what] for what in ("grown", "at once"))
    assert grown["documents"] == whole["documents"] == 12
    assert grown["rankers"]["bm25-doc"] == whole["rankers"]["bm25-doc"]
    page = serving.page({"words": record | {"provenance": ""}})
    assert all(f"| `{name}` |" in page for name in serving.RANKERS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_large(script: Any, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    large, asked = script("bench_large"), []
    monkeypatch.setattr(script("resampled"), "PASSAGES", 3)
    monkeypatch.setitem(large.LOCAL, "processes", False)  # which start and end sooner

    def ask(step: str, given: Any) -> Any:  # in this process
        asked.append(given["out"])
        found = large.STEPS[step](**json.loads(json.dumps(given, default=str)))
        return json.loads(json.dumps(found)) | {"process": 1.0}

    def run(*chosen: str, rankers: Sequence[str] = large.RANKERS, rounds: int = 1) -> dict[str, Any]:
        asked.clear()
        here = [stage for stage in large.STAGES if stage not in ("rank-dask", "limit")]
        how = [1.0], [1.0], list(chosen) or here, list(rankers)
        return dict(large.stages(str(words), tmp_path, 60, 40, *how, rounds, ask))

    found = run()
    assert len(asked) == len(found) == 2 + len(large.TRAINED) + len(large.RANKERS)
    assert all(found["index"]["counts"][name] == found["make"]["counts"][name] for name in ("documents", "passages"))
    assert len(found["train svr, two Dask workers 1"]["workers"]) == 2
    assert found["rank bm25-doc 1"]["Recall@100"] == 1.0  # all there are
    assert run() == found
    assert asked == []  # all of it is finished
    one = tmp_path / "runs" / "rank-svr-1-of-1.trec.gz"
    before = one.read_bytes()
    one.unlink()
    run()
    assert (asked, one.read_bytes()) == ([one], before)  # from the engine and the model that are there
    assert found["train svr 1"]["cores"] == cpus()
    found |= run("rank-dask", rankers=["svr"])
    assert (tmp_path / "runs" / "rank-dask-svr-1-of-1.trec.gz").read_bytes() == before
    assert len(found["rank svr 1 of 1, two Dask workers"]["workers"]) == 2
    monkeypatch.setattr(large.os, "sched_setaffinity", lambda *_: None)  # this process keeps its cores
    for out in (tmp_path / "runs").glob("*-svr-*"):
        out.unlink()
    again = run("rank", "rank-dask", rankers=["svr"], rounds=3)
    assert [Path(out).name.startswith("rank-dask") for out in asked] == [False, True] * 3
    assert [record["rounds"] for record in again.values()] == [3, 3]
    assert one.read_bytes() == before
    found |= again
    page = large.page({"60": {"stages": found, "provenance": "", "calls": ["", ""], "notes": ["By hand."]}})
    assert all(f"| {name}" in page for name in found)
    assert "By hand." in page


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_segments(ran: Any, words: Path, tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    segments = script("bench_segments")
    monkeypatch.setitem(script("bench_large").LOCAL, "processes", False)
    monkeypatch.setitem(segments.SVR, "n_bags", 2)

    def step(name: str, given: Any) -> Any:  # in this process
        return segments.STEPS[name](**json.loads(json.dumps(given, default=str))) | {"process": 1.0}

    monkeypatch.setattr(segments, "in_own_process", step)
    # The workers are in this process, whose memory would soon exceed a limit.
    sizes = ("--segments", "3", "--trained", "20", "--queries", "4", "--kills", "0", "--limit", "1000000")
    page = ran("bench_segments", "segments.md", str(words), str(tmp_path / "new"), *sizes)
    assert "have the same bytes: yes" in page
    assert re.findall(r"(yes|no) \|$", page, re.M) == ["yes"] * 3


@pytest.mark.filterwarnings("ignore")
def test_small_best(script: Any, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best, pages = script("bench_best"), script("best_pages")
    monkeypatch.setattr(best, "COUNTS", (4, 100))
    monkeypatch.setattr(best, "FEW", 1)
    record = best.measured(str(words), None, None, 32, "float32")
    assert record["values"]["dev"] == record["values"]["test"]  # the same queries here
    assert record["values"]["dev"]["policy"] == record["values"]["dev"]["learned"]
    assert list(record["shares"]) == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert record["shares"]["0"] == record["values"]["dev"]["policy"]["nDCG@10"]  # few are new: 0 is taken
    assert record["adapted"] == {}  # and nothing tells them from others
    page = "\n".join(pages.page([record]))
    tuned = max(np.mean(record["values"]["test"][each]["nDCG@10"]) for each in best.BM25S)
    assert f"| words | nDCG@10 | {tuned:.4f} (`bm25" in page
    assert "| words | all seen | " in page
    found = best.curve(str(words))
    assert [row["queries"] for row in found["rows"]] == [4, record["collection"]["queries"]["train"]]
    of_all = float(np.mean(record["values"]["dev"]["knn"]["nDCG@10"]))
    assert found["plain"]["knn"] == pytest.approx(of_all)
    assert "| words | 4 | " in "\n".join(pages.curve_lines([found]))
    pages.draw_curves([found, found | {"collection": "others"}], tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8").count("<clipPath") == 2


def test_mixed_probabilities(script: Any) -> None:
    query, scores = np.array([0, 0, 0, 1, 1]), np.random.default_rng(0).normal(size=(2, 5)) * 9
    judged, new = SimpleNamespace(pool=SimpleNamespace(query=query)), np.array([0.3, 0.9])
    mix = script("bench_mixture").mixed
    mixed = np.exp(mix(judged, scores, new, 0.4, 0.7))
    for row, prior in enumerate(new):
        # Bayes: the likelihood ratio of the query, times the odds of the presumed share.
        odds = prior / (1 - prior) / (0.4 / 0.6) * (0.7 / 0.3)
        known, unseen = (np.exp(each[query == row]) / np.exp(each[query == row]).sum() for each in scores)
        np.testing.assert_allclose(mixed[query == row], (known + odds * unseen) / (1 + odds))
    for presumed, expert in ((0.0, scores[0]), (1.0, scores[1])):
        found = mix(judged, scores, new, 0.4, presumed)
        assert np.argsort(found[:3]).tolist() == np.argsort(expert[:3]).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_training(script: Any, words: Path, tmp_path: Path) -> None:
    """dev and test are the same queries here, and so are their values."""
    for package in ("sentence_transformers", "datasets", "accelerate"):
        pytest.importorskip(package)
    training, bert = script("bench_training"), save_bi_encoder(tmp_path / "bert")
    small = {"n_bags": 4, "n_jobs": 1, "n_train": 4, "n_candidates": 5}
    recipe = {"frozen_layers": 0, "evaluations": 1}
    how: dict[str, Any] = {"dtype": "float32", "length": 32, "recipe": recipe, "apart": True, "svr": small}
    found = training.measured(open_collection(words), bert, tmp_path / "work", True, **how)
    assert found["values"]["dev"] == found["values"]["test"]
    trained = found["trained"]["encoder"]
    assert (trained["fold"], trained["base"], trained["history"][0]["step"]) == ([1, 2], "saved", 0)
    assert sum(group["queries"] for group in found["groups"]["dev"].values()) == 6
    values = found["values"]["dev"]
    for row in found["tests"]["dev"]:
        ours, theirs = row["compared"]
        assert row["nDCG@10"]["difference"] == pytest.approx(values[ours]["nDCG@10"] - values[theirs]["nDCG@10"])
    page = "\n".join(training.page(json.loads(json.dumps(found)) | {"provenance": ""}))
    assert "| learned + after / learned |" in page
    assert "| `parm-vrrf after` |" in page
    alone = training.measured(open_collection(words), bert, tmp_path / "work", True, **how | {"alone": True})
    assert alone["values"]["dev"] == {name: of for name, of in values.items() if "knn" in name or "parm" in name}
    page = "\n".join(training.page(json.loads(json.dumps(alone)) | {"provenance": ""}))
    assert re.search(r"\b32 and 32\b", page)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_rerank(
    script: Any, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    rerank = script("bench_rerank")
    monkeypatch.setattr(rerank, "SEARCHES", "bm25,knn")
    small = ["--k", "4", "--n", "2", "--n-train", "10"]
    monkeypatch.setattr(sys, "argv", ["bench_rerank.py", "effectiveness", str(words), "--work", str(tmp_path), *small])
    rerank.main()
    record = json.loads((tmp_path / "dev.json").read_text())
    assert record["queries"] == {"train": 10, "dev": 6}
    assert record["rankers"]["first"]["dev"]["difference"] == 0
    assert "learned with pli, products of LSA" in record["rankers"]
    assert "pli, products of LSA" in capsys.readouterr().out
    tuning, learning = rerank.halves(open_collection(words))
    assert not set(tuning) & set(learning)


def test_the_results_of_the_readme_are_those_of_the_page(script: Any) -> None:
    whole = "\n".join(script("best_pages").whole(RESULTS))
    assert (RESULTS / "best.md").read_text(encoding="utf-8") == whole + "\n"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = re.findall(r"\b0\.\d{4}\b", readme)
    assert len(figures) >= 9
    assert not set(figures) - set(re.findall(r"\b0\.\d{4}\b", whole))


def test_every_page_names_its_commit_and_what_it_measures(script: Any) -> None:
    stale = script("stale")
    for path in RESULTS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        measured = [name.lstrip("-") for line in re.findall(r"^- measures: (.+)$", text, re.M) for name in line.split()]
        assert path.name == "README.md" or measured, path
        assert [name for name in measured if not (ROOT / name).exists()] == [], path
        assert path.name == "README.md" or re.search(r"\b[Cc]ommits? [0-9a-f]{7,12}\b", text), path
    before, docstring, changed = (
        'def f():\n    """Say a."""\n    return 1',
        "def f():\n    # b\n    return 1",
        "def f(): return 2",
    )
    assert stale.bare(before, {}) == stale.bare(docstring, {}) != stale.bare(changed, {})
    moves = {"haybale/a.py": "haybale/b/c.py"}
    old, new = "from haybale.a import x\nfrom haybale.d import y", "from haybale.d import y\nfrom haybale.b.c import x"
    assert stale.bare(old, moves) == stale.bare(new, {}) != stale.bare(old, {})
    assert "does not name" in stale.since("- commit 1234567")


def test_pages_say_what_was_measured(script: Any) -> None:
    page = (RESULTS / "serving.md").read_text(encoding="utf-8")
    assert page == script("bench_serving").page(loaded(RESULTS / "serving.json"))
    page = (RESULTS / "sets.md").read_text(encoding="utf-8")
    records = [loaded(path) for path in sorted(RESULTS.glob("sets-*.json"))]
    assert page == "\n".join([*script("bench_sets").page(records), ""])
    lines = (RESULTS / "gpu.md").read_text(encoding="utf-8").splitlines()
    assert lines == "\n".join(script("bench_gpu").page(loaded(RESULTS / "gpu.json"))).splitlines()
    lines = (RESULTS / "stopping.md").read_text(encoding="utf-8").splitlines()
    assert lines == "\n".join(script("bench_stopping").page(loaded(RESULTS / "stopping.json"))).splitlines()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_small_operation(ran: Any, words: Path, tmp_path: Path) -> None:
    options = ("--judgements", "40", "--processes", "1", "--folder", str(tmp_path))
    page = ran("bench_operation", "operation.md", str(words), *options, ADDED=10, SEARCHES=3)
    assert "24 documents in 48 passages" in page
    assert page.count("| with the engine") == 2
