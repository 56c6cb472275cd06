"""What graphs cost as they grow: building, relation paths and one layer of attention, up to ten million edges.

    python benchmarks/bench_graph_cost.py [--results benchmarks/results]
    python benchmarks/bench_graph_cost.py --peer

``--peer`` compares the layer with PyTorch Geometric's TransformerConv, on a graph of one relation, at equal numbers.

The graphs are random: documents of 40 passages in 20 sections, two links a document; vectors have 64 dimensions. Each
size is measured in a process of its own; a line through the last two sizes extrapolates to three million passages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, peak_memory, provenance, table, write_page

from haybale.collections.collection import Ints
from haybale.context import DocumentGraph, RelationPaths
from haybale.context.neighbourhoods import SELF

SIZES, FAR = (30_000, 100_000, 300_000, 2_000_000), 3_000_000  # passages
PER_DOCUMENT, SECTIONS, LINKS, DIM, CHUNK = 40, 20, 2, 64, 20_000
PEER_SIZES, ROUNDS = ((2_000, 20_000), (20_000, 200_000), (50_000, 150_000)), 7  # nodes and edges
COLUMNS = ("passages", "edges", "build", "edges sorted", "ten paths, one query", "layer, all nodes", "peak GiB")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--one", type=int, help="measure this many passages, here, and print them as JSON")
    parser.add_argument("--peer", action="store_true", help="only the layer, beside PyTorch Geometric's")
    a = parser.parse_args()
    if a.peer:
        write_page(Path(a.results) / "graph-peer.md", beside_peer())
        return
    if a.one:
        print(json.dumps(measured(a.one)))
        return
    rows = []
    for n in SIZES:
        command = [sys.executable, __file__, "--one", str(n)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1], flush=True)
    about = f"vectors of {DIM} dimensions. A query asks about the passages of 500 documents."
    lines = ["# What graphs cost as they grow", "", f"Seconds of a processor, one thread; {about}"]
    lines += table("|".join(COLUMNS), [[row[name] for name in COLUMNS] for row in rows], 0)
    before, last = rows[-2:]
    far = (FAR - before["passages"]) / (last["passages"] - before["passages"])
    line = [[name, before[name] + far * (last[name] - before[name])] for name in COLUMNS[1:]]
    lines += ["", f"By a line through the last two, {FAR:,} passages:", *table("what|there", line)]
    lines += ["", provenance("python benchmarks/bench_graph_cost.py")]
    write_page(Path(a.results) / "graph-cost.md", lines)


def seconds(work: Callable[..., Any], *args: Any) -> float:
    """Return the processor seconds of a call."""
    start = time.process_time()
    work(*args)
    return time.process_time() - start


def beside_peer() -> list[str]:
    """Return the page about one layer and TransformerConv, with four heads, no bias and no edge of a node to itself."""
    import torch
    from torch_geometric.nn import TransformerConv

    from haybale.context.networks.attention import RelationAttention

    def gradient(layer: Any, *args: Any) -> None:
        found = layer(*args)
        (found[0] if isinstance(found, tuple) else found).square().sum().backward()

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
        calls = (ours, x, x, *edges, torch.zeros(n_edges, dtype=torch.long)), (theirs, x, edges)
        difference = float((ours(*calls[0][1:])[0] - theirs(x, edges)).abs().max())
        for what in ("forward", "with gradient"):
            taken = []
            for _ in range(ROUNDS + 1):  # by turns; the first round warms up
                with torch.set_grad_enabled(what != "forward"):
                    works = [call if what == "forward" else (gradient, *call) for call in calls]
                    taken.append([seconds(*work) for work in works])
            mine, other = np.array(taken[1:]).T
            medians = np.median(mine), np.median(other), np.median(mine / other)
            rows.append([f"{n:,}", f"{n_edges:,}", what, *map(float, medians), difference])
    lines = ["# The layer of graph attention beside PyTorch Geometric's", ""]
    lines += ["Processor seconds on one thread, medians of rounds by turns; one relation, 64 dimensions, four heads."]
    lines += table("nodes|edges|what|ours|`TransformerConv`|ratio|largest difference", rows)
    return [*lines, "", provenance("python benchmarks/bench_graph_cost.py --peer", more=("torch", "torch_geometric"))]


def random_graph(n: int) -> DocumentGraph:
    """Return documents with a root and sections below it, over which the passages are spread; links lead anywhere."""
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
    """Return the seconds of each part for n passages."""
    import torch

    from haybale.context.networks.attention import RelationAttention

    torch.set_num_threads(1)
    graph = random_graph(n)
    found: dict[str, float] = {"passages": n, "build": seconds(lambda: (random_graph(n).levels, graph.document_links))}
    found["edges sorted"] = seconds(lambda: graph.edges)
    found["edges"] = len(graph.edges.source)
    paths, scores = RelationPaths(graph), np.random.default_rng(1).random(graph.n_nodes).astype(np.float32)
    some = np.arange(min(n, PER_DOCUMENT * 500))  # the passages of 500 documents
    paths.means(scores, some[:40])  # makes what is made once
    found["ten paths, one query"] = seconds(lambda: paths.means(scores, some))
    values, layer = torch.randn(graph.n_nodes, DIM), RelationAttention(DIM, SELF + 1, 4).eval()
    out = torch.empty_like(values)

    @torch.no_grad()
    def all_nodes() -> None:
        for first in range(0, graph.n_nodes, CHUNK):
            nodes = np.arange(first, min(first + CHUNK, graph.n_nodes))
            place, source, relation = graph.edges_into(nodes)
            target = np.concatenate([place, np.arange(len(nodes))])
            source, relation = np.concatenate([source, nodes]), np.concatenate([relation, np.full(len(nodes), SELF)])
            edges = (torch.from_numpy(each) for each in (source, target, relation))
            out[first : first + len(nodes)] = layer(values[first : first + len(nodes)], values, *edges)[0]

    found["layer, all nodes"] = seconds(all_nodes)
    found["peak GiB"] = peak_memory() / 2**30
    return found


if __name__ == "__main__":
    main()
