"""The page of a passage is shown as it was indexed: in folders, zip files and mail, or by OCR; or a reason is given."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")
pytest.importorskip("reportlab")

from support.page_files import PASSAGES, by_reportlab, engine_of, ink, passage_ids

from haybale import Chunking, Engine
from haybale.collections.readers.files import read_files
from haybale.engine.original_files import OriginalFileError, OriginalFiles
from haybale.engine.page_view import PageView, view_page
from haybale.engine.update import record_files, signatures, update
from haybale.errors import InputError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


def check_boxes(view: PageView) -> None:
    """The red passage, and nothing else, is in the boxes."""
    assert view.note == ""
    assert min(ink(view.picture, view.boxes)) > 0.95


def test_the_page_of_a_passage_of_a_file(source: Path, tmp_path: Path) -> None:
    (source / "lease.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    (source / "notes.txt").write_text("A note.")
    engine = engine_of(source, tmp_path / "engine")
    files = OriginalFiles(Engine.open(tmp_path / "engine"))
    ids = passage_ids(engine, "lease.pdf")
    view = view_page(files, "lease.pdf", ids[1])
    check_boxes(view)
    assert (view.page, view.pages, view.n_pages) == (1, [1], 1)
    first = view_page(files, "lease.pdf", ids[0])  # the title stands before it in the index
    assert first.boxes
    assert first.boxes[0].top < view.boxes[0].top
    whole = view_page(files, "lease.pdf")
    assert (whole.page, whole.boxes, whole.picture) == (1, [], view.picture)
    assert "data:image/png" in view._repr_html_()
    for doc_id, passage_id, message in (
        ("lease.pdf", "lease.pdf:99", "a passage of the document"),
        ("lease.pdf", passage_ids(engine, "notes.txt")[0], "a passage of the document"),
        ("absent.pdf", None, "absent"),
        ("notes.txt", None, "no pages"),
    ):
        with pytest.raises(InputError, match=message):
            view_page(files, doc_id, passage_id)
    with pytest.raises(OriginalFileError, match="from 1 to 1"):
        view_page(files, "lease.pdf", ids[1], page=2)


def test_a_piece_of_a_passage_is_boxed(source: Path, tmp_path: Path) -> None:
    (source / "lease.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    read = read_files(source)
    settings = {"language": "english", "encoder": "tfidf(min_df=1)", "chunking": Chunking(8)}
    engine = Engine.build(read, tmp_path / "engine", **settings)
    record_files(engine, signatures(source), source)
    pieces = [str(id) for id in engine.collection.passages.ids.to_pylist()]
    whole = passage_ids(engine, "lease.pdf")[1]
    views = [view_page(OriginalFiles(engine), "lease.pdf", id) for id in pieces if id.startswith(f"{whole}#")]
    assert len(views) > 1
    for view in views:
        recall, precision = ink(view.picture, view.boxes)
        assert precision > 0.95
        assert 0 < recall < 0.9
    assert sum(ink(view.picture, view.boxes)[0] for view in views) > 0.95


def test_a_passage_that_ends_on_the_next_page(source: Path, tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(source / "two.pdf"))
    canvas.setTitle("")
    for lines in (
        ["The tenant returns the premises.", "Then the lessor inspects all pre-"],
        ["mises again.", "The end."],
    ):
        for i, line in enumerate(lines):
            canvas.drawString(72, 700 - 60 * i, line)
        canvas.showPage()
    canvas.save()
    engine = engine_of(source, tmp_path / "engine")
    files, ids = OriginalFiles(engine), passage_ids(engine, "two.pdf")
    texts = engine.whole.passages.texts.to_pylist()
    divided = next(id for id, text in zip(ids, texts, strict=True) if text.endswith("all premises"))
    first, second = view_page(files, "two.pdf", divided), view_page(files, "two.pdf", divided, page=2)
    assert first.pages == second.pages == [1, 2]
    assert (len(first.boxes), len(second.boxes)) == (2, 1)
    assert second.boxes[0].top < 0.2
    other = view_page(files, "two.pdf", ids[-1], page=1)
    assert not other.boxes
    assert "page 2" in other.note


def test_files_in_zip_files_and_mail(source: Path, tmp_path: Path) -> None:
    data = by_reportlab(PASSAGES, 1)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep/lease.pdf", data)
    with zipfile.ZipFile(source / "files.zip", "w") as archive:
        archive.writestr("lease.pdf", data)
        archive.writestr("inner.zip", inner.getvalue())
    forwarded = EmailMessage()
    forwarded["Subject"] = "The lease"
    forwarded["Message-ID"] = "<1@x>"
    forwarded.set_content("See the lease.")
    forwarded.add_attachment(data, maintype="application", subtype="pdf", filename="lease.pdf")
    mail = EmailMessage()
    mail["Subject"] = "Forwarded"
    mail["Message-ID"] = "<2@x>"
    mail.set_content("See below.")
    mail.add_attachment(forwarded)
    mail.add_attachment(data, maintype="application", subtype="octet-stream", filename="copy.pdf")
    (source / "mail.eml").write_bytes(bytes(mail))
    engine = engine_of(source, tmp_path / "engine")
    files = OriginalFiles(engine)
    doc_ids = [doc_id for doc_id in engine.whole.doc_ids.to_pylist() if doc_id.endswith(".pdf")]
    assert len(doc_ids) == 4
    for doc_id in doc_ids:
        original = files.find(doc_id)
        assert original.name.endswith(".pdf")
        assert original.read() == data
        check_boxes(view_page(files, doc_id, passage_ids(engine, doc_id)[1]))
    whole = files.find("mail.eml")
    assert whole.read() == (source / "mail.eml").read_bytes()
    with pytest.raises(OriginalFileError, match="no pages"):
        view_page(files, "mail.eml")


def test_a_zip_file_in_place_of_a_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "files.zip", "w") as archive:
        archive.writestr("a/lease.pdf", by_reportlab(PASSAGES, 1))
    engine = engine_of(tmp_path / "files.zip", tmp_path / "engine")
    check_boxes(view_page(OriginalFiles(engine), "a/lease.pdf", passage_ids(engine, "a/lease.pdf")[1]))


def test_a_file_that_changed_vanished_or_moved_is_told(source: Path, tmp_path: Path) -> None:
    path, data = source / "lease.pdf", by_reportlab(PASSAGES, 1)
    path.write_bytes(data)
    engine = engine_of(source, tmp_path / "engine")
    files, passage = OriginalFiles(engine), passage_ids(engine, "lease.pdf")[1]
    os.utime(path, (1, 1))  # the same content, written again
    check_boxes(view_page(files, "lease.pdf", passage))
    other = tmp_path / "other.pdf"
    other.write_bytes(by_reportlab(PASSAGES[::-1], 1))
    for replace in (lambda: path.write_bytes(other.read_bytes()), lambda: (path.unlink(), path.symlink_to(other))):
        replace()
        with pytest.raises(OriginalFileError, match="another version"):
            view_page(files, "lease.pdf", passage)
        with pytest.raises(OriginalFileError, match="another version"):
            files.find("lease.pdf").read()
    path.unlink()
    with pytest.raises(OriginalFileError, match=r"'lease\.pdf'.*found none"):
        view_page(files, "lease.pdf", passage)
    os.mkfifo(path)  # reading it would wait for ever
    with pytest.raises(OriginalFileError, match="found none"):
        files.find("lease.pdf").read()
    path.unlink()
    path.write_bytes(data)
    moved = tmp_path / "elsewhere"
    shutil.move(source, moved)
    with pytest.raises(OriginalFileError, match="haybale index"):
        view_page(files, "lease.pdf", passage)
    assert update(engine, moved)[:4] == (0, 0, 0, 0)
    check_boxes(view_page(files, "lease.pdf", passage))


def test_engines_that_do_not_know_their_files_say_so(source: Path, tmp_path: Path) -> None:
    (source / "lease.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    in_memory = Engine(read_files(source), language="english", encoder="tfidf(min_df=1)")
    with pytest.raises(OriginalFileError, match="haybale index"):
        OriginalFiles(in_memory).find("lease.pdf")
    engine = engine_of(source, tmp_path / "engine")
    engine.add({"added": "A text without a file."})
    with pytest.raises(OriginalFileError, match="added in another way"):
        OriginalFiles(engine).find("added")


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="needs Tesseract")
def test_a_recognised_page_is_boxed(source: Path, tmp_path: Path) -> None:
    from PIL import Image
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    from haybale.collections.files.page_picture import draw_page

    drawn = draw_page(by_reportlab(PASSAGES, 1), ".pdf", 0)
    image = Image.open(io.BytesIO(drawn.picture)).convert("RGB")
    canvas = Canvas(str(source / "scan.pdf"), pagesize=(595, 842))
    canvas.setTitle("")
    canvas.drawString(72, 700, "The cover, which has a text of its own.")
    canvas.showPage()
    canvas.drawImage(ImageReader(image), 0, 0, 595, 842)
    canvas.save()
    image.save(source / "photo.png", dpi=(130, 130))
    engine = engine_of(source, tmp_path / "engine", ocr="missing", ocr_languages="eng")
    files = OriginalFiles(engine)
    texts = dict(zip(engine.whole.passages.ids.to_pylist(), engine.whole.passages.texts.to_pylist(), strict=True))
    for doc_id, page in (("scan.pdf", 2), ("photo.png", 1)):
        (passage,) = (id for id in passage_ids(engine, doc_id) if "deposit" in texts[id])
        view = view_page(files, doc_id, passage)
        assert view.page == page
        check_boxes(view)
    shutil.rmtree(tmp_path / "engine" / "ocr")
    view = view_page(files, "scan.pdf", passage_ids(engine, "scan.pdf")[-1])
    assert view.picture
    assert not view.boxes
    assert "not kept" in view.note
