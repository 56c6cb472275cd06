"""What a report is made of: folders, files, names, vectors; and what is refused, with nothing written."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports import read_page, small

from haybale.collections import Collection, read_parquet
from haybale.embeddings import Chunking, LSAEncoder, embed
from haybale.engine import Engine
from haybale.errors import FileFormatError, HaybaleError, InputError, MissingExtraError, UnknownNameError
from haybale.evaluation import compare
from haybale.rankers import PARM
from haybale.reports import write_report
from haybale.reports.differences import differences
from haybale.reports.load import load, named_runs
from haybale.reports.vectors import parm_for

RANKERS = ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")


@pytest.fixture(scope="module")
def collection() -> Collection:
    return small()


@pytest.fixture(scope="module")
def folder(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    compare(collection, RANKERS).write(folder)
    return folder


def test_files_alone_make_a_report(folder: Path, collection: Collection, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    files = [folder / "runs" / f"{name}.trec" for name in ("bm25", "knn")]
    about = write_report(files, out, collection=collection, split="dev", picture="none", encoder="none")
    page = read_page(out.read_text())
    assert page.unbalanced == []
    assert page.absent == ["paragraphs", "picture", "seconds", "facts", "settings"]
    assert (about.baseline, about.ranker) == ("bm25", "knn")
    assert "A folder written by haybale compare --out would bring settings and environment." in page.text
    about = write_report(files[1:], out, collection=collection, split="dev", picture="none", encoder="none")
    assert (about.baseline, about.ranker) == ("knn", None)
    assert "A second one would bring wins and losses by query." in read_page(out.read_text()).text
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_runs_of_the_same_name(folder: Path, collection: Collection, tmp_path: Path) -> None:
    second = tmp_path / "second"
    compare(Engine(collection, encoder="lsa", width=4), ("bm25", "knn")).write(second)
    runs = named_runs([load(folder), load(second)])
    # BM25 is the same in both; nearest neighbours are those of other vectors.
    assert list(runs) == ["bm25", "bm25-doc", "first/knn", "second/knn", "parm-vrrf", "rrf(bm25,knn)"]
    with pytest.raises(InputError, match=r"two runs that differ are called 'second/knn'"):
        named_runs([load(second), load(_copied(folder, tmp_path / "other" / "second"))])
    about = write_report([folder, second], tmp_path / "r.html", collection=collection, picture="none", encoder="none")
    assert about.baseline == "bm25"
    page = read_page((tmp_path / "r.html").read_text())
    assert "second/knn" in page.text
    assert "encoderlsa" in page.text.replace(" ", "")


def _copied(folder: Path, to: Path) -> Path:
    for path in folder.rglob("*"):
        if path.is_file():
            target = to / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return to


def test_what_compare_records_opens_the_collection_again(tmp_path: Path) -> None:
    from layouts import beir
    from test_cli import haybale

    corpus = "\n".join(json.dumps({"_id": f"d{i}", "text": f"{word} one\n{word} two"}) for i, word in enumerate(WORDS))
    asked = "\n".join(json.dumps({"_id": f"q{i}", "text": f"some {word}"}) for i, word in enumerate(WORDS))
    qrels = "".join(f"q{i}\td{i}\t1\n" for i in range(len(WORDS)))
    data = beir(tmp_path / "data", **{"corpus.jsonl": corpus, "queries.jsonl": asked, "qrels/dev.tsv": qrels})
    out = tmp_path / "out"
    done = haybale("compare", str(data), "--rankers", "bm25,bm25-doc", "--out", str(out), "--layout", "beir")
    assert done.returncode == 0, done.stderr
    about = json.loads((out / "results.json").read_text())["collection"]
    assert (about["source"], about["layout"]) == (str(data.absolute()), "beir")
    done = haybale("report", str(out), "--out", str(tmp_path / "r.html"), "--encoder", "tfidf", "--queries", "1")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"No ranker is above the baseline bm25, .*\n", done.stdout), done.stdout
    page = read_page((tmp_path / "r.html").read_text())
    assert page.unbalanced == []
    assert str(tmp_path) not in page.raw  # where it lies on this machine
    done = haybale("report", str(out), "--out", str(tmp_path / "r.html"), "--ranker", "bm26")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "haybale: unknown ranker 'bm26'; known: bm25, bm25-doc"
    assert "Traceback" not in done.stderr


WORDS = ["apples", "pears", "plums", "figs", "dates", "limes"]


ERRORS: dict[str, tuple[dict[str, Any], type[HaybaleError], str]] = {
    "ranker": ({"ranker": "bm26"}, UnknownNameError, "unknown ranker 'bm26'; known: bm25, bm25-doc"),
    "baseline": ({"baseline": "bm26"}, UnknownNameError, "unknown baseline 'bm26'; known: bm25"),
    "both": ({"ranker": "bm25"}, InputError, "the ranker 'bm25' is the baseline"),
    "split": ({"split": "test"}, UnknownNameError, "unknown split of small 'test'; known: train, dev"),
    "other split": ({"split": "train"}, InputError, "run 'bm25': query 'dev-0' is not in the split 'train' of small"),
    "query": ({"query": "train-0"}, InputError, "the query 'train-0' is not one of small, dev"),
    "picture": ({"picture": "pca"}, UnknownNameError, "unknown picture 'pca'; known: tsne, umap, none"),
    "number": ({"queries": -1}, InputError, "queries must be at least 0, found -1"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_is_named_and_leaves_the_page_there_was(
    case: str, folder: Path, collection: Collection, tmp_path: Path
) -> None:
    options, kind, message = ERRORS[case]
    out = tmp_path / "report.html"
    out.write_text("the page before")
    with pytest.raises(kind, match=re.escape(message)):
        write_report([folder], out, collection=collection, **options)
    assert out.read_text() == "the page before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_failure_while_writing_leaves_the_page_there_was(
    folder: Path, collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, text: str, **options: Any) -> int:
        with self.open("w") as file:
            file.write(text[:100])
        raise OSError(28, "No space left on device")

    out = tmp_path / "report.html"
    out.write_text("the page before")
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_report([folder], out, collection=collection, picture="none", encoder="none")
    assert out.read_text() == "the page before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_places_without_runs(folder: Path, collection: Collection, tmp_path: Path) -> None:
    def refused(
        paths: list[Path], kind: type[HaybaleError], message: str, out: Path | None = None, **options: Any
    ) -> None:
        with pytest.raises(kind, match=message):
            write_report(paths, out or tmp_path / "r.html", **options)
        assert not (tmp_path / "r.html").exists()

    (tmp_path / "empty").mkdir()
    refused([tmp_path / "empty"], InputError, r"empty: no runs found; expected a folder written by haybale compare")
    refused([tmp_path / "nowhere"], InputError, r"nowhere: no such folder or file")
    refused([folder / "table.md"], InputError, r"table.md: expected a TREC run file, \.trec, \.run, \.txt")
    refused([], InputError, "no run was given")
    refused([folder], InputError, "is a folder; expected the name of an HTML file", out=tmp_path / "empty")
    (tmp_path / "a.run").write_text("")
    refused([tmp_path / "a.run"], FileFormatError, "a.run: expected a TREC run, found no line")
    (tmp_path / "b.run").write_text("dev-0 Q0 nothing 1 1.0 tag\n")
    known = {"collection": collection, "split": "dev"}
    refused([tmp_path / "b.run"], InputError, "run 'b': document 'nothing' is not in small", **known)
    (tmp_path / "c.run").write_text("dev-99 Q0 d0 1 1.0 tag\n")
    refused([tmp_path / "c.run"], InputError, "run 'c': query 'dev-99' is not in the split 'dev' of small", **known)
    refused([tmp_path / "c.run"], InputError, "do not say what collection they are of; give --collection")
    refused([tmp_path / "c.run"], InputError, "do not say what split they are of", collection=collection)
    broken = _copied(folder, tmp_path / "broken")
    (broken / "results.json").write_text("{")
    refused([broken], FileFormatError, r"results.json: expected JSON")
    other = _copied(folder, tmp_path / "other")
    settings = json.loads((other / "settings.json").read_text()) | {"split": "train"}
    (other / "settings.json").write_text(json.dumps(settings))
    refused([folder, other], InputError, "the runs are of different splits: dev, train", collection=collection)


def test_runs_that_agree_and_runs_with_gaps(folder: Path, collection: Collection, tmp_path: Path) -> None:
    lines = (folder / "runs" / "bm25.trec").read_text().splitlines(keepends=True)
    (tmp_path / "copy.run.txt").write_text("".join(lines))
    (tmp_path / "part.run").write_text("".join(line for line in lines if not line.startswith("dev-1")))
    (tmp_path / "one.run").write_text(lines[0])
    given = {"collection": collection, "split": "dev", "baseline": "bm25", "picture": "none"}
    bm25, out = folder / "runs" / "bm25.trec", tmp_path / "r.html"
    about = write_report([bm25, tmp_path / "copy.run.txt"], out, ranker="copy.run", **given)
    page = read_page(out.read_text())
    assert differences(about, "copy.run").counts == (0, len(about.query_ids), 0)
    assert "0 wins, 24 ties, 0 losses." in page.text
    assert "Largest" not in page.text
    assert page.unbalanced == []
    write_report([bm25, tmp_path / "part.run", tmp_path / "one.run"], out, **given)
    page = read_page(out.read_text())
    assert "part has no ranking for 11 queries, which count 0. one has no ranking for 23 queries" in page.text


@pytest.mark.parametrize("how", ["pieces", "paragraphs", "store"])
def test_vectors_are_those_of_the_comparison(how: str, collection: Collection, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "pieces": {"encoder": "tfidf", "chunking": Chunking(4, 2)},
        "paragraphs": {"encoder": "lsa", "width": 6, "paragraphs": "sentences"},
        "store": {"store": str(tmp_path / "store")},
    }[how]
    if how == "store":
        collection = read_parquet(_as_parquet(collection, tmp_path / "data"))
        embed(tmp_path / "data", LSAEncoder(6), tmp_path / "store")
    compare(Engine(collection, **settings), ("bm25", "parm-vrrf")).write(tmp_path / "run")
    stages: list[str] = []
    out = tmp_path / "r.html"
    write_report([tmp_path / "run"], out, collection=collection, report=lambda stage, seconds: stages.append(stage))
    page = read_page(out.read_text())
    assert page.absent == []
    said = {
        "pieces": "TF-IDF vectors",
        "paragraphs": "LSA vectors of width 6",
        "store": "vectors of a store (LSAEncoder)",
    }
    assert said[how] in page.text
    assert ("read vectors" in stages) == (how == "store")
    assert str(tmp_path) not in page.raw


def _written(folder: Path, **changes: Any) -> None:
    """Change what a comparison recorded."""
    for name in ("settings.json", "results.json"):
        found = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(found | changes.get(name.removesuffix(".json"), {})))


def test_a_folder_of_the_previous_version(collection: Collection, tmp_path: Path) -> None:
    """Its settings had more keys, counts of PARM's hits among them, and its rankers were names."""
    engine = Engine(collection, encoder="lsa", width=5)
    compare(engine, ("bm25", "parm-vrrf(n_hits=3)")).write(tmp_path / "new")
    (tmp_path / "new" / "runs" / "parm-vrrf-n_hits-3.trec").rename(tmp_path / "new" / "runs" / "parm-vrrf.trec")
    results = json.loads((tmp_path / "new" / "results.json").read_text())
    rankers = {"bm25": results["rankers"]["bm25"], "parm-vrrf": results["rankers"]["parm-vrrf(n_hits=3)"]}
    old = {"split": "dev", "rankers": ["bm25", "parm-vrrf"], "protocol": "end-to-end", "encoder": "lsa", "store": None}
    old |= {"paragraphs": None, "device": "cpu", "chunking": None, "query_prompt": "", "passage_prompt": "", "width": 5}
    old |= {"language": None, "k1": 1.2, "k1_document": None, "parm_hits": 3, "ensemble": {}, "baseline": "bm25"}
    old |= {"train_split": "train", "random_state": 0, "n_jobs": 1}
    (tmp_path / "new" / "settings.json").write_text(json.dumps(old))
    _written(tmp_path / "new", results={"rankers": rankers})
    about = write_report([tmp_path / "new"], tmp_path / "r.html", collection=collection, query="dev-1")
    assert (about.baseline, about.ranker) == ("bm25", "parm-vrrf")
    page = read_page((tmp_path / "r.html").read_text())
    assert page.absent == []
    assert "(VRRF over LSA vectors of width 5)" in page.text
    assert "rankersbm25,parm-vrrf" in page.text.replace(" ", "")
    heatmap = page.raw.partition('id="paragraphs"')[2].partition("</section>")[0]
    assert {int(rank) for rank in re.findall(r"rank (\d+) of its hits", heatmap)} <= {1, 2, 3}


