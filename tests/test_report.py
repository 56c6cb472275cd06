"""The report: a page that is well-formed, loads nothing, escapes all it is given, and shows the numbers there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports import Page, hostile, read_page, small
from scipy import stats

from haybale.collections import Collection
from haybale.evaluation import averages, compare, evaluate, markdown
from haybale.reports import write_report
from haybale.reports.differences import differences
from haybale.reports.load import load
from haybale.reports.svg.scales import ticks
from haybale.retrieval import Run

RANKERS = ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")


@pytest.fixture(scope="module")
def collection() -> Collection:
    return small()


@pytest.fixture(scope="module")
def folder(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    compare(collection, RANKERS).write(folder)
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
    outcome = compare(collection, RANKERS)
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
    compare(collection, ("bm25", "bm25-doc")).write(tmp_path / "runs<b>")
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


def test_the_same_runs_make_the_same_page(folder: Path, collection: Collection) -> None:
    assert write_to(folder, collection) == write_to(folder, collection)
    assert write_to(folder, collection, random_state=1) != write_to(folder, collection)


def test_a_query_of_one_paragraph_is_split_into_sentences(folder: Path, collection: Collection) -> None:
    page = read_page(write_to(folder, collection, query="dev-0", picture="none"))
    assert "The query dev-0 has 2 sentences." in page.text
    page = read_page(write_to(folder, collection, query="dev-1", picture="none"))
    assert "The query dev-1 has 3 paragraphs." in page.text
    assert set(re.findall(r"paragraph (\d+) → ", page.raw)) == {"0", "1", "2"}  # as passages are
    shares = [float(value) for value in re.findall(r"→ [^:<]+: (\d+\.\d) %", page.raw)]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_the_picture_counts_what_is_near(folder: Path, collection: Collection) -> None:
    page = read_page(write_to(folder, collection))
    found = re.search(r"In the full space (\d+) of these (\d+) relevant passages are among the nearest", page.text)
    assert 0 < int(found.group(1)) <= int(found.group(2)) == sum(map(len, collection.relevant_ids("dev")))
    assert "t-SNE of TF-IDF vectors." in page.text


def test_an_installed_package_has_the_page() -> None:
    root = Path(__file__).parent.parent
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    there = {path.name for path in (root / "haybale" / "reports").iterdir() if path.is_file() and path.suffix != ".py"}
    assert there == set(listed["haybale.reports"])


def test_ticks_are_few_round_and_inside() -> None:
    rng = np.random.default_rng(0)
    for low, width in zip(rng.normal(size=200), 10.0 ** rng.uniform(-4, 6, size=200), strict=True):
        found = ticks(float(low), float(low + width))
        assert 2 <= len(found) <= 6
        assert low - 1e-9 * width <= found[0] <= found[-1] <= low + width * (1 + 1e-9)


def test_the_parser_of_these_tests_sees_what_is_unbalanced() -> None:
    assert read_page("<p><b>x</p></b>").unbalanced != []
    assert read_page('<p onclick="x()">a</p>').handlers == [("p", "onclick")]
