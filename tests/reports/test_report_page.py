"""The page of a report is well-formed, loads nothing, escapes all texts, and shows the numbers of the evaluation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from support.pages import Page, hostile

from haybale import Engine
from haybale.collections import Collection, CollectionBuilder
from haybale.evaluation import averages, compare, evaluate
from haybale.reports import load, write_report
from haybale.retrieval import Run

Reported = Callable[..., Page]


@pytest.fixture(scope="module")
def page(collection: Collection, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report([folder], out, collection=collection, picture="tsne")
    return Page(out.read_text(encoding="utf-8"))


def test_the_page_is_complete_and_loads_nothing(page: Page) -> None:
    assert page.unbalanced == []
    assert page.sections == ["results", "recall", "queries", "paragraphs", "picture", "seconds", "facts", "settings"]
    assert page.absent == []
    assert {name for name, _ in page.addresses} <= {"href"}
    assert all(value.startswith(("#", "data:")) for _, value in page.addresses), page.addresses
    assert {value[1:] for _, value in page.addresses if value.startswith("#")} <= page.ids
    assert len(page.ids) == page.n_ids  # ids are unique
    assert not re.search(r"url\(|@import|@font-face|\bfetch\(|XMLHttp|import\(", page.style + page.script)
    assert "default-src 'none'" in page.policy
    assert page.unlabelled == 0  # every chart has a description for screen readers
    assert page.raw.count("<svg") == page.raw.count('class="chart') == 4
    assert "<text" in page.raw  # texts of charts can be searched


def test_the_table_has_the_numbers_of_the_evaluation(page: Page, folder: Path, collection: Collection) -> None:
    runs = load(folder).runs
    lines = [row for row in page.tables[0] if row[0] != "ranker"]
    for row, (name, run) in zip(lines, runs.items(), strict=True):
        means = averages(evaluate(run, collection.qrels_frame("dev")))
        assert row[0].removesuffix("baseline").strip() == name
        assert [cell.rstrip("†‡") for cell in row[1:7]] == [f"{value:.4f}" for value in means.values()]
    # Marks, p-values and effect sizes are those of the table that compare writes.
    written = (folder / "table.md").read_text().replace("**", "").splitlines()
    for row, line in zip(lines, written[2:], strict=False):
        assert [row[0].removesuffix("baseline").strip(), *row[1:]] == [cell.strip() for cell in line.split("|")[1:-1]]
    assert written[-1] in page.text
    assert len([cell for cell in page.bold_cells if cell]) >= 6


def test_wins_and_losses_equal_a_slow_computation(folder: Path, collection: Collection, tmp_path: Path) -> None:
    about = write_report([folder], tmp_path / "x.html", collection=collection, picture="none", ranker="knn")
    qrels = collection.qrels_frame("dev")
    ours, theirs = (
        evaluate(Run.from_trec(folder / f"runs/{name}.trec"), qrels, ["nDCG@10"])["nDCG@10"] for name in ("knn", "bm25")
    )
    slow = [(float(ours[query] - theirs[query]), query) for query in ours.index]
    counts = tuple(sum(sign(d) for d, _ in slow) for sign in (lambda d: d > 0, lambda d: d == 0, lambda d: d < 0))
    assert about.counts == counts
    assert about.wins(3) == [q for d, q in sorted(slow, key=lambda each: (-each[0], each[1])) if d > 0][:3]
    assert about.losses(3) == [q for d, q in sorted(slow) if d < 0][:3]
    assert about.wins(0) == []
    page = Page((tmp_path / "x.html").read_text())
    shown = re.findall(
        r'<details id="q\d+" class="query"><summary><span[^>]*>([+-]\d\.\d+)</span> <b>([^<]+)', page.raw
    )
    assert [query for _, query in shown] == about.wins(5) + about.losses(5)
    by_query = {query: f"{value:+.3f}" for value, query in slow}
    assert all(by_query[query] == value for value, query in shown)
    assert re.findall(r'class="count (?:win|tie|loss)">(\d+)<', page.raw) == [str(count) for count in counts]
    bars = re.findall(r'(?:<a href="#(q\d+)"[^>]*>\s*)?<path[^>]*><title>([^<:]+): ([+-]\d\.\d{3})</title>', page.raw)
    assert {query: value for _, query, value in bars} == {q: by_query[q] for d, q in slow if d}
    assert {f"q{number}" for number in range(len(shown))} == {link for link, *_ in bars if link}
    assert [query for link, query, _ in sorted(bars) if link] == [query for _, query in shown]


def test_recall_points_equal_a_slow_computation(page: Page, folder: Path, collection: Collection) -> None:
    relevant: dict[str, set[str]] = {}
    for row in collection.qrels_frame("dev").itertuples():
        relevant.setdefault(row.query_id, set()).add(row.doc_id)
    titles = re.findall(r"<title>([^<:]+): (\d\.\d{4}) at ([\d,]+)</title>", page.raw)
    assert len(titles) == 5 * len({at for _, _, at in titles})
    runs = load(folder).runs
    for name, shown, at in titles:
        cut = int(at.replace(",", ""))
        recalls = [
            len(docs & {doc for doc, _ in runs[name][query][:cut]}) / len(docs) for query, docs in relevant.items()
        ]
        assert shown == f"{np.mean(recalls):.4f}", (name, cut)


def test_hostile_texts_are_escaped(tmp_path: Path) -> None:
    collection, title = hostile(), "<script>alert(1)</script>$title"
    compare(collection, ("bm25", "bm25-doc")).write(tmp_path / "runs<b>")
    out = tmp_path / "r.html"
    how = {"title": title, "ranker": "bm25-doc", "picture": "tsne"}
    write_report([tmp_path / "runs<b>"], out, collection=collection, **how)  # type: ignore[arg-type]
    page = Page(out.read_text(encoding="utf-8"))
    assert page.unbalanced == []
    assert page.n_scripts == 1
    assert page.handlers == []
    assert page.title == title
    for text in ("<script>alert('dev')</script>", "<img src=x onerror=alert(1)>", "</details>", "]]>"):
        assert text in page.text, text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.raw)
    assert r"</script>\x07\x9b\u202e" in page.text  # control characters are shown as escapes
    assert "b, small, span, strong { unicode-bidi: isolate; }" in page.style
    for isolated in (
        "&lt;b&gt;2&lt;/b&gt;",
        "q0&#34;onmouseover",
        "&lt;i&gt;bad&lt;/i&gt;",
    ):  # in elements that isolate the direction of text
        around = set(re.findall(rf"<(\w+)[^<>]*>[^<>]*{isolated}", page.raw))
        assert around <= {"b", "bdi", "title", "text", "h1", "h5", "dd", "p", "div", "svg"}, around
    assert all(value.startswith(("#", "data:")) for _, value in page.addresses)
    drawn = "".join(re.findall(r"<svg.*?</svg>", page.raw, re.S))
    assert "&lt;script&gt;alert" in drawn  # the tooltip of a query
    assert "<script" not in drawn


def test_the_same_runs_make_the_same_page(page: Page, reported: Reported) -> None:
    assert reported().raw == page.raw


def test_a_query_of_one_paragraph_is_split_into_sentences(reported: Reported) -> None:
    assert len(set(re.findall(r"sentence (\d+) → ", reported(query="dev-0").raw))) == 2
    page = reported(query="dev-1")
    assert set(re.findall(r"paragraph (\d+) → ", page.raw)) == {"0", "1", "2"}
    shares = [float(value) for value in re.findall(r"→ [^:<]+: (\d+\.\d) %", page.raw)]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_the_picture_shows_all_passages_and_queries(page: Page, collection: Collection) -> None:
    text, _, drawn = page.raw.partition('id="picture"')[2].partition("</svg>")[0].partition("<svg")
    n_near, n_relevant = map(int, re.findall(r"<data>(\d+)</data>", text))
    assert 0 < n_near <= n_relevant == sum(map(len, collection.relevant_ids("dev")))
    titles = re.findall("<title>(.*?)</title>", drawn)
    assert sum(title.startswith("query dev-") for title in titles) == 24
    assert set(titles) >= set(collection.passages.ids.to_pylist())


def test_the_map_of_vectors_is_left_out_unless_it_is_wanted(
    folder: Path, collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sklearn.manifold.TSNE", lambda **how: pytest.fail("drawn"))
    write_report([folder], tmp_path / "r.html", collection=collection)
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.absent == ["picture"]
    assert "--picture tsne" in page.text
    assert page.raw.count("<svg") == 3


def test_the_explained_query_is_one_that_finds_a_relevant_document(tmp_path: Path) -> None:
    """The queries with the largest wins have no text, or no term that any document has."""
    builder = CollectionBuilder("gaps", language="english")
    for number in range(6):
        builder.add_document(f"d{number}", [f"apples number{number}", f"pears number{number} again"])
    for number, texts in enumerate([["?"], ["unheard words"], ["nothing"], ["number3"], ["number4"]]):
        builder.add_query(f"q{number}", texts, split="dev")
        builder.add_judgement("dev", f"q{number}", f"d{number}")
    collection = builder.build()
    rows = [(f"q{number}", f"d{number}") for number in range(4)]
    run = Run.from_frame(pd.DataFrame([{"query_id": q, "doc_id": d, "score": 1.0} for q, d in rows]))
    worse = Run.from_frame(pd.DataFrame([{"query_id": "q4", "doc_id": "d4", "score": 1.0}]))
    run.to_trec(tmp_path / "better.run")
    worse.to_trec(tmp_path / "bm25.run")

    def report(**how: Any) -> Page:
        files = [tmp_path / "better.run", tmp_path / "bm25.run"]
        write_report(files, tmp_path / "r.html", collection=collection, split="dev", **how)
        return Page((tmp_path / "r.html").read_text(encoding="utf-8"))

    page = report()
    assert page.absent[0] == "picture"
    assert re.search(r"The query <b>(\w+)</b> has", page.raw)[1] == "q3"
    assert "paragraphs" in report(query="q1").absent


def test_charts_are_saved_for_papers(folder: Path, collection: Collection, tmp_path: Path) -> None:
    """Each chart of the page is an SVG and a PDF file, equal for equal runs, whose fonts publishers accept."""
    for name in ("a", "b"):
        how = {"picture": "tsne", "figures": tmp_path / name}
        write_report([folder], tmp_path / "r.html", collection=collection, **how)  # type: ignore[arg-type]
    charts = ("recall", "differences", "paragraphs", "picture")
    files = sorted(f"{chart}.{suffix}" for chart in charts for suffix in ("svg", "pdf"))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == files
    for name in files:
        content = (tmp_path / "a" / name).read_bytes()
        assert content == (tmp_path / "b" / name).read_bytes(), name
        if name.endswith(".svg"):
            root = ElementTree.fromstring(content)
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert not list(root.iter("{http://www.w3.org/2000/svg}a"))  # no link into the page
        else:
            fonts = set(re.findall(rb"/Type /Font\s*/Subtype /(\w+)", content.replace(b"\n", b" ")))
            assert fonts == ({b"Type0", b"CIDFontType2"} if name != "picture.pdf" else set()), name
            assert b"/URI" not in content


@pytest.mark.parametrize("encoder", ["tfidf", "lsa(n_components=6)"], ids=["sparse", "dense"])
def test_an_engine_on_a_device_has_the_same_page(
    encoder: str, cupy: Any, folder: Path, collection: Collection, tmp_path: Path
) -> None:
    pages = []
    for device in ("cpu", "cuda"):
        engine = Engine(collection, encoder=encoder, device=device)
        write_report([folder], tmp_path / "x.html", collection=engine, picture="tsne")
        pages.append(Page((tmp_path / "x.html").read_text(encoding="utf-8")))
    assert pages[0].sections == pages[1].sections
    assert pages[0].absent == pages[1].absent == []
    texts = [re.findall("<title>(.*?)</title>", page.raw.partition('id="picture"')[2]) for page in pages]
    assert sorted(texts[0]) == sorted(texts[1])


def test_the_package_data_includes_the_page() -> None:
    root = Path(__file__).parents[2]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "*.pyi" in listed["*"]  # the names of this package and of others
    files = [path for path in (root / "haybale" / "reports").iterdir() if path.is_file()]
    assert {path.name for path in files if path.suffix not in (".py", ".pyi")} == set(listed["haybale.reports"])
