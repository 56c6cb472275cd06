"""Layers of graph attention by a dense oracle, by PyTorch Geometric and by surgery on the graph, passage by passage."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.structured import structured_collection

from haybale.context import RELATIONS, DocumentGraph, Mask
from haybale.context.neighbourhoods import SELF, near, neighbourhoods

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")
DIM = 8


def drawn(module: Any, seed: int) -> Any:
    """With weights that are far from what it begins with."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def layer_of(heads: int, over: str, seed: int, n_relations: int = 3) -> Any:
    from haybale.context.networks.attention import RelationAttention

    return drawn(RelationAttention(DIM, n_relations, heads, 0.5, over), seed)


def dense_attention(layer: Any, h: np.ndarray, edges: list[tuple[int, int, int]]) -> np.ndarray:
    """Node by node and head by head, in float64."""
    eye, width = np.eye(DIM), DIM // layer.heads
    q, k, v, o = (eye + p.detach().numpy() for p in (layer.query, layer.key, layer.value, layer.out))
    w, out = layer.weight.detach().numpy().astype(float), np.zeros_like(h)
    for i in range(len(h)):
        mine = [(s, r) for s, t, r in edges if t == i]
        if not mine:
            continue
        for head in range(layer.heads):
            part = slice(head * width, (head + 1) * width)
            logit = np.array([(h[i] @ q[r])[part] @ (h[s] @ k[r])[part] / math.sqrt(width) for s, r in mine])
            relation = np.array([r for _, r in mine])
            if layer.over == "neighbours":
                alpha = np.exp(logit + w[relation])
                alpha /= alpha.sum()
            else:
                present = sorted(set(relation.tolist()))
                alpha = np.zeros(len(mine))
                for r in present:
                    inside = np.exp(logit[relation == r])
                    alpha[relation == r] = inside / inside.sum() * np.exp(w[r]) / np.exp(w[present]).sum()
            for a, (s, r) in zip(alpha, mine, strict=True):
                message = np.zeros(DIM)
                message[part] = a * (h[s] @ v[r])[part]
                out[i] += message @ o[r]
    return out


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 4]), st.sampled_from(["neighbours", "relations"]))
@settings(max_examples=12, deadline=None)
def test_a_layer_is_dense_attention(seed: int, heads: int, over: str) -> None:
    """Of any edges, in any order, wherever nodes stand."""
    rng, n = np.random.default_rng(seed), 7
    layer, h = layer_of(heads, over, seed), rng.normal(size=(n, DIM)).astype(np.float32)
    edges = sorted({(int(s), int(t), int(r)) for s, t, r in rng.integers([n, n - 1, 3], size=(20, 3))})
    expected = dense_attention(layer, h.astype(float), edges)
    assert not expected[n - 1].any(), "a node without neighbours has 0"

    def made(h: np.ndarray, edges: Any) -> np.ndarray:
        source, target, relation = torch.tensor(np.array(edges)).T
        found, alpha = layer(torch.from_numpy(h), torch.from_numpy(h), source, target, relation)
        sums = torch.zeros(n, heads).index_add(0, target, alpha)
        assert torch.allclose(sums[target.unique()], torch.ones(1), atol=1e-6)
        return found.detach().numpy()

    np.testing.assert_allclose(made(h, edges), expected, atol=2e-5)
    np.testing.assert_allclose(made(h, rng.permutation(edges)), expected, atol=2e-5)
    new = rng.permutation(n)
    back = np.argsort(new)
    moved = [(int(back[s]), int(back[t]), r) for s, t, r in edges]
    np.testing.assert_allclose(made(h[new], moved), expected[new], atol=2e-5)


