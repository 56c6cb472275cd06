"""The picture of queries amid passages, after figure 1a of Bönisch & Mehler 2024.

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR Ensembles",
2024; van der Maaten & Hinton, "Visualizing Data using t-SNE", JMLR 9, 2008; McInnes, Healy & Melville, "UMAP", 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.manifold import TSNE

from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.errors import UnknownNameError
from haybale.extras import require
from haybale.reports.charts import SERIES, SOFT, Points, scatter_chart
from haybale.reports.study import Study
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.stages import stage
from haybale.vectors import Matrix

NAMES = {"tsne": "t-SNE", "umap": "UMAP", "none": "none"}
QUERIES, NEIGHBOURS, OTHERS = 40, 20, 600
OPEN = 3  # relevant documents of a query at most
HIGHLIGHTED = 6  # queries in colour
FEWEST = 10  # points of which a picture can be made
REDUCED = 50  # dimensions to which vectors are reduced first, as van der Maaten & Hinton do


def check_picture(name: str) -> None:
    """Refuse an unknown picture, and UMAP where it is not installed."""
    if name not in NAMES:
        raise UnknownNameError("picture", name, NAMES)
    if name == "umap":
        require("umap", "umap")


def picture_section(study: Study, engine: Engine | None, method: str, random_state: int) -> dict[str, Any]:
    """Up to 40 measured queries by chance, 20 passages each, their relevant ones, and 600 others, in the plane."""
    if engine is None:
        return {"absent": "The picture needs vectors; --encoder tfidf or a store would bring them."}
    if method == "none":
        return {"absent": "Left out; --picture tsne would bring it."}
    rng = np.random.default_rng(random_state)
    ids = sorted(study.query_ids)
    chosen = sorted(rng.choice(len(ids), size=min(QUERIES, len(ids)), replace=False).tolist())
    queries = [ids[place] for place in chosen]
    numbers = engine.collection.query_numbers(queries)
    index = engine.passages
    asked = encode_queries(engine.encoder, engine.collection.queries.texts(numbers))
    own = engine.collection.queries.own[numbers]
    hits = index.search(asked, min(NEIGHBOURS, len(index)), exclude=own).to_numpy()
    near = [row[row != NO_PASSAGE] for row in hits.passages]
    best = [_best_passages(study, engine, query, asked[i : i + 1]) for i, query in enumerate(queries)]
    relevant = [passages for passages, _ in best]
    used = np.unique(np.concatenate([*near, *relevant]).astype(np.int64))
    others = rng.choice(len(index), size=min(OTHERS, len(index)), replace=False)
    passages = np.concatenate([np.setdiff1d(others, used), used])  # rows of the picture; after them the queries
    if len(passages) + len(queries) < FEWEST:
        return {"absent": f"The collection has too few passages; a picture needs {FEWEST} points."}
    row = {int(passage): place for place, passage in enumerate(passages)}
    near_rows, relevant_rows = ([[row[int(each)] for each in part] for part in parts] for parts in (near, relevant))
    with stage(NAMES[method]):
        places = in_plane(_stacked(index.vectors[passages], asked), method, random_state)
    # In colour: queries from the one nearest to a relevant passage to the one farthest from all of its own.
    order = sorted((i for i, rows in enumerate(relevant_rows) if rows), key=lambda i: (-best[i][1], queries[i]))
    spread: Any = np.unique(np.linspace(0, len(order) - 1, HIGHLIGHTED).round().astype(int)) if order else []
    colours = {order[place]: SERIES[number] for number, place in enumerate(spread)}
    names = [str(name) for name in index.passage_ids.take(passages).to_pylist()]
    names += [f"query {query}: {' '.join(study.query_text(query).split())[:90]}" for query in queries]
    groups, joins = _points(names, len(passages), near_rows, relevant_rows, colours)
    label = f"{len(queries)} queries amid {len(passages)} passages, by {NAMES[method]}"
    return {
        "method": NAMES[method],
        "chart": scatter_chart(places, groups, joins, label),
        "n_queries": len(queries),
        "n_near": max(map(len, near)),
        "n_found": sum(int(np.isin(*pair).sum()) for pair in zip(relevant, near, strict=True)),
        "n_relevant": sum(map(len, relevant)),
        "highlighted": [(f"s{SERIES.index(colour)}", queries[i]) for i, colour in colours.items()],
    }


def _best_passages(study: Study, engine: Engine, query: str, vector: Matrix) -> tuple[Ints, float]:
    """Of each relevant document (the three nearest) the passage nearest to the query; and how near the nearest is."""
    offsets = engine.passages.doc_offsets
    found: list[tuple[float, int]] = []
    for document in engine.collection.document_numbers(study.relevant[query]).tolist():
        if offsets[document] < offsets[document + 1]:
            products = np.asarray(engine.passages.similarities(vector, document))[0]
            found.append((-float(products.max()), int(offsets[document] + products.argmax())))
    found.sort()
    return np.array([passage for _, passage in found[:OPEN]], dtype=np.int64), -found[0][0] if found else 0.0


def _stacked(passages: Any, queries: Any) -> Matrix:
    if sparse.issparse(passages):
        return sparse.vstack([passages, queries], format="csr")
    return np.concatenate([passages, queries]).astype(np.float32)


def in_plane(vectors: Matrix, method: str, random_state: int) -> NDArray[np.float64]:
    """(n, d) vectors, dense or CSR, to (n, 2), by ``"tsne"`` or ``"umap"``, over their first 50 dimensions."""
    n, d = vectors.shape
    width = min(REDUCED, n - 1, d - 1)
    if sparse.issparse(vectors):
        reduced = TruncatedSVD(width, random_state=random_state).fit_transform(vectors)
    elif d > REDUCED:
        reduced = PCA(width, random_state=random_state).fit_transform(vectors)
    else:
        reduced = np.asarray(vectors)
    plane: Any
    if method == "umap":
        plane = require("umap", "umap").UMAP(n_neighbors=min(15, n - 1), random_state=random_state, n_jobs=1)
    else:
        plane = TSNE(init="pca", perplexity=min(30.0, (n - 1) / 3), random_state=random_state, n_jobs=1)
    return np.asarray(plane.fit_transform(np.ascontiguousarray(reduced, dtype=np.float32)), dtype=np.float64)


def _points(
    names: list[str], n: int, near: list[list[int]], relevant: list[list[int]], colours: dict[int, str]
) -> tuple[list[Points], list[tuple[int, int, str]]]:
    """Passages (the first ``n`` names) and queries as points, the telling ones on top; lines to relevant passages."""
    look: dict[int, tuple[str, float, float, str]] = dict.fromkeys(range(n), ("o", 4, 0.3, SOFT))
    order = [i for i in range(len(near)) if i not in colours] + list(colours)  # the highlighted are drawn over others
    for i in order:
        look |= dict.fromkeys(near[i], ("o", 16, 0.6, colours[i]) if i in colours else ("o", 9, 0.6, SOFT))
    for i in order:  # relevant to one query, a passage may be near to another
        look |= dict.fromkeys(relevant[i], ("D", 45, 0.9, colours[i]) if i in colours else ("D", 20, 0.9, SOFT))
        look[n + i] = ("x", 70, 1.0, colours[i]) if i in colours else ("x", 20, 1.0, SOFT)
    groups = []
    kinds = {each[:3] for each in look.values()}
    for marker, size, alpha in sorted(kinds, key=lambda kind: ("oDx".index(kind[0]), kind)):
        rows = [row for row, each in look.items() if each[:3] == (marker, size, alpha)]
        groups.append(Points(marker, size, alpha, rows, [look[row][3] for row in rows], [names[row] for row in rows]))
    joins = [(n + i, row, colours.get(i, SOFT)) for i in order for row in relevant[i]]
    return groups, joins
