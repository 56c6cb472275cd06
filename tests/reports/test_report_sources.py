"""The input of a report: folders, files, names and vectors; bad input is refused and leaves no file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page

from haybale.collections import Collection
from haybale.embeddings import Chunking, LSAEncoder, embed
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.evaluation import compare
from haybale.reports import write_report

Reported = Callable[..., Page]


def test_a_report_about_run_files(folder: Path, reported: Reported, collection: Collection, tmp_path: Path) -> None:
    files = [folder / "runs" / f"{name}.trec" for name in ("bm25", "knn")]
    page = reported(*files, split="dev", picture="none")
    assert page.unbalanced == []
    assert page.absent == ["paragraphs", "picture", "seconds", "facts", "settings"]
    assert "knn against bm25" in page.text
    out = tmp_path / "new" / "report.html"
    about = write_report(files[1:], out, collection=collection, split="dev", picture="none")
    assert (about.baseline, about.ranker) == ("knn", None)
    assert "queries" in Page(out.read_text()).absent
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_different_runs_of_the_same_name(
    folder: Path, reported: Reported, collection: Collection, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    compare(Engine(collection, encoder="lsa(n_components=4)"), ("bm25", "knn")).write(second)
    # The runs of BM25 are equal; those of nearest neighbours differ because the vectors differ.
    page = reported(folder, second, picture="none")
    names = [row[0].removesuffix("baseline").strip() for row in page.tables[0][1:]]
    assert names == ["bm25", "bm25-doc", "first/knn", "parm-vrrf", "rrf(bm25,knn)", "second/knn"]
    assert "encoderlsa" in page.text.replace(" ", "")
    shutil.copytree(folder, tmp_path / "other" / "second")
    with pytest.raises(InputError, match="'second/knn'"):
        reported(second, tmp_path / "other" / "second")


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"ranker": "bm26"}, "'bm26'.*bm25"),
    ({"ranker": "bm25"}, "baseline.*'bm25'"),
    ({"split": "test"}, "'test'.*train, dev"),
    ({"split": "train"}, "'bm25'.*'dev-0'.*'train'"),
    ({"query": "train-0"}, "'train-0'"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_bad_input_is_named_and_leaves_an_existing_page(
    options: dict[str, Any], message: str, reported: Reported, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text("the page before")
    with pytest.raises(InputError, match=message):
        reported(**options)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"report.html": "the page before"}


def test_bad_runs(folder: Path, collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, text in (("a.run", ""), ("b.run", "dev-0 Q0 nothing 1 1.0 tag\n"), ("c.run", "dev-99 Q0 d0 1 1.0 tag\n")):
        (tmp_path / name).write_text(text)
    shutil.copytree(folder, tmp_path / "other")
    settings = json.loads((folder / "settings.json").read_text()) | {"split": "train"}
    (tmp_path / "other" / "settings.json").write_text(json.dumps(settings))
    known, out = {"collection": collection, "split": "dev"}, tmp_path / "r.html"
    for names, options, message in [
        (["empty"], {}, r"empty: "),
        (["other/table.md"], {}, r"table.md: .*\.trec, \.run, \.txt"),
        ([], {}, "runs"),
        (["a.run"], {}, "a.run: "),
        (["b.run"], known, "'b'.*'nothing'.*small"),
        (["c.run"], known, "'c'.*'dev-99'.*'dev'.*small"),
        (["c.run"], {}, "--collection"),
        (["c.run"], {"collection": collection}, "--split.*train, dev"),
        ([folder, "other"], {"collection": collection}, "split.*dev, train"),
    ]:
        with pytest.raises((InputError, FileFormatError), match=message):
            write_report([tmp_path / name for name in names], out, **options)
        assert not out.exists()
    with pytest.raises(InputError, match="empty"):
        write_report([folder], tmp_path / "empty")


def test_equal_runs_and_runs_without_some_queries(folder: Path, reported: Reported, tmp_path: Path) -> None:
    bm25 = folder / "runs" / "bm25.trec"
    lines = bm25.read_text().splitlines(keepends=True)
    (tmp_path / "copy.run.txt").write_text("".join(lines))
    (tmp_path / "part.run").write_text("".join(line for line in lines if not line.startswith("dev-1")))
    (tmp_path / "one.run").write_text(lines[0])
    page = reported(bm25, tmp_path / "copy.run.txt", split="dev", ranker="copy.run", picture="none")
    assert re.findall(r'class="count (?:win|tie|loss)">(\d+)<', page.raw) == ["0", "24", "0"]
    assert page.unbalanced == []
    page = reported(bm25, tmp_path / "part.run", tmp_path / "one.run", split="dev", picture="none")
    assert {"11", "23"} <= set(re.findall(r"<data>(\d+)</data>", page.raw))


@pytest.mark.parametrize("how", ["pieces", "paragraphs", "store"])
def test_vectors_have_the_settings_of_the_comparison(
    how: str, reported: Reported, collection: Collection, tmp_path: Path
) -> None:
    settings, said = {
        "pieces": ({"encoder": "tfidf", "chunking": Chunking(4, 2)}, "vectors of tfidf"),
        "paragraphs": ({"encoder": "lsa(n_components=6)", "paragraphs": "sentences"}, "vectors of lsa(n_components=6)"),
        "store": ({"store": str(tmp_path / "store")}, "vectors of a store (LSAEncoder)"),
    }[how]
    if how == "store":
        embed(collection, LSAEncoder(6), tmp_path / "store")
    compare(Engine(collection, **settings), ("bm25", "parm-vrrf")).write(tmp_path / "run")
    stages: list[str] = []
    page = reported(tmp_path / "run", collection=collection, report=lambda stage, seconds: stages.append(stage))
    assert page.absent == []
    assert said in page.text
    assert ("read vectors" in stages) == (how == "store")
    assert str(tmp_path) not in page.raw


def test_a_report_on_an_engine_has_its_added_documents(
    reported: Reported, collection: Collection, tmp_path: Path
) -> None:
    engine = Engine.build(collection, tmp_path / "engine", paragraphs="sentences")
    engine.add({"later": collection.passages.texts[:3].to_pylist()})
    outcome = compare(engine, ("bm25", "knn"))
    replace(outcome, source=str(tmp_path / "engine")).write(tmp_path / "run")
    page = reported(tmp_path / "run", collection=None)
    assert "documents31" in page.text.replace(" ", "")
    assert page.absent == []
    assert str(tmp_path) not in page.raw
    assert reported(tmp_path / "run", collection=engine).raw == page.raw


def test_a_report_about_some_documents(reported: Reported, collection: Collection, tmp_path: Path) -> None:
    """Only judgements of these count, as in the comparison; the condition is recorded, or given for run files."""
    pytest.importorskip("duckdb")
    where = "id < 'd2'"
    engine = Engine.build(collection, tmp_path / "engine")
    outcome = compare(engine, ("bm25", "knn"), where=where)
    replace(outcome, source=str(tmp_path / "engine")).write(tmp_path / "run")
    expected = f"{outcome.results.values['knn']['nDCG@10'].mean():.4f}"
    recorded = reported(tmp_path / "run", collection=None)
    given = reported(tmp_path / "run" / "runs", collection=collection, split="dev", where=where, picture="none")
    for page in (recorded, given):
        assert any(expected in cell for row in page.tables[0] for cell in row)
    assert recorded.absent == []
    compare(engine, ("bm25", "knn")).write(tmp_path / "all")
    with pytest.raises(InputError, match="'where'"):
        reported(tmp_path / "run", tmp_path / "all")
    with pytest.raises(InputError, match="--where"):
        reported(tmp_path / "all", where=where)


def test_an_encoder_that_cannot_be_made_again(reported: Reported, collection: Collection, tmp_path: Path) -> None:
    compare(Engine(collection, encoder=LSAEncoder(4)), ("bm25", "knn")).write(tmp_path / "run")
    page = reported(tmp_path / "run")
    assert page.absent == ["paragraphs", "picture"]
