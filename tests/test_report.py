"""The report: a page that is well-formed, loads nothing, escapes all it is given, and shows the numbers there are."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports import Page, hostile, read_page, small
from scipy import stats

from haybale.collections import Collection, read_parquet
from haybale.embeddings import Chunking, LSAEncoder, embed
from haybale.errors import FileFormatError, HaybaleError, InputError, MissingExtraError, UnknownNameError
from haybale.evaluation import averages, evaluate, markdown
from haybale.experiments import Settings, compare, write
from haybale.reports import write_report
from haybale.reports.differences import differences
from haybale.reports.load import load, named_runs
from haybale.reports.svg.scales import ticks
from haybale.retrieval import Run

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


@pytest.fixture(scope="module")
def page(collection: Collection, folder: Path) -> Page:
    return read_page(write_to(folder, collection))


def write_to(folder: Path, collection: Collection, **options: Any) -> str:
    out = folder.parent / "report.html"
    write_report([folder], out, collection=collection, **options)
    return out.read_text(encoding="utf-8")


def test_the_page_is_whole_and_loads_nothing(page: Page) -> None:
    assert page.unbalanced == []
    assert page.sections == ["results", "recall", "queries", "paragraphs", "picture", "seconds", "facts", "settings"]
    assert page.absent == []
    assert {name for name, _ in page.addresses} <= {"href"}
    assert all(value.startswith("#") or value == "data:," for _, value in page.addresses), page.addresses
    anchors = {value[1:] for _, value in page.addresses if value.startswith("#")}
    assert anchors <= page.ids
    assert len(page.ids) == page.n_ids  # none twice
    assert not re.search(r"url\(|@import|@font-face|\bfetch\(|XMLHttp|import\(", page.style + page.script)
    assert "default-src 'none'" in page.policy
    assert page.unlabelled == 0  # every drawing says what it is


def test_the_table_has_the_numbers_of_the_evaluation(page: Page, folder: Path, collection: Collection) -> None:
    qrels = collection.qrels_frame("dev")
    sources = [load(folder)]
    assert list(sources[0].runs) == list(RANKERS)
    lines = [row for row in page.tables[0] if row[0] != "ranker"]
    for row, name in zip(lines, RANKERS, strict=True):
        means = averages(evaluate(sources[0].runs[name], qrels))
        assert row[0].removesuffix("baseline").strip() == name
        assert [cell.rstrip("†‡") for cell in row[1:7]] == [f"{value:.4f}" for value in means.values()]
    # Marks, p and d as in the table that compare writes.
    written = (folder / "table.md").read_text().replace("**", "").splitlines()
    for row, line in zip(lines, written[2:], strict=False):
        assert [row[0].removesuffix("baseline").strip(), *row[1:]] == [cell.strip() for cell in line.split("|")[1:-1]]
    outcome = compare(collection, SETTINGS)
    assert markdown(outcome.results).splitlines()[-1] in page.text
    bold = [row for row in page.bold_cells if row]
    assert len(bold) >= 6


def test_wins_and_losses_are_those_of_a_slow_oracle(folder: Path, collection: Collection) -> None:
    about = write_report([folder], folder.parent / "x.html", collection=collection, picture="none", ranker="knn")
    qrels = collection.qrels_frame("dev")
    ours, theirs = (
        evaluate(Run.from_trec(folder / f"runs/{name}.trec"), qrels, ["nDCG@10"]) for name in ("knn", "bm25")
    )
    slow = []
    for query in ours.index:
        slow.append((float(ours.loc[query, "nDCG@10"] - theirs.loc[query, "nDCG@10"]), query))
    found = differences(about, "knn")
    assert found.counts == (
        len([d for d, _ in slow if d > 0]),
        len([d for d, _ in slow if d == 0]),
        len([d for d, _ in slow if d < 0]),
    )
    assert found.wins(3) == [q for d, q in sorted(slow, key=lambda each: (-each[0], each[1])) if d > 0][:3]
    assert found.losses(3) == [q for d, q in sorted(slow) if d < 0][:3]
    assert found.wins(0) == []
    page = read_page((folder.parent / "x.html").read_text())
    shown = re.findall(
        r'<details id="q\d+" class="query"><summary><span[^>]*>([+-]\d\.\d+)</span> <b>([^<]+)', page.raw
    )
    assert [query for _, query in shown] == found.wins(5) + found.losses(5)
    by_query = {query: f"{value:+.3f}" for value, query in slow}
    assert all(by_query[query] == value for value, query in shown)
    wins, ties, losses = found.counts
    assert f"knn against bm25 in nDCG@10: {wins} wins, {ties} ties, {losses} losses." in page.text


def test_recall_points_are_those_of_a_slow_oracle(page: Page, folder: Path, collection: Collection) -> None:
    relevant: dict[str, set[str]] = {}
    for row in collection.qrels_frame("dev").itertuples():
        relevant.setdefault(row.query_id, set()).add(row.doc_id)
    titles = re.findall(r"<title>([^<:]+): (\d\.\d{4}) at ([\d,]+)</title>", page.raw)
    assert len(titles) == 2 * 5 * len({at for _, _, at in titles})  # a drawing for the desk, one for the phone
    runs = load(folder).runs
    for name, shown, at in titles:
        cut = int(at.replace(",", ""))
        recalls = [
            len(docs & {doc for doc, _ in runs[name][query][:cut]}) / len(docs) for query, docs in relevant.items()
        ]
        assert shown == f"{np.mean(recalls):.4f}", (name, cut)


def test_intervals_are_those_of_scipy(page: Page, folder: Path, collection: Collection) -> None:
    qrels, runs = collection.qrels_frame("dev"), load(folder).runs
    shown = re.findall(r"<title>([^<]+): ([+-][\d.]+), from ([+-][\d.]+) to ([+-][\d.]+)</title>", page.raw)
    assert len(shown) == 2 * (len(RANKERS) - 1)
    theirs = evaluate(runs["bm25"], qrels)["nDCG@10"].to_numpy()
    for name, *values in shown:
        found = stats.ttest_1samp(evaluate(runs[name], qrels)["nDCG@10"].to_numpy() - theirs, 0)
        low, high = found.confidence_interval(0.95)
        assert values == [f"{value:+.4f}" for value in ((low + high) / 2, low, high)], name


def test_ranks_of_relevant_documents(page: Page, folder: Path, collection: Collection) -> None:
    runs = load(folder).runs
    card = re.search(r'<details id="q0".*?</details>', page.raw, re.S).group()
    query = re.search(r"</span> <b>([^<]+)</b>", card).group(1)
    ranker = re.search(r"<h5>([^<]+)</h5>", card).group(1)
    for name in (ranker, "bm25"):
        documents = [doc for doc, _ in runs[name][query]]
        for document in collection.relevant_ids("dev")[collection.split("dev").queries.tolist().index(
            int(collection.query_numbers([query])[0]))]:  # fmt: skip
            rank = str(documents.index(document) + 1) if document in documents else "not found"
            assert re.search(rf"<b>{document}</b>.*?{re.escape(name)} <(?:b|span)>{rank}<", card, re.S), (name, rank)


def test_hostile_texts_are_shown_not_run(tmp_path: Path) -> None:
    collection = hostile()
    settings = Settings(rankers=("bm25", "bm25-doc"), encoder="tfidf", n_jobs=1)
    write(compare(collection, settings), tmp_path / "runs<b>")
    title = "<script>alert(1)</script>$title"
    page = read_page(write_to(tmp_path / "runs<b>", collection, title=title, ranker="bm25-doc"))
    assert page.unbalanced == []
    assert page.n_scripts == 1
    assert page.handlers == []
    assert page.title == title
    for text in ("<script>alert('dev')</script>", "<img src=x onerror=alert(1)>", "</details>", "]]>"):
        assert text in page.text, text
    assert "\x00" not in page.raw
    assert "\x07" not in page.raw
    assert all(value.startswith("#") or value == "data:," for _, value in page.addresses)


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


def test_the_same_runs_make_the_same_page(folder: Path, collection: Collection) -> None:
    assert write_to(folder, collection) == write_to(folder, collection)
    assert write_to(folder, collection, random_state=1) != write_to(folder, collection)


def test_a_query_of_one_paragraph_is_split_into_sentences(folder: Path, collection: Collection) -> None:
    page = read_page(write_to(folder, collection, query="dev-0", picture="none"))
    assert "The query dev-0 has 2 sentences." in page.text
    page = read_page(write_to(folder, collection, query="dev-1", picture="none"))
    assert "The query dev-1 has 3 paragraphs." in page.text
    shares = [float(value) for value in re.findall(r"→ [^:<]+: (\d+\.\d) %", page.raw)]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_the_picture_counts_what_is_near(folder: Path, collection: Collection) -> None:
    page = read_page(write_to(folder, collection))
    found = re.search(r"In the full space (\d+) of these (\d+) relevant passages are among the nearest", page.text)
    assert 0 < int(found.group(1)) <= int(found.group(2)) == sum(map(len, collection.relevant_ids("dev")))
    assert "t-SNE of TF-IDF vectors." in page.text


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


def test_an_installed_package_has_the_page() -> None:
    root = Path(__file__).parent.parent
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    there = {path.name for path in (root / "haybale" / "reports").iterdir() if path.is_file() and path.suffix != ".py"}
    assert there == set(listed["haybale.reports"])


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


def test_ticks_are_few_round_and_inside() -> None:
    rng = np.random.default_rng(0)
    for low, width in zip(rng.normal(size=200), 10.0 ** rng.uniform(-4, 6, size=200), strict=True):
        found = ticks(float(low), float(low + width))
        assert 2 <= len(found) <= 6
        assert low - 1e-9 * width <= found[0] <= found[-1] <= low + width * (1 + 1e-9)


def test_the_parser_of_these_tests_sees_what_is_unbalanced() -> None:
    assert read_page("<p><b>x</p></b>").unbalanced != []
    assert read_page('<p onclick="x()">a</p>').handlers == [("p", "onclick")]
