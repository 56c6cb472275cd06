"""Documents by their links with what another ranker finds first: evidence from the citation graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from haybale.collections.collection import Ints, ragged_take
from haybale.context.context_ranker import MASKS, Scores, graph_of, hidden_links, relevant_by_own
from haybale.context.document_graph import DocumentGraph
from haybale.engine import Engine
from haybale.parameters import COUNT, SHARE, one_of
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.query_batch import QueryBatch, numbered
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.retrieval import Run


@dataclass(eq=False, repr=False)
class LinkedDocuments(Ranker):
    """Documents linked with the first documents of another ranker, in few steps.

    score(d) = Σ over these documents s and over t = 1 … steps of decay^(t-1) · P(d, t steps from s) / (10 + rank of s).
    A step goes along any link of a document, each as likely. With :class:`SimilarQueries`: what is cited by, or cites,
    what similar queries have relevant; with a search: what is near its first documents in the graph of citations. It
    reads no text, so it is evidence beside other rankers, for :class:`Learned` or :class:`SVR`.

    Parameters
    ----------
    ranker : Ranker
        Whose first documents are begun at.
    direction : {"both", "cited", "citing"}, default "both"
        Whether steps go to documents that are cited, to those that cite, or to both.
    n_seeds : int, default 20
        Documents that are begun at.
    steps : int, default 2
    decay : float, default 0.5
        Of a further step.
    mask : {"own", "relevant", "off"}, default "own"
        As of :class:`LinearContext`.
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
        "mask": one_of(MASKS),
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
        """As every ranker's; the judgements tell which links are hidden, too."""
        return self.mask == "relevant" or super().needs_training

    def fit_batch(self, training: Training) -> None:
        _ = graph_of(training.batch.engine)
        self.rankers_ = [self.ranker.fitted(training)]
        self.mask_ = relevant_by_own(training) if self.mask == "relevant" else None

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._walked(batch, self.rankers_[0].run(batch, self.n_seeds), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._walked(batch, self.rankers_[0].run_out_of_fold(batch, self.n_seeds), depth)

    def _walked(self, batch: QueryBatch, first: Run, depth: int) -> Run:
        rows, ranks, seeds = numbered(first, batch.engine.collection)
        edges = np.searchsorted(rows, np.arange(len(batch) + 1))
        parts = []
        with batch.timed("walk links"):
            for row in range(len(batch)):
                part = slice(edges[row], edges[row + 1])
                found, scores = self._near(batch.engine, int(batch.own[row]), seeds[part], 1 / (10 + ranks[part]))
                parts.append((np.full(len(found), row), found, scores))
        of, documents, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, of, documents, scores, depth)

    def _near(self, engine: Engine, own: int, seeds: Ints, weights: Scores) -> tuple[Ints, Scores]:
        """``(documents, scores)`` but for the document that the query was taken from."""
        graph, mask = graph_of(engine).graph, hidden_links(self, engine)
        found = np.zeros(graph.n_documents)
        at, chance = seeds, weights
        for step in range(self.steps):
            of, there = _links(graph, at, self.direction)
            if mask is not None:
                seen = ~mask.hides(own, at[of], there)
                of, there = of[seen], there[seen]
            each = chance[of] / np.bincount(of, minlength=len(at))[of]
            at, place = np.unique(there, return_inverse=True)
            chance = np.bincount(place, each, minlength=len(at)).astype(np.float64)
            found[at] += self.decay**step * chance
        documents = np.flatnonzero(found)
        documents = documents[documents != own]
        return documents, found[documents]

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        _, ranks, seeds = numbered(self.rankers_[0].run(batch, self.n_seeds), batch.engine.collection)
        shares, ids = [], batch.engine.collection.doc_ids
        for rank, seed in zip(ranks.tolist(), seeds.tolist(), strict=True):
            found, scores = self._near(batch.engine, int(batch.own[0]), np.array([seed]), np.array([1 / (10 + rank)]))
            if document in found:
                inner = self.rankers_[0].explained(batch, seed)
                what = f"linked with {ids[seed].as_py()}, rank {rank:,} of {self.rankers_[0]}"
                shares.append(Share(what, float(scores[found == document][0]), of=inner))
        return replace(base, shares=by_size(shares))

    def save_state(self, folder: Path) -> dict[str, Any]:
        return {"mask": self.mask_}

    def load_state(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        self.mask_ = facts["mask"]


def _links(graph: DocumentGraph, documents: Ints, direction: str) -> tuple[Ints, Ints]:
    """``(place, document)`` of what documents (n,) are linked with, each once."""
    named = zip(("cited", "citing"), graph.document_links, strict=True)
    sides = [side for name, side in named if direction in ("both", name)]
    of, there = [], []
    for offsets, linked in sides:
        at, ends = ragged_take(offsets, documents)
        of.append(np.repeat(np.arange(len(documents)), np.diff(ends)))
        there.append(linked[at])
    pairs = np.unique(np.concatenate(of) * graph.n_documents + np.concatenate(there))
    return pairs // graph.n_documents, pairs % graph.n_documents
