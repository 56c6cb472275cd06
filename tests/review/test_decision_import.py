"""Decisions of other programs reach the documents they are about, and what does not match is listed."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.learners import CountingLearner
from support.reference_files import MAKE, RECORDS, workbook

from haybale import Engine, InputError, Review
from haybale.collections.files.table_rows import Row
from haybale.collections.readers.files import read_files
from haybale.review import import_decisions
from haybale.review.recorded_decisions import RecordedDecision, UnknownDecisionError, decisions_of, grade_of

Fields = dict[str, Any]
IDS = ["leases", "dogs", "taxes"]


def review_of(*more: Fields, duplicates: bool = True) -> Review:
    """Return a review of the records of the tests and of some more, with the fields that CSV files have."""
    documents: dict[str, Any] = {}
    for doc_id, record in zip([*IDS, *(f"more-{n}" for n in range(len(more)))], [*RECORDS, *more], strict=True):
        metadata = {name: value for name, value in record.items() if name not in ("title", "abstract") and value}
        text = record["abstract"] or record["title"]
        documents[doc_id] = {"title": record["title"], "text": text, **metadata}
    engine = Engine(documents, language="english", encoder="tfidf(min_df=1)")
    return Review(engine, "rent", learner=CountingLearner, duplicates=duplicates)


def judged(review: Review) -> dict[str, list[tuple[int, str]]]:
    grades: dict[str, list[tuple[int, str]]] = {}
    for doc_id, grade, judge in review.judgements()[["doc_id", "grade", "judge"]].to_numpy().tolist():
        grades.setdefault(doc_id, []).append((grade, judge))
    return grades


def table(*rows: Fields) -> bytes:
    names = dict.fromkeys(name for row in rows for name in row)
    quoted = [",".join(f'"{row.get(name, "")}"'.replace("\n", " ") for name in names) for row in rows]
    return "\n".join([",".join(names), *quoted]).encode()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"asreview_label": 1, "asreview_note": "a", "asreview_time": "2026-01-02 03:04:05"},
         RecordedDecision(1, note="a", time="2026-01-02T03:04:05+00:00")),
        ({"included": "0", "exclusion reason": "wrong dogs"}, RecordedDecision(0, reasons=("wrong dogs",))),
        ({"label_included": 1.0}, RecordedDecision(1)),
        ({"asreview_label": "", "final_included": "yes", "Reviewer": "Ada"}, RecordedDecision(1, "Ada")),
        ({"Decision": "Exclude"}, RecordedDecision(0)),
        ({"notes": ["about it", "ASReview_relevant", 'asreview_note: "a"']}, RecordedDecision(1, note="a")),
        ({"notes": ["Notes. ASReview_irrelevant. More notes."]}, RecordedDecision(0)),
        ({"notes": 'RAYYAN-INCLUSION: {"Ada B"=>"Included"} | RAYYAN-LABELS: x | USER-NOTES: {"Ada B"=>["a", "b"]}'},
         RecordedDecision(1, "Ada B", "a; b")),
        ({"Notes": "Exclusion reason: Wrong population; "}, RecordedDecision(0, reasons=("Wrong population",))),
    ],
)  # fmt: skip
def test_decisions_are_found_where_programs_write_them(values: Fields, expected: RecordedDecision) -> None:
    name = "notes" if "Notes" in values else ""
    row = Row("line 2", {name or key: value for key, value in values.items()})
    assert decisions_of(row) == [expected]


def test_several_judges_and_undecided_ones() -> None:
    notes = 'RAYYAN-INCLUSION: {"Ada"=>"Included", "Bob"=>"Excluded", "Cyd"=>"Maybe"} | RAYYAN-EXCLUSION-REASONS: a,b'
    assert decisions_of(Row("", {"notes": notes})) == [
        RecordedDecision(1, "Ada"),
        RecordedDecision(0, "Bob", reasons=("a", "b")),
    ]
    for values in (
        {},
        {"included": "maybe"},
        {"notes": "ASReview_not_seen"},
        {"asreview_label": None},
        {"title": "yes"},
    ):
        assert decisions_of(Row("", values)) == []
    assert [grade_of(text) for text in ("TRUE", "3", "-1", "N")] == [1, 3, None, 0]
    with pytest.raises(UnknownDecisionError):
        decisions_of(Row("", {"included": "perhaps"}))


@pytest.mark.parametrize("format", MAKE)
def test_every_format_of_references_is_matched(format: str) -> None:
    if format == "bib":
        pytest.importorskip("bibtexparser")
    review = review_of()
    done = import_decisions(review, f"included.{format}", MAKE[format]().encode(), otherwise=1)
    assert judged(review) == {doc_id: [(1, "")] for doc_id in IDS}
    assert (done.n_decided, done.n_added, done.unmatched, done.several) == (3, 3, [], {})
    with pytest.raises(InputError, match="none in 3"):
        import_decisions(review, f"undecided.{format}", MAKE[format]().encode())


def test_documents_are_found_by_doi_pmid_and_title() -> None:
    rows: list[Fields] = [
        {"title": "Another title", "DOI": "https://doi.org/10.1000/LEASES.1", "included": 1},
        {"title": "", "PMID": "18", "included": 0},
        {"title": "taxes of 50 % and more", "included": 1},  # "&" is no letter
        {"title": "TAXES of 50% & móre.", "year": "2014", "included": 1},
        {"title": "Hens", "included": 1},
    ]
    review = review_of()
    done = import_decisions(review, "a.csv", table(*rows))
    assert judged(review) == {"leases": [(1, "")], "dogs": [(0, "")], "taxes": [(1, "")]}
    assert done.unmatched == ["line 4: taxes of 50 % and more", "line 6: Hens"]
    again = import_decisions(
        review,
        "a.xlsx",
        workbook(
            [{name: str(row.get(name, "")) for name in ("title", "PMID", "DOI", "year", "included")} for row in rows]
        ),
    )
    assert (again.n_added, again.n_repeated, len(again.unmatched)) == (0, 3, 2)


def test_a_title_of_another_year_is_another_record() -> None:
    review = review_of()
    done = import_decisions(review, "a.csv", table({"title": "Dogs in parks", "year": 2009, "included": 1}))
    assert (done.n_added, done.unmatched) == (0, ["line 2: Dogs in parks"])


def test_an_id_is_not_trusted_alone() -> None:
    review = review_of()
    rows: list[Fields] = [
        {"id": "dogs", "title": "Taxes of 50% & more", "included": 1},
        {"id": "leases", "title": "Cats", "included": 1},
    ]
    done = import_decisions(review, "a.csv", table(*rows))
    assert judged(review) == {"taxes": [(1, "")]}
    assert done.unmatched == ["line 3: Cats"]


def test_duplicates_are_all_judged_and_listed_and_contradictions_are_left_out() -> None:
    twin = RECORDS[0] | {"title": "Leases of flats: a Trial"}
    once = review_of(twin)
    first: Fields = {"doi": "10.1000/leases.1", "included": 1}
    done = import_decisions(once, "a.csv", table(first))
    assert (done.n_added, done.several, once.progress().n_judged) == (1, {}, 1)
    review = review_of(twin, duplicates=False)
    rows: list[Fields] = [
        first,
        {"title": "Dogs in parks", "included": 1},
        {"PMID": 18, "included": 0},
    ]
    done = import_decisions(review, "a.csv", table(*rows))
    assert judged(review) == {"leases": [(1, "")], "more-0": [(1, "")]}
    assert done.several == {"line 2: 10.1000/leases.1": ["leases", "more-0"]}
    assert done.conflicting == {"dogs": ["line 3: Dogs in parks", "line 4: pmid:18"]}
    assert "dogs = line 3: Dogs in parks, line 4: pmid:18" in done.text()


def test_judgements_of_others_stay() -> None:
    review = review_of()
    review.judge("leases", 0, "Ada")
    review.judge("dogs", 0, "Ada")
    rows: list[Fields] = [
        {"pmid": 17, "included": 1, "judge": "Bob"},
        {"pmid": 18, "included": 1},
        {"pmid": 19, "included": 1, "judge": "Ada"},
    ]
    done = import_decisions(review, "a.csv", table(*rows))
    assert judged(review) == {"leases": [(0, "Ada"), (1, "Bob")], "dogs": [(0, "Ada")], "taxes": [(1, "Ada")]}
    assert (done.n_added, done.n_repeated) == (2, 1)
    assert review.progress([]).contradictory == ["leases"]


@pytest.mark.parametrize(
    "data", [b"", b"title,included\na,perhaps\n", b"\x00\x01binary", b"PK\x03\x04no zip", b"title,year\na,2016\n"]
)
def test_files_without_decisions_are_refused(data: bytes) -> None:
    review = review_of()
    with pytest.raises(InputError, match=r"wrong\.csv"):
        import_decisions(review, "wrong.csv", data)
    assert not judged(review)


# Projects of ASReview.


def asreview_project(version: int, labels: dict[int, int]) -> bytes:
    """Return a project file with the tables that ASReview 2 and 3 document; record 2 is a duplicate of record 0."""

    def database(*tables: str) -> bytes:
        connection = sqlite3.connect(":memory:")
        if "record" in tables:
            connection.execute(
                "CREATE TABLE record (dataset_row INTEGER, dataset_id VARCHAR, title VARCHAR, abstract VARCHAR, "
                "authors JSON, keywords JSON, year INTEGER, doi VARCHAR, url VARCHAR, included INTEGER, "
                "record_id INTEGER PRIMARY KEY, duplicate_of INTEGER)"
            )
            for number, record in enumerate([*RECORDS, RECORDS[0]]):
                values = [
                    number,
                    "d",
                    record["title"],
                    record["abstract"],
                    "[]",
                    "[]",
                    int(record["year"]),
                    record["doi"] or None,
                ]
                connection.execute(
                    f"INSERT INTO record VALUES ({','.join('?' * 12)})",
                    [*values, None, None, number, 0 if number == 3 else None],
                )
        if "results" in tables:
            connection.execute(
                "CREATE TABLE results (record_id INTEGER UNIQUE, label INTEGER, classifier TEXT, time FLOAT, "
                "note TEXT, tags JSON, user_id INTEGER)"
            )
            for number, label in labels.items():
                connection.execute(
                    "INSERT INTO results VALUES (?, ?, 'svm', ?, ?, '[]', NULL)",
                    [number, label, 1.7e9, f"note {number}"],
                )
        connection.commit()
        return connection.serialize()

    with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
        archive.writestr("project.json", json.dumps({"version": f"{version}.0", "id": "a", "name": "a"}))
        if version == 3:
            archive.writestr("results.db", database("record", "results"))
        elif version == 2:
            archive.writestr("data_store.db", database("record"))
            archive.writestr("reviews/1f/results.db", database("results"))
        else:
            archive.writestr("reviews/1f/results.sql", database("results"))
    return out.getvalue()


@pytest.mark.parametrize("version", [2, 3])
def test_projects_of_asreview(version: int, tmp_path: Path) -> None:
    review = review_of()
    (tmp_path / "a.asreview").write_bytes(asreview_project(version, {0: 1, 1: 0}))
    done = import_decisions(review, tmp_path / "a.asreview")
    assert judged(review) == {"leases": [(1, "")], "dogs": [(0, "")]}
    assert (done.n_decided, done.n_undecided) == (3, 1)
    (first, _) = review.store.judgements(review.topic)
    assert (first.note, first.time) == ("note 0", "2023-11-14T22:13:20+00:00")


def test_projects_of_asreview_1_are_refused() -> None:
    with pytest.raises(InputError, match="ASReview 2 or 3"):
        import_decisions(review_of(), "a.asreview", asreview_project(1, {0: 1}))


# Round trips.

WORDS = st.text(st.sampled_from("abä '\"=>;,{}|\\-\n\r\tTY"), max_size=20)
TEXTS = st.one_of(
    WORDS, st.sampled_from(["TY  - x\nER  - ", "a\n\nb", "=1+1", " ER  -", "ASReview_relevant", "10.1/a;b"])
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    TEXTS, st.integers(-5, 3000), st.booleans(), st.dates(), st.lists(TEXTS, max_size=3), st.just(1.5)
)
NAMES = st.sampled_from([
    "authors", "year", "doi", "keywords", "notes", "note", "urls", "secondary_title", "journal_name",
    "Publication Year",
    "court", "U3", "XX", "type_of_reference", "Authors", "label", "date", "pages", "publication_year",
    "label_included",
])  # fmt: skip
LINES = TEXTS.map(lambda text: text.replace("\r", "\n"))  # as all text files have them
RECORD = st.fixed_dictionaries({"title": LINES, "text": LINES, "metadata": st.dictionaries(NAMES, VALUES, max_size=5)})


def contents(collection: Any) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return text, title and fields of each document by id; numbers are compared as texts, as types are of columns."""
    rows = collection.metadata.to_pylist()
    fields = [
        {
            name: value if isinstance(value, list) else str(value)
            for name, value in row.items()
            if value not in (None, []) and name != "file"
        }
        for row in rows
    ]
    about = zip(collection.document_texts(), collection.doc_titles.to_pylist(), fields, strict=True)
    return dict(zip(collection.doc_ids.to_pylist(), about, strict=True))


