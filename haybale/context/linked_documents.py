"""The ranker ``linked-documents``: random walks along links from the first documents of another ranker."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from haybale.collections.collection import Ints, ragged_take
from haybale.context.candidates import Scores
from haybale.context.document_graph import DocumentGraph
from haybale.context.engine_graph import graph_of
from haybale.context.masks import MASKS, hidden_links, relevant_by_own
from haybale.engine import Engine
from haybale.parameters import COUNT, SHARE, one_of
from haybale.rankers import Explanation, QueryBatch, Ranker, Share, Training
from haybale.retrieval import Run
from haybale.search.explanation import by_size


@dataclass(eq=False, repr=False)
class LinkedDocuments(Ranker):
    """Rank the documents that a random walk along links reaches from the first documents of another ranker.

    score(d) = Σ_s Σ_t decay^(t-1) · P(d, t steps from s) / (10 + rank of s), for seeds s and t = 1 … steps. A step
    follows any link of a document with equal probability. With :class:`SimilarQueries` as the ranker, it finds
    documents that cite, or are cited by, the relevant documents of similar queries. It reads no text, so use it as
    evidence beside other rankers, in :class:`Learned` or :class:`SVR`.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are the seeds.
    direction : {"both", "cited", "citing"}, default "both"
        Whether steps lead to cited documents, to citing ones, or to both.
    n_seeds : int, default 20
        Number of seeds of each query.
    steps : int, default 2
        Maximum number of steps.
    decay : float, default 0.5
        Factor by which each further step counts less.
    mask : {"own", "relevant", "off"}, default "own"
        As for :class:`LinearContext`.
    """

    name = "linked-documents"
    variants: ClassVar = {
        "linked": {},
        "linked-cited": {"direction": "cited"},
        "linked-citing": {"direction": "citing"},
    }
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "direction": one_of(["both", "cited", "citing"]),
        "n_seeds": COUNT,
        "steps": COUNT,
        "decay": SHARE,
        "mask": MASKS,
    }

    ranker: Ranker
    _: KW_ONLY
    direction: str = "both"
    n_seeds: int = 20
    steps: int = 2
    decay: float = 0.5
    mask: str = "own"

    @property
    def needs_training(self) -> bool:
        """Whether it or the ranker within needs judgements; ``mask="relevant"`` takes the hidden links from them."""
        return self.mask == "relevant" or super().needs_training

    @property
    def uses_vectors(self) -> bool:
        """False: it follows links only."""
        return False

    def fit_batch(self, training: Training) -> None:
        _ = graph_of(training.engine)
        self.rankers_ = [self.ranker._fitted_copy(training)]
        self.mask_ = relevant_by_own(self, training)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._walk(batch, self.rankers_[0].run(batch, self.n_seeds), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._walk(batch, self.rankers_[0].run(batch, self.n_seeds, out_of_fold=True), depth)

    def _walk(self, batch: QueryBatch, first: Run, depth: int) -> Run:
        rows, ranks, seeds = first.numbers_in(batch.engine.collection)
        edges = np.searchsorted(rows, np.arange(len(batch) + 1))
        parts = []
        with batch.timed("walk links"):
            for row in range(len(batch)):
                part = slice(edges[row], edges[row + 1])
                reached, scores = self._reached(batch.engine, int(batch.own[row]), seeds[part], 1 / (10 + ranks[part]))
                parts.append((np.full(len(reached), row), reached, scores))
        of, documents, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, of, documents, scores, depth)

    def _reached(self, engine: Engine, own_document: int, seeds: Ints, weights: Scores) -> tuple[Ints, Scores]:
        """Return ``(documents, scores)`` of the walk, without the document that the query was taken from."""
        graph, mask = graph_of(engine).graph, hidden_links(self, engine)
        document_scores = np.zeros(graph.n_documents)
        at, mass = seeds, weights
        for step in range(self.steps):
            of, linked = _links(graph, at, self.direction)
            if mask is not None:
                visible = ~mask.hides(own_document, at[of], linked)
                of, linked = of[visible], linked[visible]
            link_mass = mass[of] / np.bincount(of, minlength=len(at))[of]
            at, target_of_link = np.unique(linked, return_inverse=True)
            mass = np.bincount(target_of_link, link_mass, minlength=len(at)).astype(np.float64)
            document_scores[at] += self.decay**step * mass
        documents = np.flatnonzero(document_scores)
        documents = documents[documents != own_document]
        return documents, document_scores[documents]

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        _, ranks, seeds = self.rankers_[0].run(batch, self.n_seeds).numbers_in(batch.engine.collection)
        shares, ids = [], batch.engine.collection.doc_ids
        for rank, seed in zip(ranks.tolist(), seeds.tolist(), strict=True):
            reached, scores = self._reached(
                batch.engine, int(batch.own[0]), np.array([seed]), np.array([1 / (10 + rank)])
            )
            if document in reached:
                inner = self.rankers_[0].explained(batch, seed)
                what = f"linked with {ids[seed].as_py()}, rank {rank:,} of {self.rankers_[0]}"
                shares.append(Share(what, float(scores[reached == document][0]), of=inner))
        return replace(base, shares=by_size(shares))

    def save_state(self, folder: Path) -> dict[str, Any]:
        return {"mask": self.mask_}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.mask_ = state["mask"]


def _links(graph: DocumentGraph, documents: Ints, direction: str) -> tuple[Ints, Ints]:
    """Return distinct pairs ``(position in documents, linked document)`` in a direction."""
    parts = []
    for name, (offsets, linked) in zip(("cited", "citing"), graph.document_links, strict=True):
        if direction in ("both", name):
            at, ends = ragged_take(offsets, documents)
            parts.append(np.repeat(np.arange(len(documents)), np.diff(ends)) * graph.n_documents + linked[at])
    pairs = np.unique(np.concatenate(parts))
    return pairs // graph.n_documents, pairs % graph.n_documents
