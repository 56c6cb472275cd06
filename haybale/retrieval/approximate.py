"""Approximate search as an option: an index that looks at a part of the passages, and scores what it finds exactly.

``"ivf"``: inverted lists of k-means cells, the nearest of which are read (Jégou, Douze & Schmid 2011, §IV; faiss).
``"cagra"``: a graph that is walked on a CUDA device (Ootomo et al. 2024; cuVS 26.x).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from haybale.device import Device, device_of, find_device
from haybale.errors import InputError, UnknownNameError
from haybale.extras import require
from haybale.retrieval.exact.cuvs_brute_force import missing_cuvs
from haybale.retrieval.exact.half import scaled
from haybale.retrieval.hits import Ints
from haybale.retrieval.index import PassageIndex
from haybale.retrieval.passages import Exclude
from haybale.vectors import Matrix, row_tiles

METHODS = {"ivf": "cpu", "cagra": "cuda"}  # where each runs


class ApproximateIndex(PassageIndex):
    """A :class:`PassageIndex` whose candidates come from an approximate search.

    What is approximate is only which passages are candidates: their scores are exact and their order is total, as in a
    PassageIndex, whose place it can take anywhere. A row may have fewer than k hits, where the part that was looked at
    holds fewer. :meth:`recall` measures what is missed.

    Parameters are those of PassageIndex (sparse vectors are refused; ``backend`` is that of the exact search which
    :meth:`recall` compares with), and ``method``: ``"ivf"`` for vectors on the CPU, with ``n_lists``, the cells
    (default: 2√n), ``n_probes``, the cells read for a query (default: a 16th of them, at least 8), and
    ``random_state``, the seed of k-means; or ``"cagra"`` on a CUDA device, with ``graph_degree``, edges of a passage
    (cuVS seeds it itself).
    The lists hold the vectors once more, as float32; CAGRA holds a graph beside them.

    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(400, 8)).astype(np.float32)
    >>> index = ApproximateIndex(vectors, n_lists=10, n_probes=10)
    >>> index.recall(vectors[:50], k=10)
    1.0
    """

    def __init__(
        self,
        vectors: Matrix,
        doc_offsets: Ints | None = None,
        *,
        method: str = "ivf",
        n_lists: int | None = None,
        n_probes: int | None = None,
        graph_degree: int = 64,
        random_state: int = 0,
        device: str | Device | None = None,
        **settings: Any,
    ) -> None:
        if method not in METHODS:
            raise UnknownNameError("approximate method", method, METHODS)
        if sparse.issparse(vectors):
            raise InputError("an approximate index takes dense vectors, found a sparse matrix")
        there = device_of(vectors) if device is None else find_device(device)
        if METHODS[method] != there.kind:
            raise InputError(
                f"approximate method {method!r} runs on {METHODS[method]}, and the passages are on {there}"
            )
        super().__init__(vectors, doc_offsets, device=there, **settings)
        n = len(self)
        self.method = method
        self.n_lists = min(n, math.isqrt(4 * n)) if n_lists is None else n_lists
        self.n_probes = min(self.n_lists, max(8, self.n_lists // 16)) if n_probes is None else n_probes
        self.graph_degree, self.random_state = graph_degree, random_state
        if method == "ivf":
            if not 1 <= self.n_probes <= self.n_lists <= n:
                raise InputError(
                    f"expected 1 <= n_probes <= n_lists <= the number of passages, {n}; "
                    f"found {self.n_probes} probes of {self.n_lists} lists"
                )
            self._lists = _ivf(self.vectors, self.n_lists, self.n_probes, random_state)
        else:
            error = missing_cuvs()
            if error is not None:
                raise error
            with self.device.current():
                self._graph = _cagra(self.vectors, graph_degree)

    def __repr__(self) -> str:
        how = (
            f"ivf, {self.n_probes} of {self.n_lists} lists"
            if self.method == "ivf"
            else f"cagra, {self.graph_degree} edges"
        )
        return f"{super().__repr__()}; approximate: {how}"

    def recall(
        self,
        queries: Matrix,
        k: int,
        *,
        exclude: Exclude | None = None,
        sample: int | None = None,
        random_state: int = 0,
    ) -> float:
        """The share of the exact search's k best passages that this index finds, over all queries; NaN without any.

        ``queries`` (m, d); ``sample`` (None: all) draws so many of them, as ``random_state`` says.
        """
        if sample is not None and sample < 1:
            raise InputError(f"sample must be at least 1, or None for all queries, found {sample}")
        queries = queries if hasattr(queries, "shape") else np.asarray(queries, dtype=np.float32)
        if sample is not None and sample < len(queries):
            rows = np.sort(np.random.default_rng(random_state).choice(len(queries), sample, replace=False))
            own = self.excluded(exclude, len(queries))[rows]
            queries, exclude = queries[rows], own
        found = self.search(queries, k, exclude=exclude).to_numpy()
        exact = self._searched(queries, k, exclude, super()._search_batch).to_numpy()
        here, wanted = (set(zip(*(part.tolist() for part in hits.flat()[::2]), strict=True)) for hits in (found, exact))
        return len(here & wanted) / len(wanted) if wanted else math.nan

    def _search_batch(self, queries: Matrix, k: int, own: Ints) -> tuple[Any, Any]:
        depth = min(len(self), self._exact_search.depth(k, own))
        found = self._found_in_lists(queries, depth) if self.method == "ivf" else self._found_in_graph(queries, depth)
        return self._exact_search.settled(queries, k, own, found)

    def _found_in_lists(self, queries: Any, depth: int) -> Any:
        _, found = self._lists.search(queries, depth)
        return found

    def _found_in_graph(self, queries: Any, depth: int) -> Any:
        cagra = require("cuvs.neighbors.cagra", "gpu")
        if self.vectors.dtype == np.float16:
            queries = scaled(queries)[0].astype(np.float16)
        xp = self.device.xp
        found = xp.empty((len(queries), depth), dtype=np.uint32)
        with self.device.current() as current:
            current.synchronize()  # cuVS computes on a stream of its own, which must find the queries made
            # It keeps so many candidates while it walks, a multiple of 32 and no fewer than are asked for.
            parameters = cagra.SearchParams(itopk_size=max(64, -(-depth // 32) * 32))
            scores = xp.empty((len(queries), depth), dtype=np.float32)
            cagra.search(parameters, self._graph, queries, depth, neighbors=found, distances=scores)
            current.synchronize()
        found = found.astype(np.int64)
        return xp.where(found < len(self), found, -1)  # places that were not filled hold the largest number


def _ivf(vectors: Any, n_lists: int, n_probes: int, seed: int) -> Any:
    faiss = require("faiss")
    width = int(vectors.shape[1])
    quantizer = faiss.IndexFlatIP(width)
    lists = faiss.IndexIVFFlat(quantizer, width, n_lists, faiss.METRIC_INNER_PRODUCT)
    lists.cp.seed = seed
    lists.cp.min_points_per_centroid = 1  # or it prints a warning for a small collection
    most = n_lists * lists.cp.max_points_per_centroid
    if len(vectors) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(vectors), most, replace=False))
        lists.train(vectors[rows].astype(np.float32, copy=False))
    else:
        lists.train(vectors.astype(np.float32, copy=False))
    for start, end in row_tiles(vectors):
        lists.add(vectors[start:end].astype(np.float32, copy=False))
    lists.nprobe = n_probes
    return lists


def _cagra(vectors: Any, degree: int) -> Any:
    cagra = require("cuvs.neighbors.cagra", "gpu")
    # Twice the degree is what cuVS itself starts from (64 of 128).
    parameters = cagra.IndexParams(metric="inner_product", graph_degree=degree, intermediate_graph_degree=2 * degree)
    return cagra.build(parameters, vectors)
