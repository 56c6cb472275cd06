"""What graphs cost as they grow: building, relation paths and one layer of attention, and a graph of ten million edges.

    python benchmarks/bench_graph_cost.py [--results benchmarks/results] [--passages 3000000] [--edges 10000000]
    python benchmarks/bench_graph_cost.py --peer

``--peer``: the layer beside PyTorch Geometric's TransformerConv by turns, on a graph of one relation, at equal numbers.

Random collections of documents of 40 passages in 20 sections, two links a document; vectors of 64 dimensions. Each size
runs in a process of its own; a line through the last two says what more would take.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from provenance import options, peak_memory, provenance, table, write_page

from haybale.collections.collection import Ints
from haybale.context import DocumentGraph, RelationPaths
from haybale.context.neighbourhoods import SELF

SIZES = (30_000, 100_000, 300_000)
PER_DOCUMENT, SECTIONS, LINKS, DIM, CHUNK = 40, 20, 2, 64, 20_000
PEER_SIZES = ((2_000, 20_000), (20_000, 200_000), (50_000, 150_000))  # nodes and edges
PARTS = ("forward", "with gradient")
COLUMNS = ("passages", "edges", "build", "edges sorted", "ten paths, one query", "layer, all nodes", "peak GiB")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--passages", type=int, default=3_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--one", type=int, help="measure this many passages, here, and print them as JSON")
    parser.add_argument("--peer", action="store_true", help="only the layer, beside PyTorch Geometric's")
    a = parser.parse_args()
    if a.peer:
        write_page(Path(a.results) / "graph-peer.md", beside_peer())
        return
    if a.one:
        print(json.dumps(measured(a.one)))
        return
    # Of a passage and its sections: order, structural twice, links, with their inverses.
    per_passage = 2 * ((PER_DOCUMENT - 1) + PER_DOCUMENT + (SECTIONS - 1) + LINKS) / PER_DOCUMENT
    large = int(a.edges / per_passage) // PER_DOCUMENT * PER_DOCUMENT
    rows = []
    for n in (*SIZES, large):
        command = [sys.executable, __file__, "--one", str(n)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1], flush=True)
    about = f"vectors of {DIM} dimensions. A query asks about the passages of 500 documents."
    lines = ["# What graphs cost as they grow", "", f"Seconds of a processor, one thread; {about}"]
    lines += table("|".join(COLUMNS), [[row[name] for name in COLUMNS] for row in rows], 0)
    before, last = rows[-2:]
    far = (a.passages - before["passages"]) / (last["passages"] - before["passages"])
    told = [[name, before[name] + far * (last[name] - before[name])] for name in COLUMNS[1:]]
    lines += ["", f"By a line through the last two, {a.passages:,} passages:", *table("what|there", told)]
    lines += ["", provenance("python benchmarks/bench_graph_cost.py")]
    write_page(Path(a.results) / "graph-cost.md", lines)


def beside_peer(rounds: int = 7) -> list[str]:
    """The page about one layer and TransformerConv, both with four heads, no bias and nothing of the node itself."""
    import torch
    from torch_geometric.nn import TransformerConv

    from haybale.context.networks.attention import RelationAttention

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for n, n_edges in PEER_SIZES:
        theirs = TransformerConv(DIM, DIM // 4, heads=4, root_weight=False, bias=False)
        ours = RelationAttention(DIM, 1, 4)
        with torch.no_grad():
            for name in ("query", "key", "value"):
                getattr(ours, name)[0] = getattr(theirs, f"lin_{name}").weight.T - torch.eye(DIM)
        x, edges = torch.randn(n, DIM), torch.randint(n, (2, n_edges))
        edges = edges[:, torch.argsort(edges[1])]
        relation = torch.zeros(n_edges, dtype=torch.long)
        layers = {
            "ours": partial(lambda layer, e, r, x: layer(x, x, *e, r)[0], ours, edges, relation),
            "theirs": partial(lambda layer, e, x: layer(x, e), theirs, edges),
        }
        found = {name: layer(x) for name, layer in layers.items()}
        difference = float((found["ours"] - found["theirs"]).abs().max())
        taken: dict[str, list[float]] = {f"{name} {what}": [] for name, what in product(layers, PARTS)}
        for _ in range(rounds + 1):  # the first warms up
            for name, layer in layers.items():
                with torch.no_grad():
                    start = time.process_time()
                    layer(x)
                    taken[f"{name} forward"].append(time.process_time() - start)
                start = time.process_time()
                layer(x).square().sum().backward()
                taken[f"{name} with gradient"].append(time.process_time() - start)
        for what in PARTS:
            mine, other = (np.array(taken[f"{name} {what}"][1:]) for name in layers)
            rows.append([f"{n:,}", f"{n_edges:,}", what, np.median(mine), np.median(other), np.median(mine / other)])
            rows[-1].append(difference)
    lines = ["# The layer of graph attention beside PyTorch Geometric's", ""]
    lines += ["Processor seconds on one thread, medians of rounds by turns; one relation, 64 dimensions, four heads."]
    lines += table("nodes|edges|what|ours|`TransformerConv`|ratio|largest difference", rows)
    return [*lines, "", provenance("python benchmarks/bench_graph_cost.py --peer", more=("torch", "torch_geometric"))]


def random_graph(n: int) -> DocumentGraph:
    """Documents of one root and sections below it, over which the passages are spread; links to any documents."""
    rng, n_d = np.random.default_rng(0), n // PER_DOCUMENT
    sections = SECTIONS * np.arange(n_d)[:, None] + np.arange(SECTIONS)
    parent = np.where(np.arange(SECTIONS) == 0, -1, n + sections[:, :1]).ravel()
    of = np.sort(rng.integers(SECTIONS, size=(n_d, PER_DOCUMENT)), axis=1)
    citing: Ints = rng.integers(n, size=LINKS * n_d)
    return DocumentGraph(
        n_passages=n,
        doc_offsets=np.arange(0, n + 1, PER_DOCUMENT),
        titles=["a title"] * (n_d * SECTIONS),
        section_of=(n + np.take_along_axis(sections, of, axis=1)).ravel(),
        parent=parent,
        root=n + sections[:, 0],
        doc_of=np.concatenate([np.repeat(np.arange(n_d), PER_DOCUMENT), np.repeat(np.arange(n_d), SECTIONS)]),
        internal=np.empty((0, 2), dtype=np.int64),
        external=np.stack([citing, n + sections[rng.integers(n_d, size=len(citing)), 0]], axis=1),
        n_self_links=0,
    )


def measured(n: int) -> dict[str, float]:
    """Seconds of each part for n passages."""
    import torch

    from haybale.context.networks.attention import RelationAttention

    torch.set_num_threads(1)
    found: dict[str, float] = {"passages": n}
    start = time.process_time()

    def lap(name: str) -> None:
        nonlocal start
        found[name] = time.process_time() - start
        start = time.process_time()

    graph = random_graph(n)
    _ = graph.levels, graph.document_links
    lap("build")
    found["edges"] = len(graph.edges.source)
    lap("edges sorted")
    paths, scores = RelationPaths(graph), np.random.default_rng(1).random(graph.n_nodes).astype(np.float32)
    some = np.arange(min(n, PER_DOCUMENT * 500))  # the passages of 500 documents
    paths.means(scores, some[:40])  # what is made once
    start = time.process_time()
    paths.means(scores, some)
    lap("ten paths, one query")
    values = torch.randn(graph.n_nodes, DIM)
    layer = RelationAttention(DIM, SELF + 1, 4).eval()
    out = torch.empty_like(values)
    start = time.process_time()
    with torch.no_grad():
        for first in range(0, graph.n_nodes, CHUNK):
            nodes = np.arange(first, min(first + CHUNK, graph.n_nodes))
            place, source, relation = graph.edges_into(nodes)
            target = np.concatenate([place, np.arange(len(nodes))])
            source, relation = np.concatenate([source, nodes]), np.concatenate([relation, np.full(len(nodes), SELF)])
            edges = (torch.from_numpy(each) for each in (source, target, relation))
            out[first : first + len(nodes)] = layer(values[first : first + len(nodes)], values, *edges)[0]
    lap("layer, all nodes")
    found["peak GiB"] = peak_memory() / 2**30
    return found


if __name__ == "__main__":
    main()
