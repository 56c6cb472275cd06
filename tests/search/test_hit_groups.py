"""Documents that belong together are shown together, in the order of the best of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import CollectionBuilder, Engine, parse
from haybale.collections import Collection
from haybale.errors import InputError
from haybale.search.hit_groups import MAX_SHOWN, group_ranked

MAILS: dict[str, dict[str, Any]] = {
    "a.eml": {"thread": "1@x"},
    "a.eml:lease.pdf": {"parent": "a.eml"},
    "a.eml:letter.eml": {"parent": "a.eml", "thread": "2@x"},
    "a.eml:letter.eml/plan.pdf": {"parent": "a.eml:letter.eml"},
    "b.eml": {"thread": "1@x"},
    "c.eml": {"thread": "2@x"},
    "note.txt": {},
    "gone.eml:scan.pdf": {"parent": "gone.eml"},
}


def mails(n_words: dict[str, int] | None = None) -> Collection:
    """Return a collection of mails; ``n_words`` says how often each has the word rent, once by default."""
    builder = CollectionBuilder("mails")
    for doc_id, metadata in MAILS.items():
        words = ["rent"] * (n_words or {}).get(doc_id, 1)
        builder.add_document(doc_id, [" ".join([*words, "due"])], metadata=metadata)
    return builder.build()


@settings(max_examples=60, deadline=None)
@given(st.permutations(sorted(MAILS)), st.sampled_from(["thread", "parent"]))
def test_groups_hold_each_document_once_in_the_order_of_their_best(ranked: list[str], column: str) -> None:
    groups = group_ranked(mails(), ranked, column)
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(1, len(ranked) + 1))
    assert all(group.ranks == sorted(group.ranks) for group in groups)
    bests = [group.ranks[0] for group in groups]
    assert bests == sorted(bests)
    value_of = {ranked[rank - 1]: group.value for group in groups for rank in group.ranks}
    if column == "thread":
        assert {value_of[doc_id] for doc_id in ("a.eml", "a.eml:lease.pdf", "b.eml")} == {"1@x"}
        assert {value_of[doc_id] for doc_id in ("a.eml:letter.eml", "a.eml:letter.eml/plan.pdf", "c.eml")} == {"2@x"}
    else:
        assert {value for doc_id, value in value_of.items() if doc_id.startswith("a.eml")} == {"a.eml"}
        assert value_of["b.eml"] == "b.eml"
    assert value_of["note.txt"] == "note.txt"
    assert value_of["gone.eml:scan.pdf"] == "gone.eml"


def test_documents_that_were_attached_to_each_other_are_a_group() -> None:
    builder = CollectionBuilder("a circle")
    for doc_id, parent in (("a", "b"), ("b", "a")):
        builder.add_document(doc_id, ["text"], metadata={"parent": parent})
    assert len(group_ranked(builder.build(), ["a", "b"], "parent")) <= 2


@pytest.fixture(scope="module")
def ranker() -> Any:
    order = {doc_id: n + 1 for n, doc_id in enumerate(MAILS)}
    engine = Engine(mails(order), language="english", encoder="tfidf(min_df=1)")
    return parse("bm25-doc").fit(engine)


def test_a_search_returns_groups_and_keeps_ranks_and_scores(ranker: Any) -> None:
    alone = {hit.doc_id: hit for hit in ranker.search("rent", len(MAILS))}
    together = ranker.search("rent", len(MAILS), together="thread")
    assert together.groups is not None
    assert [hit.rank for hit in together] == [rank for group in together.groups for rank in group.ranks]
    assert {hit.doc_id: hit for hit in together} == alone
    two = ranker.search("rent", 2, together="thread")
    assert two.groups == together.groups[:2]
    filtered = ranker.search("rent", 8, "parent is not null", together="thread")
    assert {group.value for group in filtered.groups} == {"1@x", "2@x", "gone.eml"}  # of mails that were filtered out
    assert ranker.search("rent", 8, "thread = 'none'", together="thread").groups == ()
    schema = json.loads((Path(__file__).parents[2] / "docs" / "search.schema.json").read_text())
    for results in (together, ranker.search("rent")):
        jsonschema.validate(json.loads(results.to_json()), schema)


def test_a_large_group_shows_its_best_documents() -> None:
    builder = CollectionBuilder("copies")
    for n in range(MAX_SHOWN + 3):
        builder.add_document(f"d{n}", ["rent " * (n + 1)], metadata={"thread": "t"})
    results = (
        parse("bm25-doc")
        .fit(Engine(builder.build(), encoder="tfidf(min_df=1)", language="english"))
        .search("rent", together="thread")
    )
    (group,) = results.groups or ()
    assert len(group.ranks) == MAX_SHOWN + 3
    assert [hit.rank for hit in results] == list(range(1, MAX_SHOWN + 1))


def test_a_column_that_cannot_group_is_refused(ranker: Any) -> None:
    with pytest.raises(InputError, match=r"threat.*did you mean thread"):
        ranker.search("rent", together="threat")
    builder = CollectionBuilder("lists")
    builder.add_document("a", ["rent"], metadata={"topics": ["tax", "land"]})
    with pytest.raises(InputError, match="lists"):
        group_ranked(builder.build(), ["a"], "topics")
