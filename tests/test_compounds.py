"""Parts of compounds are terms beside the compound; what splits them is learned, saved and the same for all."""

from __future__ import annotations

import json
import math
import pickle
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import BM25, KNN, BM25Index, Engine, InputError, StoreError, TfidfEncoder, load
from haybale.analysis import Analyzer
from haybale.compounds import LINKS, Compounds
from haybale.embeddings.store_files import as_json

WORDS = {
    "vertrag": 9,
    "arbeit": 7,
    "miete": 5,
    "miet": 4,
    "verhältnis": 6,
    "gericht": 8,
    "hof": 9,
    "kind": 4,
    "geld": 5,
}
TEXTS = {
    "work": ["Der Arbeitsvertrag endet.", "Die Arbeit ruht. Arbeit ist Arbeit."],
    "rent": ["Das Mietverhältnis endet.", "Die Miete steigt. Miete ist Miete. Miet, Miet, Miet."],
    "other": ["Ein Vertrag ist ein Vertrag, kein anderer Vertrag.", "Das Verhältnis! Verhältnis? Verhältnis."],
}


def every_split(compounds: Compounds, word: str) -> dict[tuple[str, ...], float]:
    """Return all splits of a word into known parts, with the mean of the logarithms of their counts."""
    found = {}
    for n in range(1, 4):
        for cuts in combinations(range(1, len(word)), n):
            pieces = [word[a:b] for a, b in zip((0, *cuts), (*cuts, len(word)), strict=True)]
            parts = []
            for i, piece in enumerate(pieces):
                links = ("",) if i == n else LINKS[compounds.language]
                known = [piece[: len(piece) - len(x)] for x in links if piece.endswith(x)]
                known = [each for each in known if len(each) >= 4 and each in compounds.counts]
                parts.append(max(known, key=lambda each: compounds.counts[each], default=None))
            if all(len(piece) >= 4 for piece in pieces) and None not in parts:
                found[tuple(parts)] = sum(math.log(compounds.counts[each]) for each in parts) / len(parts)
    return found


LETTERS = st.text("abs", min_size=4, max_size=6)


@settings(deadline=None)
@given(st.dictionaries(LETTERS, st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_the_split_is_the_best_of_all(counts: dict[str, int], data: st.DataObject) -> None:
    compounds = Compounds("german", counts)
    parts = st.lists(st.sampled_from(sorted(counts)), min_size=1, max_size=3)
    word = data.draw(st.sampled_from(["", "s", "es"])).join(data.draw(parts))
    splits, found = every_split(compounds, word), compounds.split(word)
    best = max(splits.values(), default=-math.inf)
    if best < math.log(counts.get(word, 1)) - 1e-9:
        assert not found
    elif best > math.log(counts.get(word, 1)) + 1e-9:
        assert splits[found] == pytest.approx(best)


def test_equal_splitters_share_their_counts() -> None:
    """So that they are compared word by word only once."""
    first, second, other = (Compounds("german", words) for words in (WORDS, WORDS, {**WORDS, "other": 3}))
    assert first.counts is not second.counts
    assert first == second != other
    assert first.counts is second.counts is not other.counts


def test_tasks_of_a_process_share_a_splitter() -> None:
    sent = pickle.dumps(Compounds("german", WORDS))
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second == Compounds("german", WORDS) != Compounds("dutch", WORDS)
    other = pickle.loads(pickle.dumps(Compounds("german", {"other": 3})))
    assert other.counts == {"other": 3}
    assert first.split("arbeitsvertrag") == ("arbeit", "vertrag")


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("arbeitsvertrag", ("arbeit", "vertrag")),
        ("mietverhältnis", ("miet", "verhältnis")),
        ("kindergeld", ("kind", "geld")),
        ("vertrag", ()),
        ("gerichthof", ()),  # hof is too short to be a part
        ("unbekannt", ()),
        ("", ()),
        ("vertrag" * 9, ()),
    ],
)
def test_german_words(word: str, parts: tuple[str, ...]) -> None:
    assert Compounds("german", WORDS).split(word) == parts


@pytest.mark.parametrize("language", LINKS)
def test_languages_with_compounds_learn_them_and_others_do_not(language: str) -> None:
    assert (Analyzer.learned(language, ["one two"]).compounds is not None) == (language == "german")
    assert Analyzer.learned(language, ["one two"], compounds=False) == Analyzer(language)
    assert Analyzer.learned("english", ["one two"]) == Analyzer("english")
    described = Analyzer.learned(language, ["abcdef"] * 3, compounds=True).to_dict()
    assert Analyzer.from_dict(described).to_dict() == described
    with pytest.raises(InputError, match="compounds"):
        Analyzer.from_dict(described | {"compounds": {"abcdef": "three"}})