def test_hits_are_those_of_the_comparisons_parm(collection: Collection, tmp_path: Path) -> None:
    """Also where PARM stands within another ranker."""
    compare(collection, ("bm25", "rrf(knn,parm-rrf(n_hits=4,rrf_k=9))")).write(tmp_path / "run")
    assert parm_for([load(tmp_path / "run")]) == PARM("vrrf", n_hits=4, rrf_k=9)
    compare(collection, ("bm25", "bm25-parm-rrf")).write(tmp_path / "other")
    assert parm_for([load(tmp_path / "other")]) == PARM("vrrf")
    page = read_page(_page(tmp_path / "run", tmp_path / "r.html", collection=collection))
    assert "rankers, rrf(knn,parm-rrf(n_hits=4,rrf_k=9)), rankers, 1, n_hits" in page.text


def _page(folder: Path, out: Path, **options: Any) -> str:
    write_report([folder], out, picture="none", **options)
    return out.read_text()


def test_a_comparison_on_an_engine_is_of_its_documents(collection: Collection, tmp_path: Path) -> None:
    engine = Engine.build(collection, tmp_path / "engine", paragraphs="sentences")
    engine.add({"later": collection.passages.texts[:3].to_pylist()})
    outcome = compare(engine, ("bm25", "knn"))
    replace(outcome, source=str(tmp_path / "engine")).write(tmp_path / "run")
    page = read_page(_page(tmp_path / "run", tmp_path / "r.html"))
    assert "documents31" in page.text.replace(" ", "")
    assert page.absent == ["picture"]
    assert str(tmp_path) not in page.raw
    other = read_page(_page(tmp_path / "run", tmp_path / "r.html", encoder="lsa"))
    assert "LSA vectors of width 1024" in other.text
    assert _page(tmp_path / "run", tmp_path / "r.html", collection=engine) == page.raw