@given(st.lists(RECORD, min_size=1, max_size=4), st.data())
def test_exported_ris_gives_the_same_records_decisions_and_notes(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Law: what came from a file, exported as RIS and read by a new engine, is the same, and so are all judgements."""
    folder = tmp_path_factory.mktemp("round")
    rows = [{"id": "r", "abstract": "Dogs bark."}]
    rows += [
        {"id": f"r{n}", "title": record["title"], "abstract": record["text"], **record["metadata"]}
        for n, record in enumerate(records)
    ]
    (folder / "in.jsonl").write_text("\n".join(json.dumps(row, default=str) for row in rows))
    first = Engine(read_files(folder / "in.jsonl"), language="english", encoder="tfidf(min_df=1)")
    review = Review(first, "dogs", learner=CountingLearner)
    for doc_id in first.collection.doc_ids.to_pylist():
        for judge in data.draw(st.lists(st.sampled_from(["Ada", "", "Bob; C: 1"]), unique=True, max_size=2)):
            review.judge(doc_id, data.draw(st.integers(0, 2)), judge, data.draw(st.none() | TEXTS))
    (folder / "out").mkdir()
    exported = folder / "out" / "in.ris"  # a record without a title is called by its file
    review.export("ris", exported, documents="all")
    second = Engine(read_files(exported), language="english", encoder="tfidf(min_df=1)")
    assert contents(second.whole) == contents(first.whole)
    other = Review(second, "dogs", learner=CountingLearner)
    if len(review.judgements()):
        done = import_decisions(other, exported)
        assert (done.unmatched, done.several, done.conflicting) == ([], {}, {})
    columns = ["doc_id", "grade", "judge", "note", "time"]
    assert rows_of(other, columns) == rows_of(review, columns)
    if len(review.judgements()):
        review.export("csv", folder / "out.csv")
        third = Review(first, "dogs", learner=CountingLearner)
        import_decisions(third, folder / "out.csv")
        assert rows_of(third, columns) == rows_of(review, columns)


def rows_of(review: Review, columns: list[str]) -> list[list[Any]]:
    frame = review.judgements()[columns]
    return sorted(frame.astype(object).where(frame.notna() & (frame != ""), None).to_numpy().tolist(), key=repr)
