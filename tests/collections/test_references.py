"""Every format of bibliographic records gives the same records, under any name; what has no record is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.reference_files import MAKE, RECORDS, bibtex, nbib, ris

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.collections.files.reference_fields import LIST_TAGS, NAME_BY_TAG
from haybale.collections.readers.files import read_files
from haybale.collections.unread import UnreadPart


def read(name: str, text: str) -> tuple[list[FileDocument], list[UnreadPart]]:
    reader = reader_of(name)
    assert reader is not None
    return read_documents(reader, text.encode(), {})


def texts(document: FileDocument) -> list[str]:
    return [part.text for part in document.parts]


@pytest.mark.parametrize("format", MAKE)
@pytest.mark.parametrize("name", [*(f"a.{end}" for end in MAKE), "a.txt"])
def test_each_format_gives_the_same_records_whatever_the_name_is(format: str, name: str) -> None:
    if "bib" in (format, name[2:]):
        pytest.importorskip("bibtexparser")
    documents, unread = read(name, MAKE[format]())
    assert [document.title for document in documents] == [record["title"] for record in RECORDS]
    for document, record in zip(documents, RECORDS, strict=True):
        assert "\n\n".join(texts(document)) == (record["abstract"] or record["title"])
        assert document.metadata["authors"] == record["authors"].split(";")
        assert document.metadata["keywords"] == record["keywords"].split(";")
        assert document.metadata.get("doi", "") == record["doi"]
        assert document.metadata["year"] == record["year"]
        assert record["journal"] in document.metadata.values()
    assert {part.part for part in unread} == (set() if name in (f"a.{format}", "a.txt") else {"format"})


def test_the_names_of_fields_are_those_of_rispy() -> None:
    config = pytest.importorskip("rispy.config")
    names = {tag: name for tag, name in config.TAG_KEY_MAPPING.items() if tag not in ("ER", "UK")}
    assert names == NAME_BY_TAG
    assert set(config.LIST_TYPE_TAGS) == LIST_TAGS


def test_other_texts_are_no_records() -> None:
    for text in ("The tag\nTY is the type.\n", "Write to @home{at}\n", "PT is a tag.\n", "%T\n", "<p>records</p>"):
        documents, unread = read("a.txt", text)
        assert (len(documents), unread) == (1, [])
    for name, text in (
        ("a.xml", "<TEI><text>T</text></TEI>"),
        ("a.bib", "no entry"),
        ("a.nbib", "no record"),
        ("a.ris", "T"),
    ):
        documents, unread = read(name, text)
        assert not documents
        assert any("expected" in part.reason for part in unread)


def test_records_without_title_and_abstract_are_listed() -> None:
    documents, unread = read("a.ris", "TY  - JOUR\nN1  - only a note\nER  - \nTY  - JOUR\nTI  - T\nER  - \n")
    assert ([document.title for document in documents], [part.part for part in unread]) == (
        ["T"],
        ["record 1 (line 1)"],
    )
    documents, unread = read("a.ris", "TY  - JOUR\nN1  - only a note\nER  - \n")
    assert not documents
    assert "neither a title nor an abstract" in unread[0].reason


def test_tags_of_ovid_after_the_end_belong_to_the_record_before() -> None:
    one = "TY  - JOUR\nTI  - One\nER  - \nNL  - Short\n\nLink to a text\n\n2.\n"
    documents, unread = read("a.ris", f"1.\n{one}TY  - JOUR\nTI  - Two\nER  - \nNL  - Other\n")
    assert [document.title for document in documents] == ["One", "Two"]
    assert [document.metadata["NL"] for document in documents] == ["Short\n\nLink to a text", "Other"]
    assert not unread


def test_entries_of_bibtex_that_cannot_be_parsed_are_listed() -> None:
    pytest.importorskip("bibtexparser")
    documents, unread = read("a.bib", f"@book{{b, title={{unclosed, year=1}}\n{bibtex()}")
    assert len(documents) == len(RECORDS)
    assert [part.part for part in unread] == ["line 1"]


def test_what_latex_would_lose_stays() -> None:
    pytest.importorskip("bibtexparser")
    fields = r"title={A 50% rise}, abstract={{DNA} of 5% & $x^2$, costs \$5}, url={https://a.b/?x=1&y=%20z}"
    (document,), _ = read("a.bib", f"@article{{a, {fields}}}")
    assert document.title == "A 50% rise"
    assert texts(document) == ["DNA of 5% & $x^2$, costs $5"]
    assert document.metadata["urls"] == ["https://a.b/?x=1&y=%20z"]


def test_a_folder_of_exports_of_several_databases(tmp_path: Path) -> None:
    (tmp_path / "pubmed.txt").write_text(nbib())
    (tmp_path / "other.ris").write_text(ris())
    (tmp_path / "notes.txt").write_text("PMID- is a tag.\n\nNothing else.")
    collection = read_files(tmp_path)
    assert not collection.unread
    ids: list[Any] = collection.doc_ids.to_pylist()
    assert len(ids) == 2 * len(RECORDS) + 1
    assert {"notes.txt", "pubmed.txt:10.1000/leases.1", "other.ris:10.1000/leases.1", "pubmed.txt:pmid:18"} <= set(ids)
