"""Folders of files in any format become collections; what cannot be read is listed with its reason."""

from __future__ import annotations

import csv
import datetime
import io
import json
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from haybale import Engine, InputError, open_collection
from haybale.collections import load_collection, save_collection
from haybale.collections.files.file_reader import FILE_READERS
from haybale.collections.readers.files import read_files
from haybale.collections.unread import UnreadPart

for package in ("docx", "odf", "openpyxl", "pypdfium2", "reportlab", "trafilatura"):
    pytest.importorskip(package)

TEXT = "The tenant shall return the flat at the end of the lease."
MORE = "Rückgabe: 30 € für § 5 – “later”."
DAY = datetime.date(2015, 3, 1)


def pdf(path: Path, pages: list[list[str]], **encryption: Any) -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    made = canvas.Canvas(str(path), **encryption)
    made.setTitle("Lease of 2015")
    made.setAuthor("Anna Judge")
    for lines in pages:
        for i, line in enumerate(lines):
            made.drawString(72, 770 - 20 * i, line)
        made.showPage()
    made.save()


def word(path: Path) -> None:
    made = pytest.importorskip("docx").Document()
    made.core_properties.title, made.core_properties.author = "Lease of 2015", "Anna Judge"
    made.add_heading("Return", 1)
    made.add_paragraph(TEXT)
    made.add_heading("Costs", 1)
    made.add_paragraph(MORE)
    table = made.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "rent", "900"
    made.save(str(path))


def open_document(path: Path) -> None:
    opened, text, dc = (pytest.importorskip(name) for name in ("odf.opendocument", "odf.text", "odf.dc"))
    made = opened.OpenDocumentText()
    made.meta.addElement(dc.Title(text="Lease of 2015"))
    made.meta.addElement(dc.Creator(text="Anna Judge"))
    for heading, paragraph in (("Return", TEXT), ("Costs", MORE)):
        made.text.addElement(text.H(outlinelevel=1, text=heading))
        made.text.addElement(text.P(text=paragraph))
    made.save(str(path))


def mail(path: Path) -> None:
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = "Lease of 2015", "judge@example.org", "clerk@example.org"
    made["Date"] = datetime.datetime(2015, 3, 1, 12, tzinfo=datetime.UTC)
    made.set_content(f"{TEXT}\n\n{MORE}\n")
    made.add_attachment(b"An attached note about the deposit.", maintype="text", subtype="plain", filename="note.txt")
    made.add_attachment(b"not a pdf", maintype="application", subtype="pdf", filename="broken.pdf")
    path.write_bytes(bytes(made))


PAGE = f"""<html><head><title>Lease of 2015</title><meta name="author" content="Anna Judge"></head><body>
<nav><a href="/">Home</a> <a href="/imprint">Imprint</a></nav><article><h2>Return</h2><p>{TEXT}</p><h2>Costs</h2>
<p>{MORE} {TEXT} {TEXT}</p></article><footer>All rights reserved</footer></body></html>"""
RTF = (
    r"{\rtf1\ansi\ansicpg1252{\info{\title Lease of 2015}{\author Anna Judge}} "
    + TEXT
    + r"\par R\'fcckgabe: 30 \'80\par}"
)
RIS = f"TY  - JOUR\nTI  - Lease of 2015\nAU  - Judge, A.\nPY  - 2015\nAB  - {TEXT}\nER  - \n\n"
MARKDOWN = (
    f"---\ntitle: Lease of 2015\ncourt: BGH\ndate: 2015-03-01\n---\n# Return\n\n{TEXT}\n\nCosts\n-----\n\n{MORE}\n"
)


def table(names: tuple[str, ...] = ("id", "title", "text", "court", "date", "fee")) -> list[dict[str, Any]]:
    rows = [("r1", "Lease of 2015", TEXT, "BGH", "2015-03-01", "30"), ("r2", "Tax", MORE, "", "2016-01-31", "12.5")]
    return [dict(zip(names, row, strict=True)) for row in rows]


