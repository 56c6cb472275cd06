"""Structured collections for tests: random ones, and ones in which a single relation identifies the answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from haybale import Ranker
from haybale.collections import Collection, CollectionBuilder
from support.topics import word

ANSWERING = ("section title", "previous passage", "cited documents")


def structured_collection(seed: int = 0, n_documents: int = 12, n_queries: int = 12, own_words: int = 1) -> Collection:
    """Return documents of nested sections, some without a passage, with internal links, citations and topic words.

    A query has ``own_words`` times four words of its own document. The own documents of training queries cite the
    relevant documents.
    """
    rng = np.random.default_rng(seed)
    builder = CollectionBuilder("structured", language="english")
    passages: list[list[str]] = []
    sections: list[list[str]] = []

    def text(topic: int, n: int = 3) -> str:
        words = [word(100 * topic + int(i)) for i in rng.integers(6, size=n)]
        return " ".join([*words, *(word(5000 + int(i)) for i in rng.integers(15, size=3))])

    for d in range(n_documents):
        number = builder.add_document(f"d{d:02d}", title=f"{word(100 * d)} title")
        known: dict[str, int] = {}
        for s in range(int(rng.integers(1, 5))):
            parent = [*known][int(rng.integers(len(known)))] if known else None
            title = f"{word(100 * d + s)} heading" if s % 3 else ""
            known[f"d{d}s{s}"] = builder.add_section(number, f"d{d}s{s}", title, parent)
        sections.append([*known])
        mine = [f"d{d}p{p}" for p in range(int(rng.integers(0 if d % 5 == 4 else 2, 6)))]
        for passage_id in mine:
            builder.add_passage(number, text(d), passage_id, [*known.values()][int(rng.integers(len(known)))])
        passages.append(mine)
    for d, mine in enumerate(passages):
        for passage_id in mine:
            if rng.random() < 0.3:
                builder.add_internal_link(passage_id, sections[d][int(rng.integers(len(sections[d])))])
            if rng.random() < 0.2:
                builder.add_external_link(passage_id, f"d{int(rng.integers(n_documents)):02d}")
    for split in ("train", "dev"):
        for i in range(n_queries):
            own, relevant = (int(each) for each in rng.choice(n_documents, size=2, replace=False))
            builder.add_query(f"{split}{i}", [text(own, 4 * own_words), text(relevant)], own=f"d{own:02d}", split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{relevant:02d}")
            if split == "train":
                builder.add_external_link(sections[own][0], f"d{relevant:02d}")
    return builder.build()


def planted_collection(relation: str, n_documents: int = 24, n_queries: int = 24) -> Collection:
    """Return documents with equal candidate passages, whose topic words are only in the texts at ``relation``.

    A query has the words of a topic, and the words of all candidate passages.
    """
    rng = np.random.default_rng(3)
    builder = CollectionBuilder("told", language="english")
    builder.add_document("words", [" ".join(map(word, [*range(100 * n_documents), *range(6000, 6900)]))])
    common = " ".join(word(5000 + i) for i in range(6))

    def topic(d: int) -> str:
        return " ".join(word(100 * d + i) for i in range(4))

    def other() -> str:
        return " ".join(word(6000 + int(i)) for i in rng.integers(900, size=4))

    for d in range(n_documents):
        number = builder.add_document(f"d{d:02d}")
        root = builder.add_section(number, f"d{d}root", other(), None)
        title = topic(d) if relation == "section title" else other()
        section = builder.add_section(number, f"d{d}s", title, f"d{d}root")
        # The previous passage is in another section than the passage with the common words.
        builder.add_passage(number, topic(d) if relation == "previous passage" else other(), f"d{d}p0", root)
        builder.add_passage(number, common, f"d{d}p1", section)
        builder.add_passage(number, other(), f"d{d}p2", root)
    if relation == "cited documents":
        for d in range(n_documents):
            number = builder.add_document(f"x{d:02d}")
            section = builder.add_section(number, f"x{d}root", "", None)
            builder.add_passage(number, topic(d), f"x{d}p", section)
            builder.add_external_link(f"d{d}p1", f"x{d:02d}")
    for split in ("train", "dev"):
        for i in range(n_queries):
            d = int(rng.integers(n_documents))
            builder.add_query(f"{split}{i}", [f"{topic(d)} {common} {common}"], split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{d:02d}")
    return builder.build()


def share_right(ranker: Ranker, collection: Collection) -> float:
    """Return the share of dev queries of :func:`planted_collection` whose relevant document is the first candidate."""
    run, relevant = ranker.rank("dev"), collection.relevant_ids("dev")
    found = [[doc for doc, _ in run[query] if doc.startswith("d")][:1] for query in run.query_ids]
    return float(np.mean([top == ids for top, ids in zip(found, relevant, strict=True)]))


def without_links_of(collection: Collection, document: int) -> Collection:
    """Return the collection without links between a document and others."""
    links, sections = collection.links, collection.sections
    assert links is not None
    assert sections is not None
    of_section = np.repeat(np.arange(collection.n_documents), np.diff(sections.doc_offsets))
    kept = {}
    for name, of in (("passage_to_document", collection.passages.doc_of), ("section_to_document", of_section)):
        edges = getattr(links, name)
        kept[name] = edges[(of[edges[:, 0]] != document) & (edges[:, 1] != document)]
    return replace(collection, links=replace(links, **kept))
