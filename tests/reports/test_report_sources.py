"""What a report is made of: folders, files, names, vectors; and what is refused, with nothing written."""

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


def test_files_alone_make_a_report(folder: Path, reported: Reported, collection: Collection, tmp_path: Path) -> None:
    files = [folder / "runs" / f"{name}.trec" for name in ("bm25", "knn")]
    page = reported(*files, split="dev", picture="none")
    assert page.unbalanced == []
    assert page.absent == ["paragraphs", "picture", "seconds", "facts", "settings"]
    assert "knn against bm25" in page.text
    assert "A folder written by haybale compare --out would bring settings and environment." in page.text
    out = tmp_path / "new" / "report.html"
    about = write_report(files[1:], out, collection=collection, split="dev", picture="none")
    assert (about.baseline, about.ranker) == ("knn", None)
    assert "A second one would bring wins and losses by query." in Page(out.read_text()).text
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_runs_of_the_same_name(folder: Path, reported: Reported, collection: Collection, tmp_path: Path) -> None:
    second = tmp_path / "second"
    compare(Engine(collection, encoder="lsa(n_components=4)"), ("bm25", "knn")).write(second)
    # BM25 is the same in both; nearest neighbours are those of other vectors.
    page = reported(folder, second, picture="none")
    names = [row[0].removesuffix("baseline").strip() for row in page.tables[0][1:]]
    assert names == ["bm25", "bm25-doc", "first/knn", "parm-vrrf", "rrf(bm25,knn)", "second/knn"]
    assert "encoderlsa" in page.text.replace(" ", "")
    shutil.copytree(folder, tmp_path / "other" / "second")
    with pytest.raises(InputError, match=r"two runs that differ are called 'second/knn'"):
        reported(second, tmp_path / "other" / "second")


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"ranker": "bm26"}, "unknown ranker 'bm26' (did you mean bm25"),
    ({"ranker": "bm25"}, "the ranker 'bm25' is the baseline"),
    ({"split": "test"}, "unknown split of small 'test'; known: train, dev"),
    ({"split": "train"}, "run 'bm25': query 'dev-0' is not in the split 'train' of small"),
    ({"query": "train-0"}, "the query 'train-0' is not one of small, dev"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_bad_input_is_named_and_leaves_the_page_there_was(
    options: dict[str, Any], message: str, reported: Reported, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text("the page before")
    with pytest.raises(InputError, match=re.escape(message)):
        reported(**options)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"report.html": "the page before"}


def test_places_without_runs(folder: Path, collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, text in (("a.run", ""), ("b.run", "dev-0 Q0 nothing 1 1.0 tag\n"), ("c.run", "dev-99 Q0 d0 1 1.0 tag\n")):
        (tmp_path / name).write_text(text)
    shutil.copytree(folder, tmp_path / "other")
    settings = json.loads((folder / "settings.json").read_text()) | {"split": "train"}
    (tmp_path / "other" / "settings.json").write_text(json.dumps(settings))
    known, out = {"collection": collection, "split": "dev"}, tmp_path / "r.html"
    for names, options, message in [
        (["empty"], {}, r"empty: no run found; expected a folder written by haybale compare"),
        (["other/table.md"], {}, r"table.md: no run found; .* TREC run files \(\.trec, \.run, \.txt"),
        ([], {}, "no run was given"),
        (["a.run"], {}, "a.run: expected a TREC run, found no line"),
        (["b.run"], known, "run 'b': document 'nothing' is not in small"),
        (["c.run"], known, "run 'c': query 'dev-99' is not in the split 'dev' of small"),
        (["c.run"], {}, "do not say what collection they are of; give --collection"),
        (["c.run"], {"collection": collection}, "do not say what split they are of"),
        ([folder, "other"], {"collection": collection}, "the runs are of different splits: dev, train"),
    ]:
        with pytest.raises((InputError, FileFormatError), match=message):
            write_report([tmp_path / name for name in names], out, **options)
        assert not out.exists()
    with pytest.raises(InputError, match="is a folder; expected the name of a file"):
        write_report([folder], tmp_path / "empty")


def test_runs_that_agree_and_runs_with_gaps(folder: Path, reported: Reported, tmp_path: Path) -> None:
    bm25 = folder / "runs" / "bm25.trec"
    lines = bm25.read_text().splitlines(keepends=True)
    (tmp_path / "copy.run.txt").write_text("".join(lines))
    (tmp_path / "part.run").write_text("".join(line for line in lines if not line.startswith("dev-1")))
    (tmp_path / "one.run").write_text(lines[0])
    page = reported(bm25, tmp_path / "copy.run.txt", split="dev", ranker="copy.run", picture="none")
    assert "0 wins, 24 ties, 0 losses." in page.text
    assert "Largest" not in page.text
    assert page.unbalanced == []
    page = reported(bm25, tmp_path / "part.run", tmp_path / "one.run", split="dev", picture="none")
    assert "part has no ranking for 11 queries, which count 0. one has no ranking for 23 queries" in page.text


@pytest.mark.parametrize("how", ["pieces", "paragraphs", "store"])
def test_vectors_are_those_of_the_comparison(
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


def test_a_comparison_on_an_engine_is_of_its_documents(
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


def test_an_encoder_that_was_given(reported: Reported, collection: Collection, tmp_path: Path) -> None:
    compare(Engine(collection, encoder=LSAEncoder(4)), ("bm25", "knn")).write(tmp_path / "run")
    page = reported(tmp_path / "run")
    assert page.absent == ["paragraphs", "picture"]
    assert "The encoder was an object; an engine as --collection would bring it." in page.text
