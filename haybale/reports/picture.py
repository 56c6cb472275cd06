"""The section of a report that maps queries and passages to a plane, like figure 1a of Bönisch & Mehler 2024.

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR Ensembles",
2024; van der Maaten & Hinton, "Visualizing Data using t-SNE", JMLR 9, 2008.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, to_device, to_numpy
from haybale.drawing import COLOURS
from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.reports.charts import SOFT, scatter_chart
from haybale.reports.study import Study
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.timing import timed
from haybale.vectors import Matrix

QUERIES, NEIGHBOURS, OTHERS = 40, 20, 600  # the largest numbers of queries, of hits of a query, of other passages
RELEVANT = 3  # the largest number of relevant documents of a query that are drawn
HIGHLIGHTED = 6  # coloured queries
MIN_POINTS = 10  # queries and passages
REDUCED = 50  # dimensions before t-SNE, as van der Maaten & Hinton recommend


def picture_section(study: Study, engine: Engine) -> dict[str, Any]:
    """Draw up to 40 random queries with their 20 nearest and their relevant passages, among 600 other passages."""
    rng = np.random.default_rng(0)
    ids = sorted(study.relevant)
    queries = [ids[i] for i in sorted(rng.choice(len(ids), size=min(QUERIES, len(ids)), replace=False).tolist())]
    numbers = engine.collection.query_numbers(queries)
    index = engine.passages
    query_vectors = encode_queries(engine.encoder, engine.collection.queries.texts(numbers))
    own_documents = engine.collection.queries.own[numbers]
    hits = index.search(query_vectors, min(NEIGHBOURS, len(index)), exclude=own_documents).to_numpy()
    near = [row[row != NO_PASSAGE] for row in hits.passages]
    best = [_best_passages(study, engine, query, query_vectors[i : i + 1]) for i, query in enumerate(queries)]
    relevant = [passages for passages, _ in best]
    others = rng.choice(len(index), size=min(OTHERS, len(index)), replace=False)
    passages: Ints = np.unique(np.concatenate([others, *near, *relevant]).astype(np.int64))
    n = len(passages)  # in the picture, row n and the following ones are queries
    if n + len(queries) < MIN_POINTS:
        return {"absent": f"The collection has too few passages. The picture needs {MIN_POINTS} points."}
    with timed("t-SNE"):
        vectors: Matrix = index.vectors
        places = _project(to_numpy(vectors[to_device(passages, device_of(vectors))]), query_vectors)
    # Colour queries at equal steps of their similarity to their nearest relevant passage.
    order = sorted((i for i in range(len(queries)) if len(relevant[i])), key=lambda i: (-best[i][1], queries[i]))
    spread: Any = np.unique(np.linspace(0, len(order) - 1, HIGHLIGHTED).round().astype(int)) if order else []
    colours = {order[step]: COLOURS[number] for number, step in enumerate(spread)}
    rows_near, rows_relevant = ([np.searchsorted(passages, part) for part in parts] for parts in (near, relevant))
    drawn = [*(i for i in range(len(queries)) if i not in colours), *colours]  # draw the coloured queries last
    look = dict.fromkeys(range(n), ("other", SOFT))  # later kinds overwrite earlier ones
    rows_of_queries = np.arange(n, len(places))[:, None]
    for kind, parts in (("near", rows_near), ("relevant", rows_relevant), ("query", rows_of_queries)):
        for i in drawn:
            look |= dict.fromkeys(parts[i].tolist(), (kind, colours.get(i, SOFT)))
    names = index.passage_ids.take(passages).to_pylist()
    names += [f"query {query}: {' '.join(study.query_text(query).split())[:90]}" for query in queries]
    points: dict[str, list[tuple[int, str, str]]] = {"other": [], "near": [], "relevant": [], "query": []}
    for row in sorted(look, key=lambda row: look[row][1] != SOFT):
        points[look[row][0]].append((row, look[row][1], names[row]))
    joins = [(n + i, row, colours.get(i, SOFT)) for i in drawn for row in rows_relevant[i]]
    label = f"{len(queries)} queries among {n} passages, by t-SNE"
    return {
        "chart": scatter_chart(places, {kind: marks for kind, marks in points.items() if marks}, joins, label),
        "n_queries": len(queries),
        "n_near": max(map(len, near)),
        "n_found": sum(int(np.isin(*pair).sum()) for pair in zip(relevant, near, strict=True)),
        "n_relevant": sum(map(len, relevant)),
        "highlighted": [(f"s{COLOURS.index(colour)}", queries[i]) for i, colour in colours.items()],
    }


def _best_passages(study: Study, engine: Engine, query: str, vector: Matrix) -> tuple[Ints, float]:
    """Return the nearest passages of the three nearest relevant documents, and the similarity of the first one."""
    offsets = engine.passages.doc_offsets
    nearest: list[tuple[float, int]] = []
    for document in engine.collection.document_numbers(study.relevant[query]).tolist():
        if offsets[document] < offsets[document + 1]:
            products = to_numpy(engine.passages.similarities(vector, document))[0]
            nearest.append((-float(products.max()), int(offsets[document] + products.argmax())))
    nearest.sort()
    return np.array([passage for _, passage in nearest[:RELEVANT]], dtype=np.int64), -nearest[0][0] if nearest else 0.0


def _project(passages: Matrix, queries: Matrix) -> NDArray[np.float64]:
    """Map vectors, dense or CSR, to the plane (n, 2) by t-SNE of their first 50 principal components."""
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.manifold import TSNE

    reduce: Any = TruncatedSVD if sparse.issparse(passages) else PCA
    vectors: Any = (sparse.vstack if sparse.issparse(passages) else np.concatenate)([passages, queries])
    n, d = vectors.shape
    with np.errstate(divide="ignore", invalid="ignore"):  # equal vectors have no variance to explain
        reduced = reduce(min(REDUCED, n - 1, d), random_state=0).fit_transform(vectors.astype(np.float32))
    init = "pca" if reduced[:, 0].std() > 0 else "random"  # equal vectors have equal components
    tsne = TSNE(init=init, perplexity=min(30.0, (n - 1) / 3), random_state=0, n_jobs=1)
    places: NDArray[np.float64] = tsne.fit_transform(reduced).astype(np.float64)
    return places