def delimited(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table()[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(table())


def spreadsheet(path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    rows = table()
    book.active.append(list(rows[0]))
    for row in rows:
        book.active.append([*list(row.values())[:4], datetime.date.fromisoformat(row["date"]), float(row["fee"])])
    book.save(path)


def zipped(path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep.txt", TEXT)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/note.txt", f"{TEXT}\n\n{MORE}")
        archive.writestr("inner.zip", inner.getvalue())


MAKE: dict[str, Callable[[Path], object]] = {
    "lease.txt": lambda path: path.write_text(f"{TEXT}\n\n{MORE}", encoding="utf-8"),
    "windows.txt": lambda path: path.write_bytes(f"{TEXT}\r\n\r\n{MORE}".encode("cp1252")),
    "wide.txt": lambda path: path.write_bytes(f"{TEXT}\n\n{MORE}".encode("utf-16")),
    "marked.txt": lambda path: path.write_bytes(f"{TEXT}\n\n{MORE}".encode("utf-8-sig")),
    "lease.md": lambda path: path.write_text(MARKDOWN, encoding="utf-8"),
    "lease.html": lambda path: path.write_text(PAGE, encoding="utf-8"),
    "lease.pdf": lambda path: pdf(path, [[TEXT], ["The second page has another para-", "graph."]]),
    "lease.docx": word,
    "lease.odt": open_document,
    "lease.rtf": lambda path: path.write_text(RTF, encoding="ascii"),
    "lease.eml": mail,
    "lease.csv": delimited,
    "lease.xlsx": spreadsheet,
    "lease.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, table())), encoding="utf-8"),
    "lease.parquet": lambda path: pq.write_table(pa.Table.from_pylist(table()), path),
    "lease.ris": lambda path: path.write_text(RIS, encoding="utf-8"),
    "lease.zip": zipped,
}


def texts_of(collection: Any, doc_id: str) -> list[str]:
    number = int(collection.document_numbers([doc_id])[0])
    start, end = collection.passages.doc_offsets[number : number + 2]
    return list(collection.passages.texts[start:end].to_pylist())


def sections_of(collection: Any, doc_id: str) -> list[str | None]:
    number = int(collection.document_numbers([doc_id])[0])
    start, end = collection.passages.doc_offsets[number : number + 2]
    titles = collection.sections.titles.to_pylist()
    return [titles[i] if i >= 0 else None for i in collection.passages.sections[start:end]]


def row_of(collection: Any, doc_id: str) -> dict[str, Any]:
    row = collection.metadata.to_pylist()[int(collection.document_numbers([doc_id])[0])]
    return {name: value for name, value in row.items() if value is not None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("folder") / "mine"
    made.mkdir()
    for name, make in MAKE.items():
        (made / name.partition(".")[2]).mkdir(exist_ok=True)
        make(made / name.partition(".")[2] / name)
    return made


def test_every_format_is_made_and_read(folder: Path) -> None:
    assert {suffix for _, reader in FILE_READERS.items() for suffix in reader.suffixes} >= {
        f".{path.name}" for path in folder.iterdir() if path.name != "zip"
    }
    assert {reader.name for _, reader in FILE_READERS.items()} == {
        "bibtex", "csv", "docx", "eml", "endnote-xml", "enw", "html", "jsonl", "markdown", "mbox", "msg", "nbib", "odt",
        "parquet", "pdf", "picture", "ris", "rtf", "text", "wos", "xlsx",
    }  # fmt: skip


def test_a_folder_of_all_formats(folder: Path) -> None:
    collection = read_files(folder)
    assert [part.location for part in collection.unread] == ["eml/lease.eml, attachment broken.pdf"]
    for name in ("lease", "windows", "wide", "marked"):
        assert texts_of(collection, f"txt/{name}.txt") == [TEXT, MORE]
    for doc_id in ("md/lease.md", "docx/lease.docx", "odt/lease.odt"):
        assert texts_of(collection, doc_id)[:2] == [f"Lease of 2015\nReturn\n{TEXT}", f"Costs\n{MORE}"]
        assert sections_of(collection, doc_id)[:2] == ["Return", "Costs"]
    assert texts_of(collection, "docx/lease.docx")[2:] == ["rent | 900"]
    assert texts_of(collection, "html/lease.html")[0].endswith(f"Return\n{TEXT}")
    assert not any("Imprint" in text for text in texts_of(collection, "html/lease.html"))
    assert sections_of(collection, "html/lease.html")[0] == "Return"
    assert texts_of(collection, "pdf/lease.pdf") == [f"Lease of 2015\n{TEXT}", "The second page has another paragraph."]
    assert sections_of(collection, "pdf/lease.pdf") == ["page 1", "page 2"]
    assert texts_of(collection, "rtf/lease.rtf") == [f"Lease of 2015\n{TEXT}", "Rückgabe: 30 €"]
    assert texts_of(collection, "eml/lease.eml") == [f"Lease of 2015\n{TEXT}", MORE]
    assert texts_of(collection, "eml/lease.eml:note.txt") == ["note.txt\nAn attached note about the deposit."]
    assert texts_of(collection, "zip/lease.zip/a/note.txt") == [TEXT, MORE]
    assert texts_of(collection, "zip/lease.zip/inner.zip/deep.txt") == [TEXT]
    (record,) = (doc_id for doc_id in collection.doc_ids.to_pylist() if doc_id.startswith("ris/lease.ris:"))
    assert texts_of(collection, record) == [f"Lease of 2015\n{TEXT}"]
    titles = dict(zip(collection.doc_ids.to_pylist(), collection.doc_titles.to_pylist(), strict=True))
    for name in ("md", "html", "pdf", "docx", "odt", "rtf", "eml"):
        assert titles[f"{name}/lease.{name}"] == "Lease of 2015"
    assert titles["txt/lease.txt"] == "lease"
    for name in ("pdf", "docx", "odt", "html", "rtf"):
        assert row_of(collection, f"{name}/lease.{name}")["author"] == "Anna Judge"
    assert row_of(collection, "eml/lease.eml")["from"] == "judge@example.org"


@pytest.mark.parametrize("name", ["lease.csv", "lease.xlsx", "lease.jsonl", "lease.parquet"])
def test_rows_of_tables_are_documents_with_typed_metadata(name: str, tmp_path: Path) -> None:
    MAKE[name](tmp_path / name)
    collection = read_files(tmp_path / name)
    assert not collection.unread
    assert collection.doc_ids.to_pylist() == ["r1", "r2"]
    assert collection.doc_titles.to_pylist() == ["Lease of 2015", "Tax"]
    assert texts_of(collection, "r1") == [f"Lease of 2015\n{TEXT}"]
    assert row_of(collection, "r1") == {"file": name, "court": "BGH", "date": DAY, "fee": 30.0}
    assert row_of(collection, "r2") == {"file": name, "date": datetime.date(2016, 1, 31), "fee": 12.5}


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("nr,facts,holding\n7,Some facts.,The holding.\n", encoding="utf-8")
    with pytest.raises(InputError, match="--text"):
        read_files(path)
    collection = read_files(path, {"text": "holding", "id": "nr"})
    assert texts_of(collection, "7") == ["The holding."]
    assert row_of(collection, "7")["facts"] == "Some facts."
    with pytest.raises(InputError, match=r"'ruling'.*nr, facts, holding"):
        read_files(path, {"text": "ruling"})


def test_metadata_beside_the_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text(MORE, encoding="utf-8")
    (tmp_path / "metadata.csv").write_text("path,court,decided\na.txt,BGH,2015-03-01\nmissing.txt,OLG,2016-01-01\n")
    collection = read_files(tmp_path)
    assert row_of(collection, "a.txt") == {"file": "a.txt", "court": "BGH", "decided": DAY}
    assert row_of(collection, "b.txt") == {"file": "b.txt"}
    assert collection.unread == (
        UnreadPart(file="metadata.csv", reason="1 paths of no document, such as 'missing.txt'"),
    )


def test_a_document_that_cannot_be_kept_does_not_shift_the_metadata_of_others(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": "One.", "year": 1}, {"id": "b", "text": "\ud800", "year": 2}, {"id": "c", "text": "3."}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    collection = read_files(tmp_path)
    assert [(part.file, part.part) for part in collection.unread] == [("rows.jsonl", "line 2")]
    assert collection.doc_ids.to_pylist() == ["a", "c"]
    assert [row["year"] for row in collection.metadata.to_pylist()] == [1, None]


def test_metadata_may_have_other_delimiters_and_lines_in_cells(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "metadata.csv").write_text('path;note;court\na.txt;"two\nlines";BGH\n')
    collection = read_files(tmp_path)
    assert not collection.unread
    assert row_of(collection, "a.txt") == {"file": "a.txt", "note": "two\nlines", "court": "BGH"}


def test_any_error_of_a_library_is_the_reason_of_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word(tmp_path / "bad.docx")
    (tmp_path / "good.txt").write_text(TEXT)
    monkeypatch.setattr("haybale.collections.files.office_document.parts_of", lambda blocks: {}["no such part"])
    collection = read_files(tmp_path)
    assert collection.doc_ids.to_pylist() == ["good.txt"]
    assert [(part.file, "KeyError" in part.reason) for part in collection.unread] == [("bad.docx", True)]


def damaged(folder: Path) -> dict[str, Callable[[], object]]:
    """Return files that cannot be read, each with a function that writes it."""
    whole = {name: folder / name.partition(".")[2] / name for name in MAKE}
    binary = ("lease.pdf", "lease.docx", "lease.odt", "lease.xlsx", "lease.parquet", "lease.zip")
    made: dict[str, Callable[[Path], object]] = {
        f"half.{n}": lambda p, n=n: p.write_bytes(whole[f"lease.{n}"].read_bytes()[:200])
        for n in ("docx", "odt", "xlsx", "parquet", "zip")
    }
    made |= {f"empty.{n.partition('.')[2]}": lambda p: p.write_bytes(b"") for n in MAKE}
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
    made |= {f"picture.{n.partition('.')[2]}": lambda p: p.write_bytes(picture) for n in (*binary, "lease.txt")}
    made["encrypted.pdf"] = lambda p: pdf(p, [[TEXT]], encrypt="secret")
    made["scan.pdf"] = lambda p: pdf(p, [[], []])
    made["header.csv"] = lambda p: p.write_text("id,text\n")
    made["list.jsonl"] = lambda p: p.write_text("[1, 2]\n")
    made["photo.heic"] = lambda p: p.write_bytes(picture)
    return made


def test_what_cannot_be_read_is_listed_and_does_not_stop_the_rest(folder: Path, tmp_path: Path) -> None:
    cases = damaged(folder)
    for name, write in cases.items():
        write(tmp_path / name)
    (tmp_path / "good.txt").write_text(TEXT)
    collection = read_files(tmp_path)
    assert collection.doc_ids.to_pylist() == ["good.txt"]
    assert {part.file for part in collection.unread} == set(cases)
    assert all(each.reason and "\n" not in each.reason for each in collection.unread)
    reasons = {part.file: part.reason for part in collection.unread}
    assert "password" in reasons["encrypted.pdf"]
    assert "OCR" in reasons["scan.pdf"]
    assert ".heic" in reasons["photo.heic"]
    with pytest.warns(UserWarning, match="could not be read"):
        open_collection(tmp_path)


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such"):
        open_collection(tmp_path / "missing")
    (tmp_path / "photo.heic").write_bytes(b"\x89PNG")
    with pytest.raises(InputError, match="no document"):
        open_collection(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match=r"photo\.heic"):
        open_collection(tmp_path)


def test_metadata_is_saved_taken_and_extended(folder: Path, tmp_path: Path) -> None:
    collection = read_files(folder)
    save_collection(collection, tmp_path / "saved")
    loaded = load_collection(tmp_path / "saved")
    assert loaded.metadata.to_pylist() == collection.metadata.to_pylist()
    assert loaded.digest() == collection.digest()
    part = loaded.take([1, 3])
    assert part.metadata.to_pylist() == [loaded.metadata.to_pylist()[i] for i in (1, 3)]
    both = part.extended(loaded.take([0, 2]))
    assert [row["file"] for row in both.metadata.to_pylist()] == [
        loaded.metadata.to_pylist()[i]["file"] for i in (1, 3, 0, 2)
    ]


def test_an_engine_of_a_folder(folder: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="could not be read"):
        engine = Engine.build(folder, tmp_path / "engine", language="english")
    assert "pdf/lease.pdf" in Engine.open(tmp_path / "engine").collection.doc_ids.to_pylist()
    assert Engine.open(tmp_path / "engine").collection.metadata.num_rows == engine.collection.n_documents
    with pytest.raises(InputError, match="no document"):
        open_collection(tmp_path / "engine")


def test_many_files_are_read_by_several_processes_in_order(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(f"{TEXT} {number}")
    collection = read_files(tmp_path)
    assert collection.doc_ids.to_pylist() == [f"{number:02}.txt" for number in range(40)]
    assert not collection.unread


def test_the_command_lists_what_it_skipped(
    folder: Path, tmp_path: Path, here: Callable[..., tuple[int, str, str]]
) -> None:
    out = tmp_path / "engine"
    status, _, said = here("index", str(folder), "--out", str(out), "--strict")
    assert status == 2
    assert "broken.pdf" in said
    assert not out.exists()
    status, _, said = here("index", str(folder), "--out", str(out), "--language", "english")
    assert status == 0
    assert "eml/lease.eml, attachment broken.pdf: " in said
    with (out / "skipped.csv").open(newline="") as file:
        assert [(row["file"], row["part"]) for row in csv.DictReader(file)] == [
            ("eml/lease.eml", "attachment broken.pdf")
        ]
    engine = Engine.open(out)
    assert engine.collection.n_documents > 20
    assert [part.location for part in engine.unread] == ["eml/lease.eml, attachment broken.pdf"]
    (folder / "eml" / "lease.eml").write_bytes(b"Subject: Lease\n\nNothing is attached.\n")
    assert here("index", str(folder), "--out", str(out))[0] == 0
    assert engine.unread == []
    assert not (out / "skipped.csv").exists()
