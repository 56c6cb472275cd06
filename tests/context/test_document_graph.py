"""The graph of a collection and the means over its relation paths, against slow oracles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.structured import structured_collection

from haybale.collections import Collection, CollectionBuilder, Links
from haybale.context import PATHS, RELATIONS, DocumentGraph, Mask, NodeVectors, RelationPaths
from haybale.errors import InputError


def expected_edges(collection: Collection, graph: DocumentGraph) -> dict[str, set[tuple[int, int]]]:
    """Return the edges of every relation, found one by one."""
    n, passages, sections, links = collection.n_passages, collection.passages, collection.sections, collection.links
    assert sections is not None
    assert links is not None
    found: dict[str, set[tuple[int, int]]] = {name: set() for name in RELATIONS}

    def add(relation: str, source: int, target: int) -> None:
        found[relation].add((source, target))
        found[f"{relation}_i"].add((target, source))

    of_section = np.repeat(np.arange(collection.n_documents), np.diff(sections.doc_offsets))
    for passage in range(n):
        if passage + 1 < n and passages.doc_of[passage] == passages.doc_of[passage + 1]:
            add("order", passage, passage + 1)
        add("structural", passage, n + int(passages.sections[passage]))
    for section, parent in enumerate(sections.parents.tolist()):
        if parent >= 0:
            add("structural", n + section, n + parent)
    for passage, section in links.internal.tolist():
        add("internal", passage, n + section)
    for source, doc in links.passage_to_document.tolist():
        if passages.doc_of[source] != doc:
            add("external", source, int(graph.root[doc]))
    for source, doc in links.section_to_document.tolist():
        if of_section[source] != doc:
            add("external", n + source, int(graph.root[doc]))
    return found


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_edges_are_those_of_the_collection(seed: int) -> None:
    collection = structured_collection(seed, n_documents=7, n_queries=4)
    graph = DocumentGraph.from_collection(collection)
    expected = expected_edges(collection, graph)
    source, target, relation = graph.edges
    for number, name in enumerate(RELATIONS):
        of = relation == number
        assert set(zip(source[of].tolist(), target[of].tolist(), strict=True)) == expected[name]
    assert len(source) == sum(map(len, expected.values()))
    assert (np.diff(target) >= 0).all()
    nodes = np.random.default_rng(seed).permutation(graph.n_nodes)[:9]
    place, sources, relations = graph.edges_into(nodes)
    for i, node in enumerate(nodes.tolist()):
        into = {(int(s), int(r)) for s, r in zip(sources[place == i], relations[place == i], strict=True)}
        assert into == {(s, r) for r, name in enumerate(RELATIONS) for s, t in expected[name] if t == node}
    seen = {(int(graph.doc_of[s]), int(graph.doc_of[t])) for s, t in expected["external"]}
    for document in range(graph.n_documents):
        assert graph.cited(document).tolist() == sorted(t for s, t in seen if s == document)
        assert graph.citing(document).tolist() == sorted(s for s, t in seen if t == document)


def test_a_mask_hides_external_edges_only() -> None:
    """It hides all links of a document, or those with some others, in both directions."""
    collection = structured_collection(1)
    graph = DocumentGraph.from_collection(collection)
    nodes = np.arange(graph.n_nodes)
    place, source, relation = graph.edges_into(nodes)
    all_edges = set(zip(place.tolist(), source.tolist(), relation.tolist(), strict=True))
    own = int(np.argmax([len(graph.cited(d)) + len(graph.citing(d)) for d in range(graph.n_documents)]))
    linked = np.union1d(graph.cited(own), graph.citing(own))
    for others in (None, linked[:1]):
        pairs = None if others is None else own * graph.n_documents + others
        place, source, relation = graph.edges_into(nodes, own, Mask(pairs, graph.n_documents))
        left = set(zip(place.tolist(), source.tolist(), relation.tolist(), strict=True))
        gone = {tuple(sorted((int(graph.doc_of[t]), int(graph.doc_of[s])))) for t, s, _ in all_edges - left}
        assert gone == {tuple(sorted((own, int(d)))) for d in (linked if others is None else others)}
        assert {RELATIONS[r] for _, _, r in all_edges - left} == {"external", "external_i"}
    place, *_ = graph.edges_into(nodes, -1, Mask(None, graph.n_documents))
    assert len(place) == len(all_edges)


def oracle(graph: DocumentGraph, values: np.ndarray, p: int, hidden: set[tuple[int, int]]) -> np.ndarray:
    """Return the mean over each path from passage p, by following its edges."""
    n, doc, section = graph.n_passages, int(graph.doc_of[p]), int(graph.section_of[p])
    mine = [q for q in range(n) if graph.doc_of[q] == doc]
    parent = int(graph.parent[section - n])
    source, target, relation = graph.edges
    cites: dict[str, set[int]] = {"cited documents": set(), "citing documents": set()}
    refers = set()
    for s, t, r in zip(source.tolist(), target.tolist(), relation.tolist(), strict=True):
        a, b = int(graph.doc_of[s]), int(graph.doc_of[t])
        if RELATIONS[r] == "external" and (a, b) not in hidden:
            if a == doc:
                cites["cited documents"].add(b)
            if b == doc:
                cites["citing documents"].add(a)
        if RELATIONS[r] == "internal" and s == p:
            refers.add(t)
    whole = {d: [q for q in range(n) if graph.doc_of[q] == d] for d in range(graph.n_documents)}
    groups = {
        "previous passage": [p - 1] if p - 1 in mine else [],
        "next passage": [p + 1] if p + 1 in mine else [],
        "section title": [section],
        "parent title": [parent] if parent >= 0 else [],
        "siblings": [q for q in mine if q != p and graph.section_of[q] == section],
        "rest of the document": [q for q in mine if q != p],
        "document title": [int(graph.root[doc])],
        "cited sections": sorted(refers),
    }
    means = {name: [values[node] for node in nodes] for name, nodes in groups.items()}
    means |= {name: [values[whole[d]].mean(axis=0) for d in docs if whole[d]] for name, docs in cites.items()}
    return np.array([np.mean(means[name], axis=0) if means[name] else np.zeros(values.shape[1:]) for name in PATHS])


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=12, deadline=None)
def test_means_over_relation_paths(seed: int, vectors: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = DocumentGraph.from_collection(structured_collection(seed, n_documents=6, n_queries=5))
    paths, values = RelationPaths(graph), rng.normal(size=(graph.n_nodes, 3) if vectors else graph.n_nodes)
    passages = rng.permutation(graph.n_passages)[:8]
    own = rng.integers(-1, graph.n_documents, size=len(passages))
    for pairs in (None, np.unique(rng.integers(graph.n_documents**2, size=9))):
        mask = Mask(pairs, graph.n_documents)
        found = paths.means(values, passages, own, mask, paths.sums(values))
        assert found.shape == (len(passages), len(PATHS), *values.shape[1:])
        for row, (p, o) in enumerate(zip(passages.tolist(), own.tolist(), strict=True)):
            others = range(graph.n_documents) if pairs is None else [int(k) % 6 for k in pairs if int(k) // 6 == o]
            hidden = {pair for other in others if o >= 0 for pair in ((o, other), (other, o))}
            np.testing.assert_allclose(found[row], oracle(graph, values, p, hidden), atol=1e-12)
            again = np.zeros_like(found[row])
            for name, nodes, weight in paths.neighbours(p, o, mask):
                again[PATHS.index(name)] += weight * values[nodes].sum(axis=0)
            np.testing.assert_allclose(again, found[row], atol=1e-12)
    # No mean contains the value of the passage itself.
    changed = values.copy()
    changed[passages[0]] += 1000
    np.testing.assert_allclose(paths.means(changed, passages[:1]), paths.means(values, passages[:1]), atol=1e-9)


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_section_propagation_averages_over_ancestors(seed: int) -> None:
    graph = DocumentGraph.from_collection(structured_collection(seed, n_documents=5, n_queries=2))
    scores, n = np.random.default_rng(seed).normal(size=graph.n_nodes), graph.n_passages

    def above(node: int) -> list[int]:
        parent = int(graph.parent[node - n])
        return [node, *(above(parent) if parent >= 0 else [])]

    chains = [above(int(graph.section_of[p])) for p in range(n)]
    found = RelationPaths(graph).propagated(scores, np.arange(n))
    for p in range(n):
        others = [[scores[q] for q in range(n) if q != p and section in chains[q]] for section in chains[p]]
        levels = [np.mean(each) for each in others if each]
        assert found[p] == pytest.approx(np.mean(levels) if levels else 0.0, abs=1e-12)


def test_section_nodes_have_the_vectors_of_their_titles() -> None:
    """Equal titles are encoded once. An empty title is 0, and an untitled root has the title of the document."""
    collection = structured_collection(2)
    graph = DocumentGraph.from_collection(collection)
    encoded: list[str] = []

    class Lengths:
        def encode(self, texts: list[str]) -> np.ndarray:
            encoded.extend(texts)
            return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    passages = np.random.default_rng(0).normal(size=(graph.n_passages, 2)).astype(np.float32)
    vectors = NodeVectors(graph, passages, Lengths())
    assert len(encoded) == len(set(encoded))
    for title, vector in zip(graph.titles, vectors.titles.tolist(), strict=True):
        assert vector == ([len(title), 1] if title.strip() else [0, 0])
    assert all(graph.titles[int(root) - graph.n_passages].endswith("title") for root in graph.root)
    queries = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
    np.testing.assert_allclose(np.stack(list(vectors.scores(queries))), queries @ vectors.dense().T, rtol=1e-5)


def test_documents_without_a_single_root_get_a_new_one() -> None:
    builder = CollectionBuilder("roots", language="english")
    builder.add_document("plain", ["a text", "another"], title="Plain")
    two = builder.add_document("two", title="Two")
    for name in "ab":
        builder.add_passage(two, name, f"p{name}", builder.add_section(two, name, f"part {name}", None))
    builder.add_external_link("pa", "plain")
    builder.add_external_link("pa", "two")
    builder.add_external_link("a", "plain")
    graph = DocumentGraph.from_collection(builder.build())
    roots = [graph.titles[root - graph.n_passages] for root in graph.root.tolist()]
    assert roots == ["Plain", "Two"]
    assert graph.parent[:2].tolist() == [graph.root[1]] * 2
    assert graph.section_of[:2].tolist() == [graph.root[0]] * 2
    assert graph.n_self_links == 1
    assert (graph.cited(1).tolist(), graph.citing(0).tolist()) == ([0], [1])


def test_what_is_refused(toy: Collection) -> None:
    with pytest.raises(InputError, match="toy"):
        DocumentGraph.from_collection(toy)
    collection = structured_collection(0)
    assert collection.sections is not None
    assert collection.links is not None
    parents = collection.sections.parents.copy()
    first = int(np.flatnonzero(parents >= 0)[0])
    parents[int(parents[first])] = first
    with pytest.raises(InputError, match="section"):
        DocumentGraph.from_collection(replace(collection, sections=replace(collection.sections, parents=parents)))
    for name, nowhere in (("internal", [0, 10**6]), ("section_to_document", [0, -1])):
        links = replace(collection.links, **{name: np.array([nowhere])})
        with pytest.raises(InputError, match=name.replace("_", " ")):
            DocumentGraph.from_collection(replace(collection, links=links))
    alone = replace(collection, links=None)
    assert len(DocumentGraph.from_collection(alone).external) == 0
    only_links = replace(collection, sections=None, passages=replace(collection.passages, sections=None))
    none = np.empty((0, 2), dtype=np.int64)
    only_links = replace(only_links, links=Links(none, collection.links.passage_to_document, none))
    assert DocumentGraph.from_collection(only_links).n_sections == collection.n_documents
