"""Copies among ranked documents: equal and nearly equal texts, and records of one work; templates stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import Engine
from haybale.engine.copies import groups_of_copies

LONG = [f"word{n * n % 997}" for n in range(200)]
SHORT = "The keys are returned."


def text(**changed: str) -> str:
    """Return a long text in which the words at some places are others."""
    words = [changed.get(f"at{n}", word) for n, word in enumerate(LONG)]
    return " ".join(words)


DOCUMENTS: dict[str, dict[str, Any]] = {
    "a": {"title": "Lease", "text": text()},
    "a, in capitals": {"title": "Copy of lease", "text": text().upper()},
    "a, corrected": {"title": "Lease, signed", "text": text(at50="corrected")},
    "template": {"title": "Lease", "text": text(**{f"at{n}": f"other{n}" for n in range(0, 200, 12)})},
    "short": {"title": "Keys", "text": SHORT},
    "short again": {"title": "Keys", "text": SHORT},
    "short, of another": {"title": "Return", "text": SHORT},
    "empty": {"title": "Keys", "text": []},
    "record": {"title": "Why dogs bark", "text": "Dogs bark at night.", "doi": "10.1000/AB"},
    "record again": {"title": "Why Dogs Bark.", "text": "An abstract.", "doi": "https://doi.org/10.1000/ab"},
}
COPIES = [{"a", "a, in capitals", "a, corrected"}, {"short", "short again"}, {"record", "record again"}]


def engine_of(folder: Path | None = None) -> Engine:
    """Return an engine of the documents; in a folder, some of them are added later, and one is removed."""
    how = {"language": "english", "encoder": "tfidf(min_df=1)"}
    if folder is None:
        return Engine(DOCUMENTS, **how)
    first, later = dict(list(DOCUMENTS.items())[::2]), dict(list(DOCUMENTS.items())[1::2])
    engine = Engine.build({"gone": {"text": text(at3="gone")}} | first, folder, **how)
    engine.add(later)
    engine.remove(["gone"])
    return engine


@pytest.fixture(scope="module", params=["memory", "folder"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return engine_of(None if request.param == "memory" else tmp_path_factory.mktemp("engine") / "e")


@settings(max_examples=30, deadline=None)
@given(st.permutations(sorted(DOCUMENTS)), st.integers(1, len(DOCUMENTS)))
def test_the_first_of_each_group_stands_for_its_copies(engine: Engine, ranked: list[str], n: int) -> None:
    ranked = ranked[:n]
    groups = groups_of_copies(engine, engine.collection.document_numbers(ranked))
    assert sorted(place for group in groups for place in group) == list(range(n))
    assert all(group == sorted(group) for group in groups)
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    named = {frozenset(ranked[place] for place in group) for group in groups}
    expected = {frozenset(copies & set(ranked)) for copies in COPIES} - {frozenset()}
    alone = {frozenset({doc_id}) for doc_id in ranked if not any(doc_id in copies for copies in COPIES)}
    assert named == expected | alone


def test_a_view_of_some_documents_has_their_copies(engine: Engine) -> None:
    view = engine.within(["a", "a, in capitals", "short"])
    numbers = view.collection.document_numbers(["a, in capitals", "short", "a"])
    assert groups_of_copies(view, numbers) == [[0, 2], [1]]


def test_a_search_makes_one_hit_of_copies() -> None:
    from haybale import parse

    ranker = parse("bm25-doc").fit(engine_of())
    alone = {hit.doc_id: hit for hit in ranker.search("word1 word4", 10)}
    together = ranker.search("word1 word4", 10, together="copies")
    assert together.groups is not None
    assert len(together) == len(together.groups) == 2
    assert [hit.doc_id for hit in together] == [group.value for group in together.groups]
    assert all(alone[hit.doc_id] == hit for hit in together)
    (largest,) = [group for group in together.groups if len(group.ranks) > 1]
    assert set(largest.doc_ids) == COPIES[0]
    assert [alone[doc_id].rank for doc_id in largest.doc_ids] == largest.ranks
    assert parse("bm25-doc").fit(engine_of()).search("unknownword", together="copies").groups == ()
