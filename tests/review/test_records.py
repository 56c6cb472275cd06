"""Record files of ASReview are read as they are: CSV, TSV, Excel and RIS, with their labels."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.learners import CountingLearner

from haybale import FileFormatError
from haybale.review import read_records, simulate
from haybale.review.records import is_record_file

ROWS = [("7", "Dogs", "They bark.", "1"), ("8", "Cats, too", "", "0"), ("9", "", "Only an abstract.", "0")]
TEXTS = ["Dogs\nThey bark.", "Cats, too", "Only an abstract."]


def csv_of(header: str = "record_id,title,abstract,label_included", delimiter: str = ",") -> str:
    lines = [header, *(",".join(f'"{cell}"' for cell in row) for row in ROWS)]
    return "\n".join(lines).replace('","', f'"{delimiter}"').replace(header, header.replace(",", delimiter)) + "\n"


def write_xlsx(path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["record_id", "Title", "Abstract", "included"])
    for number, title, abstract, label in ROWS:
        book.active.append([int(number), title, abstract, int(label)])
    book.save(path)


def write_ris(path: Path) -> None:
    notes = {"1": "ASReview_relevant", "0": "ASReview_irrelevant"}
    records = [
        f"TY  - JOUR\nID  - {number}\nTI  - {title}\nAB  - {abstract}\nN1  - {notes[label]}\nER  - \n"
        for number, title, abstract, label in ROWS
    ]
    path.write_text("\n".join(records))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.xlsx", "a.ris", "b.csv", "semicolons.csv"])
def test_each_format_gives_the_same_records(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.csv.gz":
        path.write_bytes(gzip.compress(csv_of().encode("utf-8-sig")))
    elif name.endswith(".xlsx"):
        write_xlsx(path)
    elif name.endswith(".ris"):
        write_ris(path)
    else:
        header = "id,primary_title,Abstract,included" if name == "b.csv" else "record_id,title,abstract,label_included"
        path.write_text(csv_of(header, {"a.tsv": "\t", "semicolons.csv": ";"}.get(name, ",")))
    assert is_record_file(path)
    found = read_records(path)
    assert found.collection.doc_ids.to_pylist() == ["7", "8", "9"]
    assert found.collection.document_texts() == TEXTS
    assert found.collection.doc_titles.to_pylist() == ["Dogs", "Cats, too", ""]
    assert found.relevant == ["7"]


def test_records_without_label_or_text_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text("title,abstract,included\na,b,1.0\nc,d,\ne,f,-1\n,,0\nh,,0.0\n")
    with pytest.warns(UserWarning, match="3 of 5"):
        found = read_records(path)
    assert found.collection.doc_ids.to_pylist() == ["0", "4"]
    assert found.relevant == ["0"]


@pytest.mark.parametrize(
    "text",
    ["", "title,abstract\na,b\n", "included\n1\n", "title,included\na,maybe\n",
     "title,included\na,\n", 'title,included\n"a,1\n', "title,included\n"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*left out")
def test_files_that_are_no_labelled_records(text: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match="wrong"):
        read_records(path)


def test_an_id_that_occurs_twice_is_no_id(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("record_id,title,included\n1,a,1\n1,b,0\n,c,1\n")
    records = read_records(path)
    assert records.collection.doc_ids.to_pylist() == ["0", "1", "2"]
    assert records.relevant == ["0", "2"]


@pytest.mark.parametrize("name", ["broken.xlsx", "broken.ris", "broken.csv.gz", "broken.csv"])
def test_damaged_files_are_one_clear_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b\x00\x01" + bytes(range(256)))
    with pytest.raises(FileFormatError, match="broken"):
        read_records(path)


def test_a_record_file_is_simulated_as_one_topic(tmp_path: Path) -> None:
    path = tmp_path / "animals.csv"
    lines = [f"Title {i},{'dogs bark' if i % 4 == 0 else 'cats purr'} {i},{int(i % 4 == 0)}" for i in range(20)]
    path.write_text("title,abstract,included\n" + "\n".join(lines) + "\n")
    found = simulate(path, seeds=1, text="dogs", learner=CountingLearner)
    assert (found.runs[0].topic, found.runs[0].start, found.runs[0].found_at) == ("animals", "text", (1, 2, 3, 4, 5))
    assert found.runs[0].measures["WSS@100"] == 0.75
