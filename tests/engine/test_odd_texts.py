"""Texts that look the same are found alike, and documents in scripts without spaces are found among others."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from haybale import BM25, KNN, PARM, Engine, Ranker, TfidfEncoder

USUAL = "Der Käufer übt im final office den Rücktritt aus, Nummer 12, mit كتاب und Zinsen"
ODD = {
    "decomposed": unicodedata.normalize("NFD", USUAL),
    "ligatures": USUAL.replace("fi", "\ufb01").replace("ffi", "\ufb03"),
    "soft hyphens": USUAL.replace("tritt", "\u00adtritt").replace("Käu", "Käu\u00ad"),
    "zero width": USUAL.replace("Zin", "Zin\u200b").replace("office", "off\u2060ice"),
    "full width": USUAL.replace("Nummer 12", "Ｎｕｍｍｅｒ １２"),
    "Arabic vowel signs": USUAL.replace("كتاب", "كِتَابٌ"),
}
OTHERS = {"cats": "Katzen brauchen keine Leine, aber Wasser.", "tax": "Steuern sind im Mai fällig, mit Zinsen."}
RANKERS = (BM25(), BM25("document"), KNN(), KNN("document"), PARM("vrrf"))


def scores(documents: dict[str, str], query: str, ranker: Ranker) -> list[tuple[str, float]]:
    engine = Engine(documents, encoder=TfidfEncoder(min_df=1), language="german")
    return ranker.fit(engine).rank({"q": query})["q"]


@pytest.mark.parametrize("ranker", RANKERS, ids=str)
@pytest.mark.parametrize("kind", ODD)
def test_a_text_is_found_in_whatever_form_it_is_written(kind: str, ranker: Ranker) -> None:
    assert ODD[kind] != USUAL
    expected = scores({"law": USUAL, **OTHERS}, USUAL, ranker)
    assert scores({"law": ODD[kind], **OTHERS}, USUAL, ranker) == expected
    assert scores({"law": USUAL, **OTHERS}, ODD[kind], ranker) == expected


def test_stored_texts_and_ids_stay_as_they_are(tmp_path: Path) -> None:
    name = "de\u0301cision"
    engine = Engine.build({name: ODD["ligatures"], **OTHERS}, tmp_path / "engine", language="german")
    reopened = Engine.open(tmp_path / "engine")
    for each in (engine, reopened):
        assert each.collection.doc_ids.to_pylist()[0] == name
        assert each.collection.passages.texts.to_pylist()[0] == ODD["ligatures"]


@pytest.mark.parametrize("ranker", RANKERS, ids=str)
def test_documents_in_scripts_without_spaces_are_found_among_english_ones(ranker: Ranker) -> None:
    documents = {
        "lead": "Dogs must be kept on a lead in the park.",
        "chinese": "承租人应当按照约定的期限支付租金，租约终止后应当返还房屋。",
        "japanese": "賃借人は契約が終了したときは、建物を返還しなければならない。",
    }
    engine = Engine(documents, encoder=TfidfEncoder(min_df=1), language="english")
    fitted = ranker.fit(engine)
    assert fitted.rank({"q": "租约终止"})["q"][0][0] == "chinese"
    assert fitted.rank({"q": "契約が終了"})["q"][0][0] == "japanese"
    assert fitted.rank({"q": "a dog on the lead"})["q"][0][0] == "lead"
