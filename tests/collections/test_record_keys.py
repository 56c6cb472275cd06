"""Ids of records do not depend on positions: every permutation of a file has the same ids for the same texts."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from haybale.collections.files.record_keys import keys_of_row
from haybale.collections.readers.files import read_files

Row = dict[str, str]
DOI = "10.1000/xyz"
ROWS: list[Row] = [
    {"title": "Leases", "abstract": "A lease ends.", "doi": f"https://doi.org/{DOI.upper()}", "pmid": "", "year": "1"},
    {"title": "Taxes", "abstract": "A tax is due.", "doi": "NA", "pmid": "17", "year": "2"},
    {"title": "Dogs", "abstract": "A dog barks.", "doi": "10.1000/twice", "pmid": "-", "year": "3"},
    {"title": "Cats", "abstract": "A cat purrs.", "doi": "doi:10.1000/TWICE", "pmid": "18", "year": "4"},
    {"title": "Cows", "abstract": "A cow moos.", "doi": "", "pmid": "0", "year": "5"},
    {"title": "Cows", "abstract": "A cow moos.", "doi": "", "pmid": "", "year": "6"},
    {"title": "Hens", "abstract": "A hen clucks.", "doi": "-", "pmid": "NA", "year": "7"},
]
NAMES = {"title": "TI", "abstract": "AB", "doi": "DO", "pmid": "", "year": "PY"}


def as_csv(rows: list[Row], delimiter: str = ",") -> bytes:
    out = io.StringIO(newline="")
    table = csv.DictWriter(out, rows[0], delimiter=delimiter)
    table.writeheader()
    table.writerows(rows)
    return out.getvalue().encode()


def as_ris(rows: list[Row]) -> bytes:
    lines = [
        "".join(f"{NAMES[name]}  - {value}\n" for name, value in row.items() if NAMES[name] and value) for row in rows
    ]
    return "".join(f"TY  - JOUR\n{record}ER  - \n\n" for record in lines).encode()


def as_xlsx(sheets: dict[str, list[Row]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        sheet.append(list(rows[0]))
        for row in rows:
            sheet.append(list(row.values()))
    book.save(out := io.BytesIO())
    return out.getvalue()


def as_parquet(rows: list[Row]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), out := io.BytesIO())
    return out.getvalue()


def as_zip(rows: list[Row]) -> bytes:
    with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
        archive.writestr("inner.csv", as_csv(rows))
    return out.getvalue()


def as_mail(rows: list[Row]) -> bytes:
    message = EmailMessage()
    message["subject"], message["from"] = "Records", "a@example.org"
    message.set_content("See the table.")
    message.add_attachment(as_csv(rows), maintype="text", subtype="csv", filename="inner.csv")
    return bytes(message)


MAKE: dict[str, Any] = {
    "r.csv": as_csv,
    "r.tsv": lambda rows: as_csv(rows, "\t"),
    "r.jsonl": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "r.parquet": as_parquet,
    "r.ris": as_ris,
    "r.xlsx": lambda rows: as_xlsx({"one": rows}),
    "two.xlsx": lambda rows: as_xlsx({"one": rows, "two": rows[::-1]}),
    "r.zip": as_zip,
    "r.eml": as_mail,
}


def documents(path: Path, data: bytes) -> dict[str, tuple[str, Any]]:
    """Return the text and the year of each document of a file, by id."""
    path.write_bytes(data)
    collection = read_files(path)
    assert not collection.unread
    years = collection.documents_table()["year"].to_pylist()
    return dict(zip(collection.doc_ids.to_pylist(), zip(collection.document_texts(), years, strict=True), strict=True))


@pytest.mark.parametrize("name", MAKE)
def test_every_permutation_has_the_same_ids(name: str, tmp_path: Path) -> None:
    rng, expected = random.Random(0), documents(tmp_path / name, MAKE[name](ROWS))
    n_others = 1 if name.endswith(".eml") else 0
    assert len(expected) == len(ROWS) * (2 if name == "two.xlsx" else 1) + n_others
    assert sum(doc_id.endswith(DOI) for doc_id in expected) == (2 if name == "two.xlsx" else 1)
    assert not any("twice" in doc_id for doc_id in expected)  # both records are kept, by their texts
    for _ in range(8):
        assert documents(tmp_path / name, MAKE[name](rng.sample(ROWS, len(ROWS)))) == expected


def test_records_that_are_added_removed_or_edited_leave_the_ids_of_others(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    before = documents(path, as_csv(ROWS))
    top = {"title": "New", "abstract": "Another record.", "doi": "", "pmid": "", "year": "9"}
    after = documents(path, as_csv([top, *ROWS]))
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1
    fewer = documents(path, as_csv(ROWS[2:]))
    assert all(fewer[doc_id] == before[doc_id] for doc_id in fewer)
    edited = [ROWS[0] | {"abstract": "A lease ends early."}, *ROWS[1:]]
    assert documents(path, as_csv(edited))[f"r.csv:{DOI}"][0].endswith("early.")


def test_one_of_two_true_duplicates_keeps_the_first_id(tmp_path: Path) -> None:
    twins, one = ([row for row in ROWS if row["title"] == "Cows"], tmp_path / "r.csv")
    both = documents(one, as_csv(twins))
    alone = documents(one, as_csv(twins[1:]))
    assert alone.keys() < both.keys()
    assert {text for text, _ in both.values()} == {text for text, _ in alone.values()}


@pytest.mark.parametrize("junk", ["NA", "n/a", "-", "--", "?", "none", "null", "nan", "0", "unknown", "10.1000/same"])
def test_a_key_column_with_one_value_in_all_rows_is_ignored(junk: str, tmp_path: Path) -> None:
    rows = [{"title": f"T{n}", "abstract": f"Text {n}.", "doi": junk, "pmid": junk, "year": "1"} for n in range(3)]
    ids = documents(tmp_path / "r.csv", as_csv(rows))
    assert len(ids) == 3
    (only,) = documents(tmp_path / "r.csv", as_csv(rows[:1]))  # a single record has a key if the value is one
    assert ("10.1000/same" in only) == (junk == "10.1000/same")
    assert junk not in ids


def test_ids_of_a_column_stay_unless_they_name_several_texts(tmp_path: Path) -> None:
    rows = [{"id": i, "text": text, "year": "1"} for i, text in [("a", "One."), ("b", "Two."), ("b", "Three.")]]
    rows += [{"id": "c", "text": "Four.", "year": year} for year in "12"]
    expected = documents(tmp_path / "r.csv", as_csv(rows))
    assert {"a", "c"} < expected.keys()
    assert "b" not in expected
    assert sorted(text for text, _ in expected.values()) == ["Four.", "Four.", "One.", "Three.", "Two."]
    for order in itertools.permutations(rows):
        assert documents(tmp_path / "r.csv", as_csv(list(order))) == expected


def test_attachments_with_one_name_are_all_kept(tmp_path: Path) -> None:
    texts = ["One.", "Two.", "Two."]

    def read(order: list[str]) -> dict[str, str]:
        message = EmailMessage()
        message["subject"] = "Notes"
        message.set_content("See the notes.")
        for text in order:
            message.add_attachment(text.encode(), maintype="text", subtype="plain", filename="note.txt")
        (tmp_path / "m.eml").write_bytes(bytes(message))
        collection = read_files(tmp_path / "m.eml")
        assert not collection.unread
        return dict(zip(collection.doc_ids.to_pylist(), collection.document_texts(), strict=True))

    expected = read(texts)
    assert len(expected) == 3  # the message, and two notes
    assert read(texts[::-1]) == expected


def test_normal_forms_of_keys() -> None:
    same = {
        "10.1000/Ab",
        "https://doi.org/10.1000/aB",
        "http://dx.doi.org/10.1000/ab",
        "doi: 10.1000/AB",
        "doi.org/10.1000/ab.",
    }
    assert {keys_of_row({"doi": value}) for value in same} == {("10.1000/ab",)}
    assert keys_of_row({"PMID": 17.0}) == keys_of_row({"pubmed_id": "PMID: 17"}) == ("pmid:17",)
    assert keys_of_row({"Accession Number": "WOS:0001"}) == ("accession:WOS:0001",)
    for junk in (
        "",
        "NA",
        "-",
        None,
        float("nan"),
        "10.1000/",
        "10.1000/a b",
        "10.1000/\x00",
        True,
        ["10.1000/a", "b"],
    ):
        assert keys_of_row({"doi": junk, "pmid": junk}) == ()
