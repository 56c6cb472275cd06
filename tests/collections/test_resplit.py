"""Whole collections split anew: by a splitter, or by their sections."""

from __future__ import annotations

import pytest

from haybale.collections import Collection, CollectionBuilder, by_section, find_splitter, resplit
from haybale.errors import InputError


@pytest.fixture
def laws() -> Collection:
    builder = CollectionBuilder("laws", language="english")
    a, b = builder.add_document("a", title="A"), builder.add_document("b", ["[1] One.", "[2] Two.\nStill two."])
    root = builder.add_section(a, "a/", "A", None)
    first = builder.add_section(a, "a/1", "First", "a/")
    builder.add_section(a, "a/2", "Empty", "a/")
    for number, section in enumerate([root, first, first, -1, root, -1]):
        builder.add_passage(a, f"passage {number}", f"a:{number}", section)
    builder.add_passage(b, "[3] Three.")
    builder.add_document("c")
    for source in ("a:1", "a:2"):
        builder.add_internal_link(source, "a/2")
        builder.add_external_link(source, "b")
    builder.add_external_link("a/1", "b")
    builder.add_query("q", ["[1] What?", "[2] And", "why?"], own="b", split="test")
    builder.add_query("r", ["…"], split="test")
    builder.add_judgement("test", "q", "a", 2)
    return builder.build()


def test_resplit_keeps_all_but_passages_sections_and_links(laws: Collection) -> None:
    new = resplit(laws, find_splitter("numbered"))
    assert new.passages.ids.to_pylist() == ["a:0", "b:1", "b:2", "b:3"]
    assert new.passages.texts.to_pylist()[1:] == ["One.", "Two. Still two.", "Three."]
    assert new.passages.doc_offsets.tolist() == [0, 1, 4, 4]
    assert new.queries.paragraphs.to_pylist() == ["What?", "And why?", "…"]  # no paragraph: stays whole
    assert new.queries.offsets.tolist() == [0, 2, 3]
    assert (new.sections, new.links) == (None, None)
    for name in ("name", "language", "splits"):
        assert getattr(new, name) == getattr(laws, name)
    assert new.doc_titles.equals(laws.doc_titles)
    assert new.queries.own.tolist() == laws.queries.own.tolist()


def test_resplit_refuses_ids_that_meet() -> None:
    builder = CollectionBuilder("colons")
    builder.add_document("a", ["# b:0", "x"])
    builder.add_document("a:b", ["x"])
    with pytest.raises(InputError, match="duplicate passage id 'a:b:0'"):
        resplit(builder.build(), find_splitter("headings"))


def test_by_section_joins_the_passages_of_a_section(laws: Collection, toy: Collection) -> None:
    new = by_section(laws)
    assert new.passages.ids.to_pylist() == ["a/", "a/1", "a:3", "a:5", "b:0", "b:1", "b:2"]
    assert new.passages.texts.to_pylist()[:3] == ["passage 0\npassage 4", "passage 1\npassage 2", "passage 3"]
    assert new.passages.doc_offsets.tolist() == [0, 4, 7, 7]
    assert new.passages.sections is not None
    assert new.passages.sections.tolist() == [0, 1, -1, -1, -1, -1, -1]
    assert new.links is not None
    assert new.links.internal.tolist() == [[1, 2]]
    assert new.links.passage_to_document.tolist() == [[1, 1]]
    assert new.links.section_to_document.tolist() == [[1, 1]]
    assert (new.sections, new.queries) == (laws.sections, laws.queries)
    with pytest.raises(InputError, match="collection 'toy' has no sections"):
        by_section(toy)


def test_by_section_loses_no_word_of_the_built_in_collection(pydocs: Collection) -> None:
    new = by_section(pydocs)
    assert new.n_passages < pydocs.n_passages
    assert new.document_texts() == pydocs.document_texts()
