"""A topic is taken along: as Word and JSON, and as one folder that opens without haybale."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import docx
import pytest
from support.commands import haybale
from support.decisions import decisions
from support.pages import Page

from haybale import Engine, Review, open_collection
from haybale.review import JudgementStore, write_topic
from haybale.review.topic_folder import INDEX, SUMS

TEXTS = {
    "dogs.md": "# Dogs & damage\n\nDogs bark.\n\nThe keeper of a dog pays for its damage. <script>alert(1)</script>",
    "leads.txt": "A dog needs a lead in the city.",
    "cats.txt": "Cats purr at night.",
    "rent.txt": "The tenant pays the rent.",
}
METADATA = "path,court,date,docket,url\ndogs.md,BGH,2015-01-31,VI ZR 1/14,https://example.org/1\n"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("files")
    (folder / "texts").mkdir()
    for name, text in TEXTS.items():
        (folder / "texts" / name).write_text(text, encoding="utf-8")
    (folder / "texts" / "metadata.csv").write_text(METADATA, encoding="utf-8")
    done = haybale("index", str(folder / "texts"), "--out", str(folder / "engine"), "--language", "english")
    assert done.returncode == 0, done.stderr
    return Engine.open(folder / "engine")


@pytest.fixture
def review(engine: Engine) -> Review:
    review = Review(engine, "Who pays for the damage of a dog?")
    review.change_protocol("Ada", inclusion_criteria="About dogs.\n\n- bites", exclusion_reasons=["about cats"])
    review.judge("dogs.md", 1, "Ada", note="=quote § 833")
    review.judge("leads.txt", 2, "Bob")
    review.judge("cats.txt", 0, "Ada", note="no dog", reasons=["about cats"])
    return review


def contents(path: Path) -> dict[str, bytes]:
    """Return the files of a zip file by their paths in the only folder that it has."""
    with zipfile.ZipFile(path) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"Who-pays-for-the-damage-of-a-dog"}
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def test_the_folder_has_all_of_a_topic(review: Review, tmp_path: Path) -> None:
    review.audit.begin(seed=1)
    for document in review.next(1):
        review.judge(document.doc_id, 0, "Ada")
    write_topic(review, tmp_path / "topic.zip")
    files = contents(tmp_path / "topic.zip")
    assert {name for name in files if "/" not in name} == {
        INDEX, SUMS, "judgements.csv", "judgements.json", "judgements.docx", "records.ris", "prisma.svg", "prisma.csv",
        "prisma.json", "statement.html", "statement.json", "check.py",
    }  # fmt: skip
    assert files["originals/0001-Dogs-damage.md"].decode() == TEXTS["dogs.md"]
    rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(files["judgements.csv"].decode()))}
    assert rows["dogs.md"]["citation"] == "BGH, 2015-01-31, VI ZR 1/14"
    assert rows["dogs.md"]["link"] == rows["dogs.md"]["url"] == "https://example.org/1"
    assert rows["dogs.md"]["notes"] == "'=quote § 833"
    index = Page(files[INDEX].decode())
    for text in ("Dogs & damage", "=quote § 833", "about cats", "no dog", "About dogs.", "VI ZR 1/14"):
        assert text in index.text, text
    assert "Reports included in review" in files[INDEX].decode()
    assert json.loads(files["judgements.json"])["protocol"]["exclusion_reasons"] == ["about cats"]
    for line in files[SUMS].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(files[name]).hexdigest() == digest
    assert set(files) == {line.split("  ")[1] for line in files[SUMS].decode().splitlines()} | {SUMS}
    (tmp_path / "check.py").write_bytes(files["check.py"])
    (tmp_path / "statement.json").write_bytes(files["statement.json"])
    checked = subprocess.run(
        [sys.executable, tmp_path / "check.py", tmp_path / "statement.json"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_its_pages_open_from_a_disk_and_load_nothing(review: Review, tmp_path: Path) -> None:
    write_topic(review, tmp_path / "folder")
    pages = list((tmp_path / "folder").rglob("*.html"))
    assert len(pages) == 3
    for path in pages:
        page = Page(path.read_text(encoding="utf-8"))
        assert page.unbalanced == [] == page.handlers
        assert page.n_scripts == 1
        assert re.search(r"script-src 'sha256-[^']+'$", page.policy)
        assert page.policy.startswith("default-src 'none'")
        for name, address in page.addresses:
            assert name == "href"
            if address.startswith(("#", "data:", "https://example.org/")):
                continue
            target, _, anchor = address.partition("#")
            assert (path.parent / target).is_file(), address
            if anchor:
                assert anchor in Page((path.parent / target).read_text(encoding="utf-8")).ids
    with pytest.raises(Exception, match="folder"):
        write_topic(review, tmp_path / "folder")


def test_what_cannot_be_taken_along_is_said(review: Review, tmp_path: Path) -> None:
    write_topic(review, tmp_path / "small.zip", max_original_bytes=40)
    files = contents(tmp_path / "small.zip")
    assert [name for name in files if name.startswith("originals/")] == ["originals/0002-leads.txt"]
    assert "Without its original file" in Page(files[INDEX].decode()).text
    write_topic(review, tmp_path / "none.zip", originals=False)
    files = contents(tmp_path / "none.zip")
    assert not any(name.startswith("originals/") for name in files)
    assert "Without its original file" not in Page(files[INDEX].decode()).text


def test_an_empty_topic_and_an_engine_without_files(tmp_path: Path) -> None:
    engine = Engine({"a": "Dogs bark."}, language="english", encoder="tfidf(min_df=1)")
    with Review(engine, "???", topic="???") as review:
        write_topic(review, tmp_path / "empty")
        assert "No document was judged as relevant." in (tmp_path / "empty" / INDEX).read_text()
        review.judge("a", 1, note="\x07 \ud800"[:2])
        write_topic(review, tmp_path / "one")
        assert "expected an engine that haybale index has built" in (tmp_path / "one" / INDEX).read_text()
        assert (tmp_path / "one" / "texts" / "0001-a.html").is_file()


def test_a_word_file_of_a_topic(review: Review, tmp_path: Path) -> None:
    (tmp_path / "topic").mkdir()
    path = tmp_path / "topic" / "topic.docx"
    path.write_bytes(review.report().to_word())
    document = docx.Document(str(path))
    headings = [(part.style.name, part.text) for part in document.paragraphs if part.style.name.startswith("Heading")]
    assert headings == [
        ("Heading 1", "Relevant documents (2)"),
        ("Heading 2", "1. Dogs & damage"),
        ("Heading 2", "2. leads"),
        ("Heading 1", "Other judged documents (1)"),
        ("Heading 2", "1. cats"),
    ]
    marked = {run.text.lower() for part in document.paragraphs for run in part.runs if run.font.highlight_color}
    assert "dog" in marked
    text = " ".join(open_collection(tmp_path / "topic").passages.texts.to_pylist())
    assert "The keeper of a dog pays for its damage." in text
    assert "§ 833" in text


def test_a_judge_sees_nothing_hidden_in_it(engine: Engine, tmp_path: Path) -> None:
    """Whatever Ada has said about a document that waits for Bob, Bob's folder is the same."""
    seen = []
    for grade in (0, 1):
        review = Review(engine, "dogs", judgements=JudgementStore())
        review.judges.screen_double(1.0)
        review.judge("leads.txt", 1, "Ada")
        review.judge("leads.txt", 1, "Bob")
        note = {"note": "a secret"} | ({"reasons": ["about secrets"]} if grade == 0 else {})
        review.judge("dogs.md", grade, "Ada", **note)
        review.judge("cats.txt", 1 - grade, "Ada", note="another secret")
        review.audit.begin(seed=1)
        write_topic(review, tmp_path / f"{grade}.zip", seen_by="Bob")
        with zipfile.ZipFile(tmp_path / f"{grade}.zip") as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        assert not any(b"secret" in data for name, data in files.items() if name.endswith((".csv", ".json", ".html")))
        with zipfile.ZipFile(io.BytesIO(files["dogs/judgements.docx"])) as word:
            files["word"] = word.read("word/document.xml")
        # Times, and the size of the Word file, which has its own time compressed.
        times = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00)?|(?<=for Word</td>)<td.*?</td>")
        volatile = ("dogs/SHA256SUMS", "dogs/judgements.docx")
        seen.append({name: times.sub(b"", data) for name, data in files.items() if name not in volatile})
    assert seen[0].keys() == seen[1].keys()
    for name in seen[0]:
        assert seen[0][name] == seen[1][name], name
    write_topic(review, tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert b"another secret" in archive.read("dogs/judgements.csv")


@pytest.mark.parametrize(
    "format",
    [
        "zip",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ["json", "docx", "xlsx", "folder", "beir", "csv"]),
    ],
)
def test_the_command_writes_each_format(engine: Engine, tmp_path: Path, format: str) -> None:
    judgements = tmp_path / "judgements.sqlite"
    with Review(engine, "dogs", judgements=judgements) as review:
        review.judge("dogs.md", 1)
    options: list[Any] = [engine.folder, "dogs", "--judgements", judgements, "--export", format]
    out = tmp_path / f"out.{format}"
    done = haybale("review", *map(str, options), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert out.is_dir() if format in ("folder", "beir") else out.stat().st_size > 200
    to_terminal = haybale("review", *map(str, options))
    assert (to_terminal.returncode == 0) == (format in ("json", "csv"))
    assert ("--out" in to_terminal.stderr) == (format not in ("json", "csv"))


def test_tables_have_the_draws_of_an_audit() -> None:
    review = Review(Engine(decisions(40), language="english", encoder="tfidf(min_df=1)"), "keeper of a dog")
    review.audit.begin(seed=1)
    while following := review.next(1):
        review.judge(following[0].doc_id, int(following[0].doc_id.startswith("dog")), "Ada")
    drawn = {document.doc_id: document.draw for document in review.audit.statement().judgements if document.draw}
    rows = {row["doc_id"]: row["draw"] for row in csv.DictReader(io.StringIO(review.export("csv")))}
    assert drawn
    assert {doc_id: int(draw) for doc_id, draw in rows.items() if draw} == drawn
