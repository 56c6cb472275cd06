"""What a report is made of: folders, files, names, vectors; and what is refused, with nothing written."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports import read_page, small

from haybale.collections import Collection, read_parquet
from haybale.embeddings import Chunking, LSAEncoder, embed
from haybale.errors import FileFormatError, HaybaleError, InputError, MissingExtraError, UnknownNameError
from haybale.experiments import Settings, compare, write
from haybale.reports import write_report
from haybale.reports.differences import differences
from haybale.reports.load import load, named_runs

RANKERS = ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")
SETTINGS = Settings(rankers=RANKERS, encoder="tfidf", n_jobs=1)


@pytest.fixture(scope="module")
def collection() -> Collection:
    return small()


@pytest.fixture(scope="module")
def folder(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    write(compare(collection, SETTINGS), folder)
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
    write(compare(collection, Settings(rankers=("bm25", "knn"), encoder="lsa", width=4, n_jobs=1)), second)
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
    from test_cli import haybale
    from test_readers import beir

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
    write(compare(collection, Settings(rankers=("bm25", "parm-vrrf"), n_jobs=1, **settings)), tmp_path / "run")
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
