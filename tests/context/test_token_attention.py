"""Layers over token matrices by loops over tokens, and without what goes out of a passage by surgery on the graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.structured import structured_collection

from haybale.context import DocumentGraph
from haybale.context.neighbourhoods import SELF, neighbourhoods

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")
DIM = 8


def drawn(module: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


@pytest.mark.parametrize("heads", [1, 2])
def test_a_layer_is_the_papers_equation(heads: int) -> None:
    """Token by token: the softmax of w over neighbours, times attention over the tokens that a neighbour has."""
    from haybale.context.networks.token_attention import TokenAttention

    rng, n, t = np.random.default_rng(0), 5, 4
    layer = drawn(TokenAttention(DIM, 3, heads, 0.4))
    values = rng.normal(size=(n, t, DIM)).astype(np.float32)
    there = np.arange(t) < np.array([4, 1, 3, 2, 4])[:, None]
    edges = rng.integers([n, n - 1, 3], size=(9, 3))
    given = torch.from_numpy(values)
    made, messages = layer(given, given, torch.from_numpy(there), *torch.from_numpy(edges).T)
    assert torch.allclose(torch.zeros_like(made).index_add(0, torch.from_numpy(edges[:, 1]), messages), made, atol=1e-6)
    q, k, v, o = (np.eye(DIM) + p.detach().numpy() for p in (layer.query, layer.key, layer.value, layer.out))
    w, width = layer.weight.detach().numpy(), DIM // heads
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
        np.testing.assert_allclose(made[i].detach().numpy(), expected, atol=1e-4)


def test_max_sim() -> None:
    from haybale.context.networks.token_attention import max_sim

    rng = np.random.default_rng(1)
    queries, values = (torch.from_numpy(rng.normal(size=(3, n, DIM))) for n in (4, 5))
    asked, there = torch.tensor([[1, 1, 1, 0]] * 3).bool(), torch.arange(5) < torch.tensor([[5], [2], [1]])
    found, place = max_sim(queries, asked, values, there)
    for i in range(3):
        products = (queries[i, :3] @ values[i, there[i]].T).numpy()
        assert float(found[i]) == pytest.approx(products.max(axis=1).sum())
        assert place[i, :3].tolist() == products.argmax(axis=1).tolist()


@pytest.mark.parametrize("layers", [1, 2])
def test_context_only_attention_is_surgery_on_the_graph(layers: int) -> None:
    from haybale.context.networks.token_attention import TokenNetwork

    graph = DocumentGraph.from_collection(structured_collection(3, n_documents=4, n_queries=4))
    net, nodes = drawn(TokenNetwork(DIM, SELF + 1, layers, 2)), np.arange(graph.n_nodes)
    values = torch.randn(graph.n_nodes, 3, DIM, generator=torch.manual_seed(0))
    there = torch.arange(3) < torch.randint(1, 4, (graph.n_nodes, 1), generator=torch.manual_seed(1))
    passages = np.arange(graph.n_passages)
    found = neighbourhoods(graph, passages, layers, context_only=True)
    edges = [torch.from_numpy(each) for each in (found.source, found.target, found.relation)]
    target, source, relation = graph.edges_into(nodes)
    target, source = np.concatenate([target, nodes]), np.concatenate([source, nodes])
    relation = np.concatenate([relation, np.full(len(nodes), SELF)])
    with torch.no_grad():
        made = net(values[found.nodes], there[found.nodes], *edges, len(passages))[0]
        for passage in passages[::4].tolist():
            kept = source != passage
            order = np.array([passage, *np.delete(nodes, passage)])
            place = np.argsort(order)
            cut = (torch.from_numpy(each[kept]) for each in (place[source], place[target], relation))
            whole = net(values[order], there[order], *cut, 1)[0]
            assert torch.allclose(made[passage], whole[0], atol=1e-4)
