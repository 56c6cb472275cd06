"""Collections with everything in them, and the same as plain lists of ids, in which any change is easy to make."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from haybale.collections import Collection, CollectionBuilder

texts = st.text(st.sampled_from("a\u00e4\n\U0001f42b\x00"), max_size=3).map(lambda text: f"x{text}")
KINDS = ("internal", "passage_to_document", "section_to_document")


@st.composite
def collections(draw: st.DrawFn, prefix: str = "", least_queries: int = 0) -> Collection:
    """Documents with and without passages, titles, sections and links; queries in several splits or none."""
    builder = CollectionBuilder(draw(texts), draw(st.sampled_from([None, "german"])))
    with_sections = draw(st.booleans())
    docs = [f"{prefix}d{number}" for number in range(draw(st.integers(1, 5)))]
    passages: list[tuple[int, str]] = []
    sections: dict[int, list[tuple[str, int]]] = {}
    for number, doc_id in enumerate(docs):
        builder.add_document(doc_id, title=draw(texts | st.just("")))
        for place in range(draw(st.integers(0, 3)) if with_sections else 0):
            above = draw(st.sampled_from([None, *(name for name, _ in sections.get(number, []))]))
            name = f"{doc_id}/{place}"
            sections.setdefault(number, []).append((name, builder.add_section(number, name, draw(texts), above)))
    for _ in range(draw(st.integers(1, 8))):
        number = draw(st.integers(0, len(docs) - 1))
        section = draw(st.sampled_from([-1, *(number for _, number in sections.get(number, []))]))
        passages.append((number, f"{prefix}p{len(passages)}"))
        builder.add_passage(number, draw(texts), passages[-1][1], section)
    for number, passage in passages:
        for name, _ in sections.get(number, []):
            if draw(st.booleans()):
                builder.add_internal_link(passage, name)
    sources = [name for _, name in passages] + [name for names in sections.values() for name, _ in names]
    for source in sources:
        if draw(st.booleans()):
            builder.add_external_link(source, draw(st.sampled_from(docs)))
    for number in range(draw(st.integers(least_queries, 4))):
        own = draw(st.sampled_from([None, *docs]))
        split = draw(st.sampled_from([None, "b", "a"]))
        builder.add_query(f"q{number}", draw(st.lists(texts, min_size=1, max_size=3)), own, split)
        for doc_id in docs:
            if draw(st.booleans()):
                builder.add_judgement(draw(st.sampled_from("cba")), f"q{number}", doc_id, draw(st.integers(-1, 3)))
    return builder.build()


def plain(collection: Collection) -> dict[str, Any]:
    """All of a collection but its name, by id."""
    passages, queries, sections, links = collection.passages, collection.queries, collection.sections, collection.links
    doc_ids, passage_ids, query_ids = (ids.to_pylist() for ids in (collection.doc_ids, passages.ids, queries.ids))
    section_ids = [] if sections is None else sections.ids.to_pylist()
    own_texts = passages.texts.to_pylist()
    of_passage = [None] * len(passages) if passages.sections is None else passages.sections.tolist()

    def named(number: int | None) -> str | None:
        return None if number is None or number < 0 else section_ids[number]

    documents = []
    for number, (doc_id, title) in enumerate(zip(doc_ids, collection.doc_titles.to_pylist(), strict=True)):
        own = range(*passages.doc_offsets[number : number + 2])
        tree = () if sections is None else range(*sections.doc_offsets[number : number + 2])
        documents.append(
            {
                "id": doc_id,
                "title": title,
                "passages": [(passage_ids[i], own_texts[i], named(of_passage[i])) for i in own],
                "sections": [
                    (section_ids[i], sections.titles[i].as_py(), named(int(sections.parents[i]))) for i in tree
                ],
            }
        )
    ends = dict(zip(KINDS, [(passage_ids, section_ids), (passage_ids, doc_ids), (section_ids, doc_ids)], strict=True))
    return {
        "documents": documents,
        "links": {
            kind: [] if links is None else [(ends[kind][0][a], ends[kind][1][b]) for a, b in getattr(links, kind)]
            for kind in KINDS
        },
        "queries": [
            (name, queries.paragraphs_of(i), None if queries.own[i] < 0 else doc_ids[queries.own[i]])
            for i, name in enumerate(query_ids)
        ],
        "splits": {
            name: (
                [query_ids[i] for i in split.queries],
                [
                    (query_ids[query], doc_ids[document], int(grade))
                    for query, document, grade in zip(
                        split.judged_queries, split.judged_documents, split.grades, strict=True
                    )
                ],
            )
            for name, split in collection.splits.items()
        },
        "has": (sections is not None, passages.sections is not None, links is not None),
    }


def rechunked(column: pa.ChunkedArray, rng: np.random.Generator) -> pa.ChunkedArray:
    """The same strings in other chunks, slices of longer arrays."""
    cuts = np.sort(rng.integers(0, len(column) + 1, size=rng.integers(0, 4))).tolist()
    ends = [0, *cuts, len(column)]
    values = column.to_pylist()
    arrays = [
        pa.array(["before", *values[a:b], "behind"], type=pa.large_string()).slice(1, b - a) for a, b in pairwise(ends)
    ]
    return pa.chunked_array(arrays, type=pa.large_string())