def test_an_encoder_that_was_given(collection: Collection, tmp_path: Path) -> None:
    compare(Engine(collection, encoder=LSAEncoder(4)), ("bm25", "knn")).write(tmp_path / "run")
    page = read_page(_page(tmp_path / "run", tmp_path / "r.html", collection=collection))
    assert "over vectors of LSAEncoder" in page.text
    fitted = LSAEncoder(4).fit(collection.passages.texts.to_pylist())
    compare(Engine(collection, encoder=fitted), ("bm25", "knn")).write(tmp_path / "other")
    message = r"was given its encoder, of class 'LSAEncoder', .*--encoder none leaves heatmap and picture out"
    with pytest.raises(InputError, match=message):
        _page(tmp_path / "other", tmp_path / "r.html", collection=collection)
    _page(tmp_path / "other", tmp_path / "r.html", collection=collection, encoder="tfidf")


def _as_parquet(collection: Collection, folder: Path) -> Path:
    folder.mkdir()
    part = collection.split("dev")
    doc_ids = collection.doc_ids.take(pa.array(collection.passages.doc_of))
    passages = {"doc_id": doc_ids, "passage_id": collection.passages.ids, "text": collection.passages.texts}
    queries = {
        "query_id": collection.queries.ids.take(pa.array(part.queries)),
        "text": collection.queries.texts(part.queries),
        "split": ["dev"] * len(part.queries),
    }
    qrels = collection.qrels_frame("dev").assign(split="dev")
    pq.write_table(pa.table(passages), folder / "passages.parquet")
    pq.write_table(pa.table(queries), folder / "queries.parquet")
    pq.write_table(pa.Table.from_pandas(qrels, preserve_index=False), folder / "qrels.parquet")
    return folder


def test_umap_is_asked_for_by_name(
    folder: Path, collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Flat:
        def __init__(self, **options: Any) -> None:
            assert options["random_state"] == 3

        def fit_transform(self, vectors: Any) -> Any:
            return np.asarray(vectors)[:, :2]

    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[umap\]"'):
        write_report([folder], tmp_path / "r.html", collection=collection, picture="umap")
    monkeypatch.setitem(sys.modules, "umap", type("umap", (), {"UMAP": Flat}))
    write_report([folder], tmp_path / "r.html", collection=collection, picture="umap", random_state=3)
    assert "UMAP of TF-IDF vectors." in read_page((tmp_path / "r.html").read_text()).text
