"""SQL conditions on metadata: against a slow oracle, types, hostile conditions, threads, and views of engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import Engine
from haybale.collections.metadata import metadata_table
from haybale.errors import InputError, UnknownNameError

pytest.importorskip("duckdb")
from haybale.engine.document_filter import DocumentFilter

ROWS: list[dict[str, Any]] = [
    {"court": "BGH", "date": date(2016, 1, 1), "topics": ["tax", "labour"], "year": 2016, "final": True},
    {"court": "BGH", "date": date(2014, 12, 31), "topics": ["tax"], "year": 2014, "final": False},
    {"court": "BAG", "date": date(2015, 1, 1), "topics": ["labour"], "year": 2015, "final": True},
    {"court": None, "date": None, "topics": None, "year": None, "final": None},
    {"court": "BGH", "date": date(2015, 1, 1), "topics": [], "year": 2015, "final": None},
]
NAMES = [f"d{number}" for number in range(len(ROWS))]
Row = dict[str, Any]


def engine_of(rows: list[Row], **how: Any) -> Engine:
    documents = {f"d{number}": {"text": f"word{number} tax law.", **row} for number, row in enumerate(rows)}
    return Engine(documents, encoder="tfidf(min_df=1)", language="english", **how)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(ROWS)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("court = 'BGH' and date >= '2015-01-01' and 'tax' in topics", [0]),
        ("court = 'BGH'", [0, 1, 4]),
        ("COURT = 'BGH' AND Year > 2014.5", [0, 4]),
        ("date between '2015-01-01' and '2015-12-31'", [2, 4]),
        ("year(date) = 2015 or court is null", [2, 3, 4]),
        ("'tax' not in topics", [2, 4]),
        ("topics && ['labour', 'other']", [0, 2]),
        ("len(topics) = 0", [4]),
        ("final", [0, 2]),
        ("not final", [1]),
        ("court ilike 'b_g' or court in ('BAG', 'x')", [2]),
        ("id = 'd3' -- a comment", [3]),
        ("passages = 1 and title = ''", [0, 1, 2, 3, 4]),
        ("court = 'nowhere'", []),
        ("court = '; drop table documents'", []),
        ("date >= date '2016-01-01' - interval 1 year and year % 2 = 0", [0]),
    ],
)
def test_documents_that_fulfil_a_condition(engine: Engine, where: str, expected: list[int]) -> None:
    assert engine.documents_where(where).tolist() == expected


CELLS: dict[str, st.SearchStrategy[Any]] = {
    "court": st.none() | st.sampled_from(["BGH", "BAG", "a'b", "ÄÖ"]),
    "year": st.none() | st.integers(-3, 3),
    "date": st.none() | st.dates(date(2014, 1, 1), date(2016, 1, 1)),
    "topics": st.none() | st.lists(st.sampled_from(["tax", "labour"]), max_size=2),
}
Test = tuple[str, Callable[[Row], bool | None]]  # a condition, and what Python says of a row; None for unknown


def compared(name: str, sign: str, value: Any) -> Test:
    signs: dict[str, Callable[[Any], bool]] = {
        "=": lambda cell: cell == value,
        "<>": lambda cell: cell != value,
        "<": lambda cell: cell < value,
        ">=": lambda cell: cell >= value,
    }
    literal = str(value) if isinstance(value, int) else "'{}'".format(str(value).replace("'", "''"))
    return f"{name} {sign} {literal}", lambda row: None if row[name] is None else signs[sign](row[name])


def member(topic: str) -> Test:
    return f"'{topic}' in topics", lambda row: None if row["topics"] is None else topic in row["topics"]


def both(tests: tuple[Test, Test]) -> Test:
    (left, of_left), (right, of_right) = tests

    def found(row: Row) -> bool | None:
        values = {of_left(row), of_right(row)}
        return False if False in values else None if None in values else True

    return f"({left} and {right})", found


def negated(test: Test) -> Test:
    text, of = test

    def found(row: Row) -> bool | None:
        value = of(row)
        return None if value is None else not value

    return f"not ({text})", found


SIGNS = st.sampled_from(["=", "<>", "<", ">="])
TESTS = st.recursive(
    st.builds(compared, st.just("court"), SIGNS, st.sampled_from(["BGH", "a'b", "ÄÖ"]))
    | st.builds(compared, st.just("year"), SIGNS, st.integers(-3, 3))
    | st.builds(compared, st.just("date"), SIGNS, st.dates(date(2014, 1, 1), date(2016, 1, 1)))
    | st.builds(member, st.sampled_from(["tax", "labour"])),
    lambda inner: st.tuples(inner, inner).map(both) | inner.map(negated),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=12), TESTS)
def test_conditions_agree_with_python_in_three_valued_logic(rows: list[Row], test: Test) -> None:
    full = {"court": "BGH", "year": 1, "date": date(2015, 1, 1), "topics": ["tax"]}  # every column has its type
    table = metadata_table([*rows, full])
    where, of = test
    expected = [number for number, row in enumerate([*rows, full]) if of(row)]
    assert DocumentFilter(table).numbers(where).tolist() == expected


@pytest.mark.parametrize("where", ["cort = 'BGH'", '"Court of law" = 1', "documents.court = 'BGH'", "date.year = 1"])
def test_an_unknown_column_names_the_columns(engine: Engine, where: str) -> None:
    with pytest.raises(UnknownNameError, match="court, date, topics, year, final"):
        engine.documents_where(where)


@pytest.mark.parametrize(
    "where",
    ["date >= 'soon'", "date >= '2015'", "year = 'many'", "court = 5", "final = 'perhaps'", "court", "topics = 1"],
)
def test_a_wrong_type_names_the_columns_and_their_types(engine: Engine, where: str) -> None:
    with pytest.raises(
        InputError, match=r"court \(string\), date \(date\), topics \(list of strings\), year \(integer\)"
    ):
        engine.documents_where(where)


HOSTILE = [
    "",
    " ",
    "true;",
    "true; drop table documents",
    "true; drop table documents; --",
    "drop table documents",
    "true) or (true",
    "1=1) union all select 1 from documents where (1=1",
    "true union select 1",
    "true order by 1",
    "true limit 1",
    "true group by year",
    "true having true",
    "year = 1 qualify true",
    "true using sample 1",
    "year in (select 1)",
    "exists (select 1)",
    "exists (from documents)",
    "year = (select max(year) from documents)",
    "'tax' = any(topics)",
    "court in (select content from read_text('/etc/hostname'))",
    "court in (from '/etc/hostname')",
    "court in (from engine)",
    "read_text('/etc/hostname') = ''",
    "read_blob('/etc/hostname') is null",
    "glob('/etc/*') = ''",
    "getenv('HOME') = ''",
    "current_setting('threads') = 1",
    "getvariable('a') = 1",
    "nextval('s') = 1",
    "query('select 1') = 1",
    "json_serialize_sql('select 1') is null",
    "repeat(court, 1000000000) = ''",
    "list_transform([1], lambda x: x) = [1]",
    "[x for x in [1]] = [1]",
    "range(1000000000) = [1]",
    "columns(*) = 1",
    "*",
    "#1 = 1",
    "year = ?",
    "year = $1",
    "year = $name",
    "count(*) > 0",
    "row_number() over () = 1",
    "random() < 0.5",
    "rowid = 0",
    "current_user = 'x'",
    "court = 'a' /*",
    "court = 'a",
    "court = 'a\0'",
    "court = '\ud800'",
    "(" * 3000 + "true" + ")" * 3000,
    "not " * 3000 + "true",
    "+".join(["1"] * 3000) + " = 1",
]


@pytest.mark.parametrize("where", HOSTILE)
def test_nothing_but_one_condition_is_accepted(engine: Engine, where: str) -> None:
    if where == "court = 'a\0'":  # a string as any other, or refused
        assert not _found(engine, where)
        return
    with pytest.raises(InputError):
        engine.documents_where(where)
    assert engine.documents_where("court = 'BGH'").tolist() == [0, 1, 4]


def _found(engine: Engine, where: str) -> list[int]:
    try:
        return list(engine.documents_where(where).tolist())
    except InputError:
        return []


@pytest.mark.parametrize(
    "statement",
    [
        "copy documents to '{}'",
        "export database '{}'",
        "attach '{}' as other",
        "select * from read_text('{}')",
        "select * from '{}'",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "reset enable_external_access",
    ],
)
def test_the_database_behind_it_neither_reads_nor_writes_files(engine: Engine, statement: str, tmp_path: Path) -> None:
    """What a condition cannot say, DuckDB refuses too."""
    duckdb = pytest.importorskip("duckdb")
    secret, new = tmp_path / "secret.csv", tmp_path / "new.csv"
    secret.write_text("a\n1\n", encoding="utf-8")
    engine.documents_where("true")
    tables = engine._documents.filter._tables.cursor()
    with pytest.raises(duckdb.Error):
        tables.execute(statement.format(secret if "select" in statement else new)).fetchall()
    assert not new.exists()


def test_threads_may_ask_at_once(engine: Engine) -> None:
    fresh = engine_of(ROWS)
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.extend(fresh.documents_where("final").tolist() for _ in range(20)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[0, 2]] * 120


def test_conditions_follow_additions_and_removals() -> None:
    engine = engine_of(ROWS)
    assert engine.documents_where("year = 2016").tolist() == [0]
    engine.add({"new": {"text": "word tax.", "year": 2016, "judge": "Coke"}})
    assert engine.documents_where("year = 2016").tolist() == [0, 5]
    engine.remove(["d1"])
    assert engine.documents_where("year = 2016 or judge = 'Coke'").tolist() == [0, 4]


def test_a_view_has_the_documents_that_are_given_and_fulfil_the_condition(engine: Engine) -> None:
    def ids(view: Engine) -> list[str]:
        return list(view.collection.doc_ids.to_pylist())

    assert ids(engine.within(where="court = 'BGH'")) == ["d0", "d1", "d4"]
    assert ids(engine.within(["d4", "d2"], where="court = 'BGH'")) == ["d4"]
    assert ids(engine.within(np.arange(5) < 2, where="court = 'BGH'")) == ["d0", "d1"]
    assert ids(engine.within(where="court = 'BGH'").within(where="year = 2014")) == ["d1"]
    for documents, where in ((None, "year = 7"), (["d2"], "court = 'BGH'")):
        with pytest.raises(InputError, match="none of the 0 chosen documents"):
            engine.within(documents, where=where)


def test_names_that_are_no_words_stand_in_double_quotes() -> None:
    table = pa.table(
        {"date of decision": ["x", "y"], "order": [1, 2], "rowid": [7, 8], "number of the document": [3, 3]}
    )
    assert DocumentFilter(table).numbers('"date of decision" = \'y\' and "order" = 2 and rowid = 8').tolist() == [1]


def test_a_condition_that_takes_too_long_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.engine.document_filter.SECONDS", 0.01)
    documents = DocumentFilter(pa.table({"id": ["x" * 2000 + str(number) for number in range(20_000)]}))
    with pytest.raises(InputError, match=r"0\.01 seconds"):
        documents.numbers("regexp_matches(id, '(.*1){5}.*(.*2){5}.*3y')")
    monkeypatch.undo()
    assert documents.numbers("id = 'x'").tolist() == []  # the next one is not
