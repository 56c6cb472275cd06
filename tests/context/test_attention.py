"""Layers of graph attention against dense oracles, PyTorch Geometric, and graphs with edges removed by hand."""

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
from haybale.context.neighbourhoods import SELF, Neighbourhoods, neighbourhoods, passages_near

torch = pytest.importorskip("torch")
attention, learning, token_attention = (
    pytest.importorskip(f"haybale.context.networks.{name}") for name in ("attention", "learning", "token_attention")
)
pytestmark = pytest.mark.filterwarnings("default")
DIM = 8


def randomised(module: Any, seed: int = 0) -> Any:
    """Set random weights, far from the initial ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def layer_of(heads: int, seed: int, n_relations: int = 3) -> Any:
    return randomised(attention.RelationAttention(DIM, n_relations, heads, 0.5), seed)


def projections(layer: Any) -> list[np.ndarray]:
    return [np.eye(DIM) + p.detach().numpy() for p in (layer.query, layer.key, layer.value, layer.out)]


def dense_attention(layer: Any, h: np.ndarray, edges: list[tuple[int, int, int]]) -> np.ndarray:
    """Compute a layer node by node and head by head in float64."""
    (q, k, v, o), width = projections(layer), DIM // layer.heads
    w, out = layer.weight.detach().numpy().astype(float), np.zeros_like(h)
    for i in range(len(h)):
        mine = [(s, r) for s, t, r in edges if t == i]
        for head in range(layer.heads if mine else 0):
            part = slice(head * width, (head + 1) * width)
            logit = np.array([w[r] + (h[i] @ q[r])[part] @ (h[s] @ k[r])[part] / math.sqrt(width) for s, r in mine])
            alpha = np.exp(logit) / np.exp(logit).sum()
            for a, (s, r) in zip(alpha, mine, strict=True):
                message = np.zeros(DIM)
                message[part] = a * (h[s] @ v[r])[part]
                out[i] += message @ o[r]
    return out


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 4]))
@settings(max_examples=12, deadline=None)
def test_a_layer_equals_dense_attention(seed: int, heads: int) -> None:
    """The order of the edges and the numbering of the nodes do not matter."""
    rng, n = np.random.default_rng(seed), 7
    layer, h = layer_of(heads, seed), rng.normal(size=(n, DIM)).astype(np.float32)
    edges = sorted({(int(s), int(t), int(r)) for s, t, r in rng.integers([n, n - 1, 3], size=(20, 3))})
    expected = dense_attention(layer, h.astype(float), edges)
    assert not expected[n - 1].any(), "a node without neighbours becomes 0"

    def computed(h: np.ndarray, edges: Any) -> np.ndarray:
        source, target, relation = torch.tensor(np.array(edges)).T
        found, alpha = layer(torch.from_numpy(h), torch.from_numpy(h), source, target, relation)
        sums = torch.zeros(n, heads).index_add(0, target, alpha)
        assert torch.allclose(sums[target.unique()], torch.ones(1), atol=1e-6)
        return found.detach().numpy()

    np.testing.assert_allclose(computed(h, edges), expected, atol=2e-5)
    np.testing.assert_allclose(computed(h, rng.permutation(edges)), expected, atol=2e-5)
    new = rng.permutation(n)
    old = np.argsort(new)
    renumbered = [(int(old[s]), int(old[t]), r) for s, t, r in edges]
    np.testing.assert_allclose(computed(h[new], renumbered), expected[new], atol=2e-5)


def test_one_relation_equals_the_transformer_layer_of_torch_geometric() -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    theirs = nn.TransformerConv(DIM, DIM // 2, heads=2, root_weight=False, bias=False)
    ours = layer_of(2, 1, n_relations=1)
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(ours, name)[0] = getattr(theirs, f"lin_{name}").weight.T - torch.eye(DIM)
        ours.out.zero_()
    x, edges = torch.randn(20, DIM), torch.randint(20, (2, 90))
    found, _ = ours(x, x, *edges, torch.zeros(90, dtype=torch.long))
    assert torch.allclose(found, theirs(x, edges), atol=1e-6)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_layer_over_tokens_computes_equation_1_of_the_paper(heads: int) -> None:
    """It weights attention over the tokens of each neighbour by the softmax of w over the neighbours."""
    rng, n, t = np.random.default_rng(0), 5, 4
    layer = randomised(token_attention.TokenAttention(DIM, 3, heads, 0.4))
    values = rng.normal(size=(n, t, DIM)).astype(np.float32)
    there = np.arange(t) < np.array([4, 1, 3, 2, 4])[:, None]
    edges = rng.integers([n, n - 1, 3], size=(9, 3))
    nodes = torch.from_numpy(values)
    found, messages = layer(nodes, nodes, *torch.from_numpy(edges).T, torch.from_numpy(there))
    assert torch.allclose(
        torch.zeros_like(found).index_add(0, torch.from_numpy(edges[:, 1]), messages), found, atol=1e-6
    )
    (q, k, v, o), w, width = projections(layer), layer.weight.detach().numpy(), DIM // heads
    for i in range(n):
        mine, expected = [(s, r) for s, target, r in edges.tolist() if target == i], np.zeros((t, DIM))
        for s, r in mine:
            share = np.exp(w[r]) / sum(np.exp(w[other]) for _, other in mine)
            tokens, heard = values[s][there[s]], np.zeros((t, DIM))
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                logits = (values[i] @ q[r])[:, part] @ (tokens @ k[r])[:, part].T / math.sqrt(width)
                alpha = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
                heard[:, part] = alpha @ (tokens @ v[r])[:, part]
            expected += share * heard @ o[r]
        np.testing.assert_allclose(found[i].detach().numpy(), expected, atol=1e-4)


def test_max_sim() -> None:
    rng = np.random.default_rng(1)
    query, values = torch.from_numpy(rng.normal(size=(4, DIM))), torch.from_numpy(rng.normal(size=(3, 5, DIM)))
    there = torch.arange(5) < torch.tensor([[5], [2], [1]])
    found, place = token_attention.max_sim(query, values, there)
    for i in range(3):
        products = (query @ values[i, there[i]].T).numpy()
        assert float(found[i]) == pytest.approx(products.max(axis=1).sum())
        assert place[i].tolist() == products.argmax(axis=1).tolist()


def network(n_layers: int, *, blind: bool = False, tokens: bool = False) -> Any:
    layer = token_attention.TokenAttention if tokens else attention.RelationAttention
    return randomised(attention.ContextNetwork(DIM, SELF + 1, n_layers, 2, 0.3, blind=blind, layer=layer))


def on_whole_graph(net: Any, graph: DocumentGraph, h: Any, without: int | None, *there: Any) -> Any:
    """Compute all nodes of the graph, after removing the edges out of node ``without``, to others and to itself."""
    n, nodes = graph.n_nodes, np.arange(graph.n_nodes)
    target, source, relation = graph.edges_into(nodes)
    target, source = np.concatenate([target, nodes]), np.concatenate([source, nodes])
    relation = np.concatenate([relation, np.full(n, SELF)])
    kept = source != (-1 if without is None else without)
    first = nodes if without is None else np.append(without, np.delete(nodes, without))
    place, sizes = np.argsort(first), (n,) * (len(net.layers) + 1)
    edges = place[source[kept]], place[target[kept]], relation[kept]
    around = Neighbourhoods(first, first >= graph.n_passages, *edges, sizes, place, int(without is not None))
    return net(h[first], around, *(each[first] for each in there))[0][place]


def of_targets(net: Any, graph: DocumentGraph, h: Any, targets: np.ndarray, *there: Any, **how: Any) -> Any:
    around = neighbourhoods(graph, targets, len(net.layers), **how)
    return net(h[around.nodes], around, *(each[around.nodes] for each in there))[0][around.targets]


@pytest.fixture(scope="module")
def graph() -> DocumentGraph:
    return DocumentGraph.from_collection(structured_collection(3, n_documents=6, n_queries=8))


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("tokens", [False, True])
def test_context_only_attention_removes_the_edges_out_of_the_passage(
    graph: DocumentGraph, n_layers: int, tokens: bool
) -> None:
    """It equals the layers on the whole graph without these edges; other passages still read the passage."""
    net, shape = network(n_layers, tokens=tokens), (graph.n_nodes, 3, DIM) if tokens else (graph.n_nodes, DIM)
    h = torch.randn(shape, generator=torch.manual_seed(1))
    passages, lengths = np.arange(graph.n_passages), torch.randint(1, 4, (graph.n_nodes, 1))
    there = (torch.arange(3) < lengths,) if tokens else ()
    with torch.no_grad():
        found = of_targets(net, graph, h, passages, *there, context_only=True)
        whole = of_targets(net, graph, h, passages, *there)
        assert torch.allclose(whole, on_whole_graph(net, graph, h, None, *there)[: len(passages)], atol=1e-4)
        for passage in passages[::3].tolist():
            assert torch.allclose(found[passage], on_whole_graph(net, graph, h, passage, *there)[passage], atol=1e-4)
        changed = h.clone()
        changed[5] += 100
        again = of_targets(net, graph, changed, passages, *there, context_only=True)
        assert not torch.allclose(again[4], found[4]), "its neighbours read it"


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_a_blind_context_does_not_depend_on_the_passage(graph: DocumentGraph, n_layers: int) -> None:
    """The gradient with respect to the passage is exactly 0; with the content as attention query it is not."""
    for blind in (True, False):
        net = network(n_layers, blind=blind)
        for passage in (0, 7):
            h = torch.randn(graph.n_nodes, DIM, generator=torch.manual_seed(2)).requires_grad_()
            of_targets(net, graph, h, np.array([passage]), context_only=True).square().sum().backward()
            assert (h.grad[passage] == 0).all().item() == blind
            assert h.grad.abs().sum() > 0


def test_a_passage_without_neighbours_has_no_context(graph: DocumentGraph) -> None:
    lonely, edges = replace(graph), graph.edges
    kept = (edges.target != 0) & (edges.source != 0)
    lonely.__dict__["edges"] = type(edges)(*(each[kept] for each in edges))
    h = torch.randn(graph.n_nodes, DIM)
    with torch.no_grad():
        assert not of_targets(network(2), lonely, h, np.array([0]), context_only=True).any()
        assert of_targets(network(2), lonely, h, np.array([0])).any()


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("context_only", [True, False])
def test_masked_links_are_hidden_at_every_layer(n_layers: int, context_only: bool) -> None:
    """The result is that of a graph without the links, and only passages near them change."""
    graph = DocumentGraph.from_collection(structured_collection(8, n_documents=8, n_queries=10))
    own = int(np.argmax([len(graph.cited(d)) + len(graph.citing(d)) for d in range(graph.n_documents)]))
    without = replace(graph, external=graph.external[(graph.doc_of[graph.external] != own).all(axis=1)])
    net, h = network(n_layers), torch.randn(graph.n_nodes, DIM, generator=torch.manual_seed(4))
    passages, mask = np.arange(graph.n_passages), Mask(None, graph.n_documents)
    how: dict[str, Any] = {"context_only": context_only}
    with torch.no_grad():
        visible = of_targets(net, graph, h, passages, **how)
        masked = of_targets(net, graph, h, passages, own=own, mask=mask, **how)
        assert torch.allclose(masked, of_targets(net, without, h, passages, **how), atol=1e-5)
        changed = np.flatnonzero(~torch.isclose(visible, masked, atol=1e-6).all(dim=1).numpy())
        assert len(changed), "the mask hides something"
        assert set(changed) <= set(passages_near(graph, own, n_layers).tolist())
        # Queries from different documents can have the same targets.
        twice, owns = np.tile(passages, 2), np.repeat([own, -1], len(passages))
        both = of_targets(net, graph, h, twice, own=owns, mask=mask, **how)
        assert torch.allclose(both, torch.cat([masked, visible]), atol=1e-5)
    assert {RELATIONS[r] for r in graph.edges.relation.tolist()} == set(RELATIONS)


def test_targets_share_rows_unless_different_links_are_hidden(graph: DocumentGraph) -> None:
    passages, mask = np.array([3, 0, 3, 7]), Mask(None, graph.n_documents)
    shared = neighbourhoods(graph, passages, 2)
    assert len(set(shared.nodes.tolist())) == len(shared.nodes)
    assert shared.nodes[shared.targets].tolist() == passages.tolist()
    of_queries = neighbourhoods(graph, passages, 2, np.array([1, 1, 2, 2]), mask)
    assert of_queries.nodes[of_queries.targets].tolist() == passages.tolist()
    assert np.unique(of_queries.nodes, return_counts=True)[1].max() == 2
    alone = neighbourhoods(graph, passages, 2, context_only=True)
    assert alone.nodes[: len(passages)].tolist() == passages.tolist()


@pytest.mark.parametrize("pairwise", [False, True])
def test_losses_by_hand(pairwise: bool) -> None:
    rng, query = np.random.default_rng(0), np.array([0, 0, 0, 1, 1, 1, 1])
    scores, relevant = rng.normal(size=7), np.array([1, 0, 0, 1, 1, 0, 0], dtype=bool)
    losses = []
    for number in (0, 1):
        mine, positive = scores[query == number], relevant[query == number]
        if pairwise:
            losses.append(np.mean([np.log1p(np.exp(n - p)) for p in mine[positive] for n in mine[~positive]]))
        else:
            losses.append(np.mean(-np.log((np.exp(mine) / np.exp(mine).sum())[positive])))
    found = float(learning.ranking_loss(torch.from_numpy(scores), query, relevant, pairwise=pairwise))
    assert found == pytest.approx(np.mean(losses))
