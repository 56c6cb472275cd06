"""A topic as BibTeX and in PubMed's format: other programs read the records, and an import has the decisions again."""

from __future__ import annotations

from pathlib import Path

import pytest

from haybale import Engine, Review, open_collection
from haybale.collections.files.references import format_of, records_of
from haybale.collections.files.table_rows import Row
from haybale.review import import_decisions

pytest.importorskip("bibtexparser")

RECORDS = """TY  - JOUR
TI  - Statins & stroke: 50 % of {all} a_b cases, 5 ~ 6
AB  - The first paragraph costs $5.
AU  - Doe, Jane
AU  - Müller, Ärger
PY  - 2014
T2  - Journal of Trials
VL  - 12
IS  - 3
SP  - 100
EP  - 110
DO  - 10.1000/a_b
UR  - https://example.org/a_b?x={1}&y=%20
KW  - stroke
KW  - statin
ER  -

TY  - CPAPER
TI  - A dog
AB  - PMID- 7 is no tag here.
AU  - Roe, R.
PY  - 2020
T2  - Proceedings of Dogs
ER  -

TY  - BOOK
TI  - Not read
PY  - 1999
ER  -
"""


@pytest.fixture
def review(tmp_path: Path) -> Review:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "records.ris").write_text(RECORDS, encoding="utf-8")
    engine = Engine(open_collection(tmp_path / "records"), language="english", encoder="tfidf(min_df=1)")
    review = Review(engine, "statins")
    ids = dict(zip(engine.collection.doc_titles.to_pylist(), engine.collection.doc_ids.to_pylist(), strict=True))
    (first,) = (doc_id for title, doc_id in ids.items() if title.startswith("Statins"))
    review.judge(first, 1, "Ada", note='{a} "quote" \\ 5 % & _ä_\nline')
    review.judge(ids["A dog"], 0, "Bob", reasons=["no statin"])
    return review


@pytest.mark.parametrize("format", ["bibtex", "nbib"])
def test_records_are_read_again(review: Review, format: str) -> None:
    text = review.export(format, documents="all")
    assert format_of(text) == format
    rows = [row for row in records_of(text.encode(), format) if isinstance(row, Row)]
    assert len(rows) == 3
    first = next(row.values for row in rows if str(row.values["title"]).startswith("Statins"))
    assert first["title"] == "Statins & stroke: 50 % of {all} a_b cases, 5 ~ 6"
    assert first["abstract"] == "The first paragraph costs $5."
    assert first["authors"] == ["Doe, Jane", "Müller, Ärger"]
    assert (str(first["year"]), first["doi"]) == ("2014", "10.1000/a_b")
    assert first["journal"] == "Journal of Trials"
    assert (first["volume"], first["number"], first["pages"]) == ("12", "3", "100-110")
    assert first["keywords"] == ["stroke", "statin"]
    other = next(row.values for row in rows if row.values["title"] == "A dog")
    assert other["abstract"] == "PMID- 7 is no tag here."


@pytest.mark.parametrize(("format", "suffix"), [("bibtex", "bib"), ("nbib", "nbib")])
def test_a_topic_that_imports_the_file_has_the_same_decisions(
    review: Review, tmp_path: Path, format: str, suffix: str
) -> None:
    path = tmp_path / f"exported.{suffix}"
    review.export(format, path)
    again = Review(review.engine, "statins again")
    imported = import_decisions(again, path)
    assert imported.n_added == 2
    columns = ["doc_id", "grade", "judge", "note", "reasons"]
    before, after = (one.judgements()[columns].sort_values("doc_id") for one in (review, again))
    assert after.to_dict("records") == before.to_dict("records")