def test_one_relation_is_torch_geometrics_transformer() -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    theirs = nn.TransformerConv(DIM, DIM // 2, heads=2, root_weight=False, bias=False)
    ours = layer_of(2, "neighbours", 1, n_relations=1)
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(ours, name)[0] = getattr(theirs, f"lin_{name}").weight.T - torch.eye(DIM)
        ours.out.zero_()
    x, edges = torch.randn(20, DIM), torch.randint(20, (2, 90))
    found, _ = ours(x, x, *edges, torch.zeros(90, dtype=torch.long))
    assert torch.allclose(found, theirs(x, edges), atol=1e-6)


def network(layers: int, *, blind: bool = False, residual: bool = True, seed: int = 0) -> Any:
    from haybale.context.networks.attention import ContextNetwork

    return drawn(ContextNetwork(DIM, SELF + 1, layers, 2, 0.3, residual=residual, blind=blind), seed)


def on_whole_graph(
    net: Any, graph: DocumentGraph, h: Any, without: int | None, own: int = -1, mask: Mask | None = None
) -> Any:
    """(n_nodes, dim) all nodes at once; ``without``: a node of which all edges out, and to itself, were cut."""
    nodes = np.arange(graph.n_nodes)
    target, source, relation = graph.edges_into(nodes, own, mask)
    target, source = np.concatenate([target, nodes]), np.concatenate([source, nodes])
    relation = np.concatenate([relation, np.full(len(nodes), SELF)])
    kept = source != -1 if without is None else source != without
    edges = [torch.from_numpy(each[kept]) for each in (source, target, relation)]
    is_section = torch.from_numpy(nodes >= graph.n_passages)
    if without is None:
        return net(h, is_section, *edges)
    first = torch.tensor([without, *np.delete(nodes, without)])  # nothing of its own is added to the first
    place = torch.argsort(first)
    return net(h[first], is_section[first], place[edges[0]], place[edges[1]], edges[2], 1)[place]


def of_targets(net: Any, graph: DocumentGraph, h: Any, targets: np.ndarray, layers: int, **how: Any) -> Any:
    found = neighbourhoods(graph, targets, layers, **how)
    edges = (torch.from_numpy(each) for each in (found.source, found.target, found.relation))
    is_section = torch.from_numpy(found.nodes >= graph.n_passages)
    return net(h[found.nodes], is_section, *edges, len(targets) * how.get("context_only", False))[: len(targets)]


@pytest.fixture(scope="module")
def graph() -> DocumentGraph:
    return DocumentGraph.from_collection(structured_collection(3, n_documents=6, n_queries=8))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("residual", [True, False])
def test_context_only_attention_is_surgery_on_the_graph(graph: DocumentGraph, layers: int, residual: bool) -> None:
    """Passage by passage, the whole graph without the edges that go out of it; and all of them at once."""
    net, h = network(layers, residual=residual), torch.randn(graph.n_nodes, DIM, generator=torch.manual_seed(1))
    passages = np.arange(graph.n_passages)
    with torch.no_grad():
        found = of_targets(net, graph, h, passages, layers, context_only=True)
        whole = of_targets(net, graph, h, passages, layers)
        assert torch.allclose(whole, on_whole_graph(net, graph, h, None)[: len(passages)], atol=1e-4)
        for passage in passages[::3].tolist():
            expected = on_whole_graph(net, graph, h, passage)[passage]
            assert torch.allclose(found[passage], expected, atol=1e-4)
        changed = h.clone()
        changed[5] += 100
        again = of_targets(net, graph, changed, passages, layers, context_only=True)
        assert not torch.allclose(again[4], found[4]), "its neighbours see it"


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_blind_context_has_nothing_of_the_passage(graph: DocumentGraph, layers: int) -> None:
    """The gradient with respect to the passage is exactly 0; that of one which asks with its content is not."""
    for blind in (True, False):
        net = network(layers, blind=blind)
        for passage in (0, 7):
            h = torch.randn(graph.n_nodes, DIM, generator=torch.manual_seed(2)).requires_grad_()
            made = of_targets(net, graph, h, np.array([passage]), layers, context_only=True)
            made.square().sum().backward()
            assert (h.grad[passage] == 0).all().item() == blind
            assert h.grad.abs().sum() > 0


def test_a_passage_without_neighbours_has_no_context() -> None:
    graph = DocumentGraph.from_collection(structured_collection(3, n_documents=3))
    lonely = replace(
        graph,
        section_of=np.full(graph.n_passages, graph.n_passages),
        internal=graph.internal[:0],
        external=graph.external[:0],
    )
    edges = lonely.edges
    kept = (edges.target != 0) & (edges.source != 0)
    lonely.__dict__["edges"] = type(edges)(*(each[kept] for each in edges))
    h = torch.randn(graph.n_nodes, DIM)
    with torch.no_grad():
        assert not of_targets(network(2), lonely, h, np.array([0]), 2, context_only=True).any()
        assert of_targets(network(2), lonely, h, np.array([0]), 2).any()


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("context_only", [True, False])
def test_masked_links_are_hidden_at_every_layer(layers: int, context_only: bool) -> None:
    """As in a graph that never had them; and only passages near them are changed."""
    graph = DocumentGraph.from_collection(structured_collection(8, n_documents=8, n_queries=10))
    own = int(np.argmax([len(graph.cited(d)) + len(graph.citing(d)) for d in range(graph.n_documents)]))
    kept = (graph.doc_of[graph.external] != own).all(axis=1)
    without = replace(graph, external=graph.external[kept])
    net, h = network(layers), torch.randn(graph.n_nodes, DIM, generator=torch.manual_seed(4))
    passages, how = np.arange(graph.n_passages), {"context_only": context_only}
    with torch.no_grad():
        seen = of_targets(net, graph, h, passages, layers, **how)
        masked = of_targets(net, graph, h, passages, layers, own=own, mask=Mask(None, graph.n_documents), **how)
        assert torch.allclose(masked, of_targets(net, without, h, passages, layers, **how), atol=1e-5)
        changed = np.flatnonzero(~torch.isclose(seen, masked, atol=1e-6).all(dim=1).numpy())
        assert len(changed), "the mask hides something"
        assert set(changed) <= set(near(graph, own, layers).tolist())
        # Each query its own mask, side by side.
        owns = np.where(passages % 2 == 0, own, -1)
        both = of_targets(net, graph, h, passages, layers, own=owns, mask=Mask(None, graph.n_documents), **how)
        assert torch.allclose(both[::2], masked[::2], atol=1e-5)
        assert torch.allclose(both[1::2], seen[1::2], atol=1e-5)
    assert {RELATIONS[r] for r in graph.edges.relation.tolist()} == set(RELATIONS)


def test_what_a_neighbour_carries_is_linear() -> None:
    layer, rng = layer_of(2, "neighbours", 5), np.random.default_rng(0)
    h = torch.from_numpy(rng.normal(size=(4, DIM)).astype(np.float32))
    query = torch.from_numpy(rng.normal(size=DIM).astype(np.float32))
    source, target, relation = torch.tensor([[1, 2, 3], [0, 0, 0], [0, 1, 2]])
    with torch.no_grad():
        made, alpha = layer(h, h, source, target, relation)
        parts = [layer.carried(r, alpha[r], query) @ h[1 + r] for r in range(3)]
        assert float(sum(parts)) == pytest.approx(float(made[0] @ query), abs=1e-4)


@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_losses_are_those_by_hand(kind: str) -> None:
    from haybale.context.graph_context import ranking_loss

    rng, query = np.random.default_rng(0), np.array([0, 0, 0, 1, 1, 1, 1])
    scores, relevant = rng.normal(size=7), np.array([1, 0, 0, 1, 1, 0, 0], dtype=bool)
    losses = []
    for number in (0, 1):
        mine, right = scores[query == number], relevant[query == number]
        chance = np.exp(mine) / np.exp(mine).sum()
        if kind == "listwise":
            losses.append(np.mean(-np.log(chance[right])))
        else:
            losses.append(np.mean([np.log1p(np.exp(n - p)) for p in mine[right] for n in mine[~right]]))
    assert float(ranking_loss(torch.from_numpy(scores), query, relevant, kind)) == pytest.approx(np.mean(losses))
