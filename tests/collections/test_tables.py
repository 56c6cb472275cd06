"""Each cell of a generated table is read once, or its row is listed; no text and no label moves to another column."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale import FileFormatError
from haybale.collections import UnreadPart
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.collections.readers.files import read_files
from haybale.delimited_table import read_delimited
from haybale.review import read_records
from haybale.text_files import read_csv

# Words with what tables have to quote. A single line break is no end of a paragraph.
CELLS = st.text(st.sampled_from("abä,;|\t\"\\ \n'"), max_size=12).map(str.strip)
WORDS = st.from_regex("[a-z]{1,8}", fullmatch=True)
LABELS = st.sampled_from(["0", "1"])
# Columns by tag in programs that export RIS: of the title, and of the abstract.
EXPORTS = [("TI", "AB"), ("T1", "N2"), ("TI", "N2"), ("T1", "AB")]


def read(name: str, data: bytes, **options: str) -> tuple[list[FileDocument], list[UnreadPart]]:
    reader = reader_of(name)
    assert reader is not None
    return read_documents(reader, data, options)


def text_of(document: FileDocument) -> str:
    return "\n\n".join(part.text for part in document.parts)


def table(rows: list[list[str]], **dialect: Any) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, **{"lineterminator": "\n"} | dialect).writerows(rows)
    return file.getvalue()


@st.composite
def dialects(draw: st.DrawFn) -> dict[str, Any]:
    delimiter = draw(st.sampled_from(",;\t|"))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    return {"delimiter": delimiter, "quoting": quoting, "lineterminator": draw(st.sampled_from(["\n", "\r\n"]))}


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), dialects(), st.booleans())
def test_each_cell_of_a_table_is_read(cells: list[tuple[str, str]], dialect: dict[str, Any], has_sep: bool) -> None:
    rows = [[str(number), title, text, "end"] for number, (title, text) in enumerate(cells)]
    written = table([["id", "title", "text", "note"], *rows], **dialect)
    written = f"sep={dialect['delimiter']}\n" * has_sep + written
    parsed = read_delimited(written.replace("\r\n", "\n"))
    assert [row for _, row in parsed.rows] == rows
    assert not parsed.problems
    documents, unread = read("a.csv", written.encode())
    by_id = {document.own_id: document for document in documents}
    for number, (title, text) in enumerate(cells):
        if text or title:
            document = by_id.pop(str(number))
            assert " ".join(document.title.split()) == " ".join(title.split())
            assert "".join(text_of(document).split()) == "".join((text or title).split())
            assert document.metadata == {"note": "end"}
    assert not by_id
    assert len(unread) == sum(not any(pair) for pair in cells)


@given(st.lists(st.sampled_from(["good", "many", "few", "quote", "long"]), min_size=1, max_size=8))
def test_rows_that_do_not_fit_are_listed_with_their_line_and_shift_nothing(kinds: list[str]) -> None:
    lines, bad, n_line = ["id,text,court"], [], 1
    for number, kind in enumerate(kinds):
        n_line += 1
        text = {
            "good": f'{number},"text, {number}",BGH',
            "many": f"{number},The tenant pays, the landlord {number},BGH",
            "few": f"{number},text {number}",
            "quote": f'{number},"The tenant" pays {number},BGH',
            "long": f'{number},"text\n\nof several ""lines"" {number}",BGH',
        }[kind]
        lines.append(text)
        bad += [n_line] if kind in ("many", "few", "quote") else []
        n_line += text.count("\n")
    documents, unread = read("a.csv", "\n".join(lines).encode())
    assert sorted(int(part.part.removeprefix("line ")) for part in unread if part.part) == bad
    expected = [str(number) for number, kind in enumerate(kinds) if kind not in ("many", "quote")]
    assert [document.own_id for document in documents] == expected
    for document in documents:
        assert text_of(document).endswith(str(document.own_id))
        assert document.metadata in ({"court": "BGH"}, {})


def test_quotes_have_no_meaning_in_a_table_with_tabs_if_only_that_fits() -> None:
    written = 'id\ttext\n1\t"Notice" in writing\n2\tA "row\n3\t"begins\n4\tends"\n'
    documents, unread = read("a.tsv", written.encode())
    assert [text_of(document) for document in documents] == ['"Notice" in writing', 'A "row', '"begins', 'ends"']
    assert not unread


@given(st.lists(st.sampled_from(["title", "text", "court", ""]), min_size=1, max_size=6), st.data())
def test_columns_with_one_name_or_none_lose_no_cell(names: list[str], data: st.DataObject) -> None:
    columns = [*names, "text"]
    cells = [f"word{number}" for number in range(len(columns))]
    documents, _ = read("a.csv", table([columns, cells]).encode())
    (document,) = documents
    shown = json.dumps([document.title, text_of(document), document.metadata])
    assert all(shown.count(f"{cell}") == 1 for cell in cells)


KEYS = ["text", "abstract", "title", "primary_title", "court", "meta"]
VALUES = st.recursive(
    WORDS | st.integers(0, 9) | st.none(), lambda members: st.lists(members, max_size=3), max_leaves=4
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), min_size=1, max_size=5))
def test_objects_with_other_keys_are_read_or_listed(objects: list[dict[str, Any]]) -> None:
    lines = [json.dumps(each) for each in objects]
    documents, unread = read("a.jsonl", "\n".join([*lines, '["no object"]', "{broken"]).encode())
    by_location = {document.location: document for document in documents}
    listed = {part.part for part in unread}
    assert {f"line {len(lines) + 1}", f"line {len(lines) + 2}"} <= listed
    is_table = any(key in one for one in objects for key in ("text", "abstract", "title", "primary_title"))
    for number, one in enumerate(objects, 1):
        location = f"line {number}"
        values = [one[key] for key in ("text", "abstract") if strings(one.get(key))]
        titles = [one[key] for key in ("title", "primary_title") if one.get(key) is not None]
        title = " ".join(strings(titles[0])) if titles else ""
        expected = strings(values[0]) if values else [title] if title else []
        if is_table and expected:
            assert [part.text for part in by_location.pop(location).parts] == expected
        elif is_table and any(value not in (None, []) for value in one.values()):
            assert location in listed
    assert not by_location
    assert is_table or "" in listed


def strings(value: Any) -> list[str]:
    """Return the texts in a value, in their order."""
    if isinstance(value, list):
        return [text for member in value for text in strings(member)]
    return [] if value is None else [str(value)]


def test_values_of_all_types_of_parquet_are_kept(tmp_path: Path) -> None:
    columns = {
        "TEXT": ["one", None], "text": [None, "two"], "time": [time(12, 30)] * 2, "bytes": [b"\xff", b"a"],
        "sum": [Decimal("1.5")] * 2, "who": [{"name": "Ann"}] * 2,
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    collection = read_files(tmp_path)
    assert collection.passages.texts.to_pylist() == ["one", "two"]
    assert collection.metadata is not None
    rows = [{name: row[name] for name in ("time", "bytes", "sum", "who")} for row in collection.metadata.to_pylist()]
    about = {"time": "12:30:00", "sum": 1.5, "who": '{"name": "Ann"}'}
    assert rows == [about | {"bytes": None}, about | {"bytes": "a"}]
    assert [part.part for part in collection.unread] == ["row 1, column bytes"]


# ------------------------------------------------------------------------------------------------------------- RIS


@st.composite
def merged_records(draw: st.DrawFn) -> tuple[str, list[dict[str, str]], int]:
    """Return the records of several programs in one file, what is in them, and how many are not ended."""
    lines, records, n_unended = list[str](), [], 0
    n_records = draw(st.integers(1, 5))
    for number in range(n_records):
        title_tag, abstract_tag = draw(st.sampled_from(EXPORTS))
        record = {"title": f"Title {number}", "text": f"Abstract {number}\nER  and more", "label": draw(LABELS)}
        note = "ASReview_relevant" if record["label"] == "1" else "ASReview_irrelevant"
        fields = [
            f"{title_tag}  - {record['title']}",
            f"{abstract_tag}  - {record['text']}",
            f"N1  - {note}",
            "XX  - other",
        ]
        fields = draw(st.permutations(fields))
        is_type_first = draw(st.booleans()) or not records or n_unended == len(records)
        is_ended = draw(st.booleans())
        # Without ER, only a TY that comes first ends the record before.
        fields = ["TY  - JOUR", *fields] if is_type_first or not records[-1]["ended"] else [*fields, "TY  - JOUR"]
        lines += fields + (["ER  - "] if is_ended else [])
        lines += [""] * draw(st.integers(0, 2))
        n_unended += not is_ended
        records.append(record | {"ended": "yes" if is_ended else ""})
    return "\n".join(lines), records, n_unended


@given(merged_records())
def test_records_of_several_programs_are_read_with_their_labels(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[str, list[dict[str, str]], int]
) -> None:
    text, records, n_unended = written
    documents, unread = read("a.ris", text.encode())
    assert [document.title for document in documents] == [record["title"] for record in records]
    assert [text_of(document) for document in documents] == [record["text"] for record in records]
    assert all(document.metadata["XX"] == "other" for document in documents)
    assert sum("without ER" in part.reason for part in unread) == n_unended
    path = tmp_path_factory.mktemp("records") / "a.ris"
    path.write_text(text)
    with pytest.warns(UserWarning, match="ER") if n_unended else pytest.MonkeyPatch.context():
        labelled = read_records(path)
    assert labelled.relevant == [str(number) for number, record in enumerate(records) if record["label"] == "1"]
    assert len(labelled.collection.doc_ids) == len(records)


def test_lines_between_records_are_listed_if_they_have_words() -> None:
    record = "TY  - JOUR\nTI  - T\nAB  - A\nER  - \n"
    assert not read("a.ris", f"1.\n{record}2.\n{record}".encode())[1]
    assert [part.part for part in read("a.ris", f"{record}Some words\n{record}".encode())[1]] == ["between the records"]


# ----------------------------------------------------------------------------------------------------------- sheets


@given(
    st.lists(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.integers(0, 3),
)
def test_each_sheet_is_read_or_listed(sheets: list[list[tuple[str, str]]], has_text: list[bool], n_blank: int) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    expected = Counter[str]()
    for number, (rows, is_table) in enumerate(zip(sheets, has_text, strict=False)):
        sheet = book.create_sheet(f"S{number}")
        for _ in range(n_blank):
            sheet.append([])
        sheet.append(["title", "text"] if is_table else ["subject", "remarks"])
        for title, text in rows:
            sheet.append([title, f"{text}_x0009_end"])
            expected[f"{title}: {text}\tend"] += is_table
        sheet.append([None, "=1+1"])  # without a value, as openpyxl writes it
    documents, unread = read("a.xlsx", saved(book))
    assert Counter(f"{document.title}: {text_of(document)}" for document in documents) == +expected
    listed = {part.part: part.reason for part in unread}
    for number, (rows, is_table) in enumerate(zip(sheets, has_text, strict=False)):
        assert (f"sheet S{number}" in listed) == (not is_table)
        if is_table:
            assert f"sheet S{number}, cell B{n_blank + len(rows) + 2}" in listed


def saved(book: openpyxl.Workbook) -> bytes:
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def test_the_words_of_a_chart_are_told() -> None:
    book = openpyxl.Workbook()
    for row in (["id", "text", "fee"], [1, "one", 3]):
        book.active.append(row)
    chart = openpyxl.chart.BarChart()
    chart.title = "Fees by court"
    chart.add_data(openpyxl.chart.Reference(book.active, min_col=3, min_row=1, max_row=2), titles_from_data=True)
    book.active.add_chart(chart)
    documents, unread = read("a.xlsx", saved(book))
    assert [text_of(document) for document in documents] == ["one"]
    assert [(part.part, "Fees by court" in part.reason) for part in unread] == [("drawing chart1.xml", True)]


def test_comments_and_a_password_are_told() -> None:
    book = openpyxl.Workbook()
    book.active.append(["text"])
    book.active.append(["one"])
    book.active["A2"].comment = openpyxl.comments.Comment("a remark", "Ann")
    assert [part.part for part in read("a.xlsx", saved(book))[1]] == ["comments"]
    documents, unread = read("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    assert not documents
    assert [part.part for part in unread] == [""]


# ----------------------------------------------------------------------------------------------- labels, judgements


@given(st.lists(st.tuples(CELLS.filter(bool), LABELS), min_size=1, max_size=5), dialects())
def test_labels_are_those_of_their_records(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]], dialect: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("records") / "a.csv"
    rows = [[f"d{number}", text, label] for number, (text, label) in enumerate(records)]
    path.write_bytes(table([["record_id", "title", "included"], *rows], **dialect).encode())
    labelled = read_records(path)
    assert labelled.relevant == [row[0] for row in rows if row[2] == "1"]


@pytest.mark.parametrize(
    "row",
    ["2,The tenant pays, the landlord,1", '2,"The tenant" pays,1', "2,The tenant pays"],
    ids=["too many", "quote", "too few"],
)
def test_a_label_that_may_be_in_another_column_is_refused_with_its_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"record_id,title,included\n1,One,0\n{row}\n")
    with pytest.raises(FileFormatError, match=r"line 3"):
        read_records(path)
    path.write_text(f"query_id,doc_id,relevance\n1,a,0\n{row}\n")
    with pytest.raises(FileFormatError, match=r"line 3"):
        list(read_csv(path, {"query": ["query_id"], "document": ["doc_id"]}, {"grade": ["relevance"]}))


def test_two_columns_of_labels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("title,included,included\nOne,0,1\n")
    with pytest.raises(FileFormatError, match=r"line 2.*included"):
        read_records(path)
    path.write_text("query_id,doc_id,relevance,relevance\nq,a,0,1\n")
    with pytest.raises(FileFormatError, match=r"line 1.*relevance"):
        list(read_csv(path, {"query": ["query_id"], "document": ["doc_id"]}, {"grade": ["relevance"]}))


def test_labels_may_be_in_another_sheet_than_the_first(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["Remarks of the clerk"])
    sheet = book.create_sheet("Records")
    for row in (["title", "included"], ["One", 1], ["Two", 0]):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    with pytest.warns(UserWarning, match="sheet Sheet"):
        labelled = read_records(tmp_path / "a.xlsx")
    assert labelled.relevant == ["0"]
    assert len(labelled.collection.doc_ids) == 2
