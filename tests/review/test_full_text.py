"""What was included by title and abstract is judged again by its full text; the ranking does not learn from that."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from haybale import Engine
from haybale.errors import InputError
from haybale.review import NOT_RETRIEVED, JudgementStore, Review, import_decisions, judged_topics

TEXTS = {f"d{number}": f"Document {number} is about dogs, cats and number{number}." for number in range(12)}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")


@pytest.fixture
def review(engine: Engine, tmp_path: Path) -> Review:
    opened = Review(engine, "dogs", topic="dogs", judgements=tmp_path / "store.sqlite")
    opened.change_protocol(n_stages=2)
    for doc_id, grade in (("d1", 1), ("d2", 0), ("d3", 1), ("d4", 2), ("d5", 1)):
        opened.judge(doc_id, grade, "Ada")
    return opened


def test_included_documents_come_in_order_and_skipped_ones_last(review: Review) -> None:
    stage = review.full_text
    assert [document.doc_id for document in stage.next(9)] == ["d1", "d3", "d4", "d5"]
    [first] = stage.next()
    assert first.snippets[0].text == TEXTS["d1"]
    assert first.to_dict()["rank"] is None
    stage.skip("d1", "Ada")
    stage.judge("d3", 0, "Ada", reasons=["no dogs"])
    assert [document.doc_id for document in stage.next(9)] == ["d4", "d5", "d1"]
    assert [document.doc_id for document in stage.next(9, judge="Bob")] == ["d3", "d4", "d5", "d1"]
    review.judge("d4", 0, "Ada")  # no longer included
    assert [document.doc_id for document in stage.next(9)] == ["d5", "d1"]


def test_decisions_are_counted_exported_and_not_learned(review: Review, engine: Engine) -> None:
    before, screening = review.scores()[1], review.screening()
    stage = review.full_text
    stage.judge("d1", 0, "Ada", note="cats only", seconds=60, reasons=["no dogs", "cats"])
    stage.judge("d3", 1, "Bob")
    stage.not_retrieved("d4", "Ada")
    assert stage.progress().to_dict() == {
        "n_sought": 4, "n_not_retrieved": 1, "n_assessed": 2, "n_included": 1, "n_skipped": 0, "n_left": 1,
    }  # fmt: skip
    assert np.array_equal(review.scores()[1], before)
    assert np.array_equal(review.screening().labels, screening.labels)
    assert review.progress([]).n_relevant == 4
    assert judged_topics(review.store, engine)[1]["relevance"].tolist() == [1, 0, 1, 2, 1]
    frame = stage.judgements()
    assert frame[["doc_id", "grade", "judge"]].to_numpy().tolist() == [
        ["d1", 0, "Ada"],
        ["d3", 1, "Bob"],
        ["d4", 0, "Ada"],
    ]
    assert frame["reasons"].tolist() == [["no dogs", "cats"], [], [NOT_RETRIEVED]]
    assert len(review.judgements()) == 5
    assert dict(line.split()[2:] for line in review.export().splitlines()) == {
        "d1": "0", "d2": "0", "d3": "1", "d4": "0", "d5": "1",
    }  # fmt: skip
    rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(review.export("csv")))}
    assert [rows[doc_id]["stage"] for doc_id in ("d1", "d2", "d5")] == ["full text", *["title and abstract"] * 2]
    assert rows["d1"]["reasons"] == "no dogs; cats"


@pytest.mark.parametrize("format", ["csv", "ris"])
def test_decisions_about_full_texts_are_imported_again(
    review: Review, engine: Engine, tmp_path: Path, format: str
) -> None:
    review.full_text.judge("d1", 0, "Ada", reasons=["no dogs"])
    review.full_text.judge("d3", 1, "Bob")
    file = tmp_path / f"decisions.{format}"
    review.export(format, file)
    again = Review(engine, "dogs", topic="again")
    again.change_protocol(n_stages=2)
    import_decisions(again, file)
    assert sorted(line.split()[2:] for line in again.export().splitlines()) == sorted(
        line.split()[2:] for line in review.export().splitlines()
    )
    assert again.prisma().full_texts_excluded == {"no dogs": 1}
    n_rows = len(again.judgements())
    assert import_decisions(again, file).n_added == 0
    assert len(again.judgements()) == n_rows


def test_each_stage_takes_back_its_own(review: Review) -> None:
    stage = review.full_text
    stage.judge("d1", 0, "Ada")
    stage.judge("d3", 1, "Bob")
    assert stage.undo("Ada") == "d1"
    assert stage.judgements()["doc_id"].tolist() == ["d3"]
    assert review.undo("Ada") == "d5"
    assert stage.undo() == "d3"
    with pytest.raises(InputError, match="undo"):
        stage.undo()
    assert review.judgements()["doc_id"].tolist() == ["d1", "d2", "d3", "d4"]


def test_only_included_documents_of_two_stages_are_judged(review: Review, engine: Engine) -> None:
    stage = review.full_text
    for doc_id in ("d2", "d7", "nowhere"):
        with pytest.raises(InputError):
            stage.judge(doc_id, 1)
        with pytest.raises(InputError):
            stage.document(doc_id)
    stage.judge("d1", 1)
    with pytest.raises(InputError, match="n_stages"):
        review.change_protocol(n_stages=1)
    single = Review(engine, "cats")
    single.judge("d1", 1)
    with pytest.raises(InputError, match="n_stages"):
        single.full_text.judge("d1", 1)


def test_another_process_goes_on_with_both_stages(review: Review, engine: Engine) -> None:
    review.full_text.judge("d1", 1, "Ada")
    assert review.store.path is not None
    with JudgementStore(review.store.path) as store:
        other = Review(engine, topic="dogs", judgements=store)
        assert other.full_text.progress() == review.full_text.progress()
        other.full_text.judge("d3", 0, "Bob")
        assert review.full_text.grades("d3") == {"Bob": 0}
    assert review.full_text.progress().n_assessed == 2


def test_what_waits_for_a_second_judge_is_not_sought(engine: Engine) -> None:
    review = Review(engine, "dogs")
    review.change_protocol(n_stages=2)
    review.judges.screen_double()
    for doc_id in ("d1", "d2"):
        review.judge(doc_id, 1, "Ada")
    assert review.full_text.next(9) == []
    assert review.prisma().n_screened == 0
    review.judge("d1", 1, "Bob")
    review.judge("d2", 0, "Bob", reasons=["no dogs"])
    review.judges.resolve("d2", 0, "Eve")
    assert [document.doc_id for document in review.full_text.next(9)] == ["d1"]
    numbers = review.prisma()
    assert (numbers.n_screened, numbers.n_sought, numbers.excluded) == (2, 1, {"no dogs": 1})
    review.full_text.judge("d1", 0, "Ada")
    assert dict(line.split()[2:] for line in review.export().splitlines()) == {"d1": "0", "d2": "0"}
