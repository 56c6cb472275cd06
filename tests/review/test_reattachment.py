"""Judgements stay at the texts that were judged, whatever happens to the documents and their ids."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.record_worlds import WRITE, run_world

from haybale import Engine, InputError, Review
from haybale.collections.readers.files import read_files
from haybale.engine.update import record_files, signatures, update
from haybale.review import Judgement, JudgementStore
from haybale.review.reattachment import digests_of

Call = Callable[..., tuple[int, str, str]]
HOW: dict[str, Any] = {"language": "english", "encoder": "tfidf(min_df=1)"}
TEXTS = {"r1": "Dogs bark.", "r2": "Cats purr.", "r3": "Cows moo.", "r4": "Owls hoot."}


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("suffix", WRITE)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.thorough) for n in range(3, 9))])
def test_judgements_stay_at_their_texts(suffix: str, has_ids: bool, seed: int, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    run_world(tmp_path / "world", random.Random(f"{suffix} {has_ids} {seed}"), suffix, has_ids=has_ids)


def texts_of(engine: Engine) -> dict[str, str]:
    return dict(zip(engine.collection.doc_ids.to_pylist(), engine.collection.document_texts(), strict=True))


def judged(engine: Engine, store: JudgementStore, **grades: int) -> Review:
    review = Review(engine, "pets", judgements=store)
    for doc_id, grade in grades.items():
        review.next(9)
        review.judge(doc_id, grade, note=f"about {doc_id}")
    return review


def test_a_judgement_follows_its_text_and_says_so() -> None:
    engine, store = Engine(TEXTS, **HOW), JudgementStore()
    review = judged(engine, store, r1=1, r2=0, r3=1)
    engine.replace({"r1": "Hens cluck.", "r9": "Dogs bark.", "r2": "Cats purr loudly."}, remove=["r3"])
    progress = review.progress([])
    assert progress.moved == {"r1": "r9"}
    assert (progress.removed, progress.replaced, progress.undecided) == (["r3"], ["r2"], [])
    assert progress.to_dict()["moved"] == {"r1": "r9"}
    assert review.judgements().set_index("doc_id")["grade"].to_dict() == {"r9": 1, "r2": 0, "r3": 1}
    assert "r1" in {document.doc_id for document in review.next(9)}
    engine.replace({"r3": "Cows moo."})
    assert review.progress([]).removed == []
    again = Review(engine, "pets", judgements=store)
    assert again.progress([]).to_dict() == review.progress([]).to_dict()
    review.undo()  # of r3
    review.undo()
    review.undo()
    assert review.judgements().empty


def test_a_judgement_whose_text_is_gone_leaves_its_id_to_another_text() -> None:
    engine, store = Engine(TEXTS, **HOW), JudgementStore()
    review = judged(engine, store, r1=1, r2=0)
    engine.replace({"r1": "Cats purr."}, remove=["r2"])  # the row of the dogs was deleted, and all others moved up
    progress, rows = review.progress([]), review.judgements().set_index("doc_id")
    (orphan,) = progress.removed
    assert orphan not in TEXTS
    assert progress.replaced == []
    assert rows["grade"].to_dict() == {"r1": 0, orphan: 1}
    assert rows["note"].to_dict() == {"r1": "about r2", orphan: "about r1"}
    engine.replace({"new": "Dogs bark."})
    assert review.judgements().set_index("doc_id")["grade"].to_dict() == {"r1": 0, "new": 1}


def test_identical_texts_keep_one_judgement_each() -> None:
    engine, store = Engine(TEXTS | {"r5": "Dogs bark."}, **HOW), JudgementStore()
    review = judged(engine, store, r1=1, r5=0)
    engine.replace({"a": "Dogs bark.", "b": "Dogs bark."}, remove=["r1", "r5"])
    assert review.judgements().set_index("doc_id")["grade"].to_dict() == {"a": 1, "b": 0}
    engine.remove(["b"])
    assert review.progress([]).removed == []


@pytest.mark.parametrize("format", ["csv", "ris", "qrels", "beir"])
def test_an_export_has_what_was_judged(format: str) -> None:
    engine, store = Engine({"r1": "Dogs bark.", "r2": "Cats purr.", "r3": "Hens cluck."}, **HOW), JudgementStore()
    review = judged(engine, store, r1=1, r2=1)
    engine.replace({"r1": {"text": "Cows moo.", "title": "Cows"}}, remove=["r2"])
    text = review.export(format)
    assert not any(word in text for word in ("Cows", "moo"))
    if format == "csv":
        rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(text))}
        assert {doc_id: row["status"] for doc_id, row in rows.items()} == {"r1": "replaced", "r2": "orphaned"}
        assert [row["passage"] for row in rows.values()] == ["Dogs bark.", "Cats purr."]
    elif format == "ris":
        assert all(part in text for part in ("AB  - Dogs bark.", "AB  - Cats purr.", "haybale_orphaned"))
    else:
        assert all(doc_id in text for doc_id in ("r1", "r2"))


def test_what_was_shown_is_judged_even_if_documents_change_meanwhile() -> None:
    engine, store = Engine(TEXTS, **HOW), JudgementStore()
    review = Review(engine, "Dogs bark.", judgements=store)
    assert review.next()[0].doc_id == "r1"
    engine.replace({"r1": "Hens cluck.", "r9": "Dogs bark."})
    review.judge("r1", 1)
    assert review.judgements()["doc_id"].tolist() == ["r9"]
    (shown,) = review.next()
    engine.replace({shown.doc_id: "Quite another text."})
    with pytest.raises(InputError, match="another text"):
        review.judge(shown.doc_id, 1)
    review.judge(shown.doc_id, 0)  # it was read again
    assert review.progress([]).replaced == []


def test_a_view_of_some_documents_moves_nothing() -> None:
    engine, store = Engine(TEXTS | {"r5": "Dogs bark."}, **HOW), JudgementStore()
    judged(engine, store, r1=1)
    view = Review(engine.within(["r2", "r5"]), "pets", judgements=store)
    assert view.progress([]).removed == ["r1"]
    assert store.last_move() == 0


def test_another_process_sees_the_moves(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    one, other = Engine.build(TEXTS, tmp_path / "engine", **HOW), Engine.open(tmp_path / "engine")
    first, second = Review(one, "pets", judgements=path), Review(other, "pets", judgements=path)
    first.judge("r1", 1)
    assert second.judgements()["doc_id"].tolist() == ["r1"]
    one.replace({"r9": "Dogs bark."}, remove=["r1"])
    assert first.judgements()["doc_id"].tolist() == ["r9"]
    assert second.judgements()["doc_id"].tolist() == ["r1"]  # its engine has the documents of before
    second.judge("r2", 0)
    other.refresh()
    one.replace({"r8": "Cats purr."}, remove=["r2"])
    assert first.judgements()["doc_id"].tolist() == ["r9", "r8"]
    other.refresh()
    assert second.judgements()["doc_id"].tolist() == ["r9", "r8"]
    second.undo()
    assert first.judgements()["doc_id"].tolist() == ["r9"]
    for review in (first, second):
        review.close()


def test_texts_that_nobody_judged_are_not_compared_if_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haybale.engine import reattaching

    path, engine = tmp_path / "j.sqlite", Engine.build(TEXTS, tmp_path / "engine", **HOW)
    with Review(engine, "pets", judgements=path) as review:
        review.judge("r1", 1)
    with Review(engine, "pets", judgements=path):
        pass
    compared, whole = list[str](), reattaching.digest_of_text
    monkeypatch.setattr(reattaching, "digest_of_text", lambda text: (compared.append(text), whole(text))[1])
    with Review(Engine.open(tmp_path / "engine"), "pets", judgements=path) as review:
        assert review.judgements()["doc_id"].tolist() == ["r1"]
    assert compared == [TEXTS["r1"]]
    with Review(Engine.open(tmp_path / "engine"), "cows", judgements=path):
        pass
    assert len(compared) == 1


def test_nothing_is_learned_from_a_judgement_about_another_text() -> None:
    engine, store = Engine(TEXTS, **HOW), JudgementStore()
    review = judged(engine, store, r1=1, r2=1)
    engine.replace({"r1": "Hens cluck."})
    for each in (review, Review(engine, "pets", judgements=store)):
        assert each.progress([]).replaced == ["r1"]
        assert each._sync().taught == {"r2": 1}
    review.judge("r1", 1)
    assert review.progress([]).replaced == []
    assert review._sync().taught == {"r1": 1, "r2": 1}


def test_a_row_that_takes_another_back_has_its_digest() -> None:
    with JudgementStore() as store:
        topic = store.add_topic("pets")
        rows = [
            Judgement("b", "skipped"),
            Judgement("a", "judged", grade=1, document="A"),
            Judgement("a", "judged", grade=0, document="B"),
            Judgement("a", "undone", undoes=2),
        ]
        store.add(topic, *rows)
        assert list(digests_of(store.judgements(topic)).values()) == [None, "A", "B", "A"]


def test_judgements_without_a_digest_stay_and_are_undecided() -> None:
    engine, store = Engine(TEXTS, **HOW), JudgementStore()
    topic = store.add_topic("pets", "pets")
    store.add(topic, Judgement("r1", "known", grade=1), Judgement("gone", "known", grade=1))
    progress = Review(engine, "pets", judgements=store).progress([])
    assert (progress.undecided, progress.removed) == (["r1"], ["gone"])


def test_judgements_of_an_engine_follow_their_texts(tmp_path: Path) -> None:
    engine = Engine.build(TEXTS, tmp_path / "engine", **HOW)
    qrels = pd.DataFrame({"query_id": "q", "doc_id": ["r1", "r2", "r3"], "relevance": [1, 2, 3]})
    engine.judge(qrels, {"q": "pets"})
    engine.replace({"r1": "Cats purr.", "r9": "Cows moo."}, remove=["r2", "r3"])
    for each in (engine, Engine.open(tmp_path / "engine")):
        frame = each.collection.qrels_frame("train")
        assert dict(zip(frame["doc_id"], frame["relevance"], strict=True)) == {"r1": 2, "r9": 3}
        assert len(each.unattached_judgements().orphaned) == 1
    engine.replace({"r8": "Dogs bark."})
    frame = engine.collection.qrels_frame("train")
    assert dict(zip(frame["doc_id"], frame["relevance"], strict=True)) == {"r1": 2, "r9": 3, "r8": 1}
    assert engine.unattached_judgements() == ([], [], [])


def test_a_record_on_top_moves_no_judgement(tmp_path: Path) -> None:
    (source := tmp_path / "files").mkdir()
    rows = [f"Title {n},The text of record {n}.\n" for n in range(60)]
    (source / "r.csv").write_text("".join(["title,abstract\n", *rows]))
    read = read_files(source)
    engine = Engine.build(read, tmp_path / "engine", **HOW)
    record_files(engine, signatures(source), source)
    before = texts_of(engine)
    with Review(engine, "records", judgements=tmp_path / "j.sqlite") as review:
        for number, doc_id in enumerate(before):
            review.judge(doc_id, number % 2)
        (source / "r.csv").write_text("".join(["title,abstract\n", "New,A new record on top.\n", *rows]))
        assert update(engine, source)[:3] == (1, 60, 0)
        after = texts_of(engine)
        assert [before[doc_id] for doc_id in before] == [after[doc_id] for doc_id in review.judgements()["doc_id"]]
        assert review.progress([]).moved == {}