@pytest.mark.parametrize("ranker", [BM25(), BM25("document"), KNN()], ids=str)
def test_parts_are_found_and_an_engine_keeps_its_splitter(ranker: BM25 | KNN, tmp_path: Path) -> None:
    encoder = TfidfEncoder(min_df=1)
    plain = Engine(TEXTS, encoder=encoder, analyzer=Analyzer("german"))
    assert "work" not in [name for name, _ in ranker.fit(plain).rank(["Vertrag"])["0"]]
    engine = Engine.build(TEXTS, tmp_path / "engine", encoder="tfidf(min_df=1)", language="german")
    fitted = ranker.fit(engine)
    run = fitted.rank(["Vertrag", "Verhältnis"])
    assert [name for name, _ in run["0"]] == ["other", "work"]
    assert [name for name, _ in run["1"]] == ["other", "rent"]
    fitted.save(tmp_path / "model")
    reopened = Engine.open(tmp_path / "engine")
    assert reopened.analyzer == engine.analyzer
    assert load(tmp_path / "model", reopened).rank(["Vertrag", "Verhältnis"]) == run
    for compounds in (None, True):
        same = {"encoder": "tfidf(min_df=1)", "language": "german", "compounds": compounds}
        assert Engine.build(TEXTS, tmp_path / "engine", **same).analyzer.compounds
    reopened.add({"new": ["Der Mietvertrag endet."]})  # a compound that is not in the texts it was learned from
    assert "new" in [name for name, _ in load(tmp_path / "model", reopened).rank(["Vertrag"])["0"]]


def test_compounds_are_split_by_default_in_german_only() -> None:
    for language in ("english", "dutch"):
        assert Engine(TEXTS, language=language).analyzer == Analyzer(language)
    assert Engine(TEXTS, language="dutch", compounds=True).analyzer.compounds is not None
    assert Engine(TEXTS, language="german", compounds=False).analyzer == Analyzer("german")
    assert Engine(TEXTS, analyzer=Analyzer("german")).analyzer == Analyzer("german")
    assert Engine(TEXTS, language="german").analyzer.compounds == Engine(TEXTS).analyzer.compounds  # guessed
    for make in (Engine, lambda texts, **how: BM25Index.from_collection(Engine(texts).collection, **how)):
        with pytest.raises(InputError, match="german"):
            make(TEXTS, language="english", compounds=True)
    with pytest.raises(InputError, match="analyzer"):
        Engine(TEXTS, analyzer=Analyzer("german"), compounds=True)


def test_engines_built_without_compounds_stay_so(tmp_path: Path) -> None:
    """As those were that were built when no language split compounds by default, finished or interrupted."""
    how = {"encoder": "tfidf(min_df=1)", "language": "german"}
    engine = Engine.build(TEXTS, tmp_path / "engine", compounds=False, **how)
    again = Engine.build(TEXTS, tmp_path / "engine", **how)
    assert again.analyzer == Analyzer("german")
    ranker = BM25().fit(engine)
    assert BM25().fit(again).rank(["Vertrag"]) == ranker.rank(["Vertrag"])
    with pytest.raises(StoreError, match="analyzer"):
        Engine.build(TEXTS, tmp_path / "engine", compounds=True, **how)
    (tmp_path / "begun").mkdir()
    request = {"settings": as_json(engine.settings), "input": engine.input_digest}
    (tmp_path / "begun" / "building.json").write_text(json.dumps(request))
    assert Engine.build(TEXTS, tmp_path / "begun", **how).analyzer == Analyzer("german")


def test_collections_without_a_part_are_searched_by_whole_words() -> None:
    engine = Engine({"one": "Der Hund.", "two": "Die Katze."}, language="german", encoder="tfidf(min_df=1)")
    assert engine.analyzer.compounds == Compounds("german", {})
    assert (
        BM25().fit(engine).rank(["Hunde"])["0"]
        == BM25()
        .fit(Engine(engine.collection, language="german", encoder="tfidf(min_df=1)", compounds=False))
        .rank(["Hunde"])["0"]
    )


def test_quoted_words_are_whole_words() -> None:
    engine = Engine(TEXTS, language="german", encoder="tfidf(min_df=1)")
    assert [hit.doc_id for hit in BM25().fit(engine).search("Vertrag").hits] == ["other", "work"]
    assert [hit.doc_id for hit in BM25().fit(engine).search('"Vertrag"').hits] == ["other"]
    assert not BM25().fit(engine).search('"Verhältnis endet"').hits
    [hit] = BM25().fit(engine).search('"Arbeitsvertrag endet"').hits
    snippet = hit.snippets[0]
    assert [snippet.text[a:b] for a, b in snippet.highlights] == ["Arbeitsvertrag endet"]


def test_an_index_of_a_collection_has_the_terms_of_an_engine() -> None:
    for compounds in (None, False):
        engine = Engine(TEXTS, language="german", compounds=compounds)
        index = BM25Index.from_collection(engine.collection, language="german", compounds=compounds)
        assert index.vocabulary == engine.bm25().vocabulary
