"""A document matches a query if it has a term of it and all its phrases: what the ranking of BM25 lists, no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import Engine, parse
from haybale.errors import InputError
from haybale.search.matching import matching_documents

WORDS = ["dog", "dogs", "lease", "rent", "the", "notice", "tax"]
TEXTS = {f"d{n}": [" ".join(WORDS[(n * step + n // 3) % 7] for step in range(1, 1 + n % 5)) or "of"] for n in range(30)}


def engines(folder: Path) -> dict[str, Engine]:
    """Return the same documents in one segment, in three, and with documents that were added and removed."""
    how = {"language": "english", "encoder": "tfidf(min_df=1)"}
    first = dict(list(TEXTS.items())[:20])
    grown = Engine({**first, "gone": ["dog rent notice"]}, **how)
    grown.add(dict(list(TEXTS.items())[20:]))
    grown.remove(["gone"])
    return {
        "one": Engine(TEXTS, **how),
        "three": Engine.build(TEXTS, folder / "three", segments=3, **how),
        "grown": grown,
    }


@pytest.fixture(scope="module")
def all_engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    return engines(tmp_path_factory.mktemp("engines"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "unknown", '"dog lease"', '"the rent"']), min_size=1, max_size=4))
def test_what_matches_has_a_term_and_all_phrases(all_engines: dict[str, Engine], words: list[str]) -> None:
    query = " ".join(words)
    for engine in all_engines.values():
        snapshot = engine.snapshot()
        ids = snapshot.collection.doc_ids.to_pylist()
        matching = {ids[number] for number in matching_documents(snapshot, query).nonzero()[0]}
        ranked = {hit.doc_id for hit in parse("bm25-doc").fit(engine).search(query, k=100)}
        assert matching == ranked


def test_paragraphs_are_terms_together_and_empty_phrases_are_refused(all_engines: dict[str, Engine]) -> None:
    engine = all_engines["one"].snapshot()
    either = matching_documents(engine, "lease") | matching_documents(engine, "tax")
    assert (matching_documents(engine, ["lease", "tax"]) == either).all()
    with pytest.raises(InputError, match="phrase"):
        matching_documents(engine, '"!" lease')


def test_a_phrase_without_a_term_matches() -> None:
    texts = {"a": "see § 5 there", "b": "see § 6 there", "c": "a dog"}
    engine = Engine(texts, language="english", encoder="tfidf(min_df=1)").snapshot()
    assert matching_documents(engine, '"§ 5"').tolist() == [True, False, False]
