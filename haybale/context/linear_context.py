"""The ranker ``linear-context``: a weighted sum of a passage's score and the mean scores over ten relation paths."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from haybale.context.candidates import (
    N_FOLDS,
    BestPassage,
    JudgedDocuments,
    QueryCandidates,
    Scores,
    best_passages,
    judged_documents,
    query_candidates,
)
from haybale.context.engine_graph import graph_of, node_share
from haybale.context.masks import MASKS, hidden_links, relevant_by_own
from haybale.context.relation_paths import PATHS
from haybale.engine import Engine
from haybale.parameters import COUNT, NOT_NEGATIVE, RANDOM_STATE
from haybale.progress import track
from haybale.rankers import Explanation, OutOfFold, QueryBatch, Ranker, Share, Training
from haybale.rankers.models.conditional_logit import conditional_logit
from haybale.rankers.reranker import Reranker
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.explanation import by_size
from haybale.vectors import Floats

_ALTERNATIONS = 3  # alternations between choosing the examples and fitting the weights
# The weights before the first alternation. Starting from the passages alone ends in worse weights.
_INITIAL_WEIGHTS = {"passage": 1.0, "siblings": 0.5, "rest of the document": 0.5}


@dataclass(eq=False, repr=False)
class LinearContext(BestPassage, OutOfFold, Reranker):
    """Re-rank by score(p) = w_0 · s(p) + Σ_r w_r · mean of s over the nodes that relation path r leads to from p.

    s is the inner product of the query with a passage or a section title. The score is therefore the inner product of
    the query with a vector of passage p in context. The ten relation paths are :data:`~haybale.context.PATHS`; no path
    leads from p to itself. A document scores by its best passage. The weights are fitted by a penalised conditional
    logit of the relevant document among the documents with the highest scores. For three rounds, fitting alternates
    with choosing these documents and their best passages by the present weights.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    n_documents : int, default 1000
        Number of documents that are re-ranked for each query.
    mask : {"own", "relevant", "off"}, default "own"
        Which links between documents are hidden from a query. "own" hides all links of the document that it was taken
        from, as if that document were new. "relevant" hides the links between that document and the documents that are
        relevant to training queries taken from it. "off" hides none; a training query then sees its relevant
        documents.
    n_train : int, default 50
        Number of documents with the highest scores that each training query contributes, besides its relevant ones.
    n_queries : int, default 3000
        Maximum number of training queries; a larger set is sampled.
    l2 : float, default 0.01
        L2 penalty on the weights, in units of the loss (nats per query).
    random_state : int, default 0
        Seed of the folds and the sample of queries.
    """

    name = "linear-context"
    part_names = ("passage", *PATHS)
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "mask": MASKS,
        **dict.fromkeys(("n_documents", "n_train", "n_queries"), COUNT),
        "l2": NOT_NEGATIVE,
        "random_state": RANDOM_STATE,
    }

    ranker: Ranker
    _: KW_ONLY
    n_documents: int = 1000
    mask: str = "own"
    n_train: int = 50
    n_queries: int = 3000
    l2: float = 1e-2
    random_state: int | None = 0

    def fit_batch(self, training: Training) -> None:
        _ = graph_of(training.engine)  # raises before any work if there is no graph
        self.rankers_ = [self.ranker._fitted_copy(training.for_nested())]
        self.mask_ = relevant_by_own(self, training)
        judged = judged_documents(self, training)
        self.weights_ = np.tile([_INITIAL_WEIGHTS.get(name, 0.0) for name in self.part_names], (N_FOLDS + 1, 1))
        for _ in range(_ALTERNATIONS):
            with judged.batch.timed("context of training queries"):
                examples = self._examples(judged)
            with judged.batch.timed("learn context"):
                for fold, (query, target, parts) in enumerate(examples):
                    if len(target):
                        target = target / target.sum()
                        self.weights_[fold], _, loss, _ = conditional_logit(query, parts, target, self.l2, 50)
        self.loss_ = float(loss)  # of the last weights, which were learned from all queries

    def _examples(self, judged: JudgedDocuments) -> list[tuple[Ints, Scores, Floats]]:
        """Return ``(query row, target, parts)`` of the training documents of each fold, and last of all queries.

        They are the relevant documents of each query and those with the highest scores by the present weights. The
        parts of a document are those of its best passage.
        """
        examples: list[list[tuple[Ints, Scores, Floats]]] = [[] for _ in self.weights_]
        candidates_of_queries = query_candidates(judged.batch, judged.rows, judged.documents)
        for candidates in track(candidates_of_queries, "context of training queries", len(judged.batch)):
            relevant = judged.relevant[judged.of(candidates.row)]
            parts = self._parts(judged.batch, candidates)
            for fold, scores in enumerate((parts @ self.weights_.T).T):
                if fold != self.fold_of_[candidates.row] and relevant.any():
                    best = best_passages(scores, candidates.begins)
                    first = np.argsort(-scores[best], kind="stable")[: self.n_train]
                    chosen = np.union1d(first, np.flatnonzero(relevant))
                    target = relevant[chosen] / relevant.sum()
                    examples[fold].append((np.full(len(chosen), candidates.row), target, parts[best[chosen]]))
        none = np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, len(self.part_names)), dtype=np.float32)
        columns = [
            [np.concatenate(column) for column in zip(none, *fold_examples, strict=True)] for fold_examples in examples
        ]
        return [(query, target, np.ascontiguousarray(parts.T)) for query, target, parts in columns]

    def _parts(self, batch: QueryBatch, candidates: QueryCandidates) -> Floats:
        """Return (c, 11) the score of each passage and its mean over each relation path."""
        scores, passages, mask = candidates.scores, candidates.passages, hidden_links(self, batch.engine)
        means = graph_of(batch.engine).paths.means(scores, passages, candidates.own, mask)
        return np.concatenate([scores[passages][:, None], means], axis=1)

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        passage_scores: Scores = self._parts(batch, candidates) @ self.weights_[fold]
        return passage_scores

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of the best passage itself and of each neighbour."""
        engine = batch.engine
        candidates, passage = self.best_passage(batch, document)
        weights = dict(zip(self.part_names, self.weights_[-1].tolist(), strict=True))
        shares = [node_share(engine, np.array([passage]), weights["passage"] * float(candidates.scores[passage]))]
        neighbours = graph_of(engine).paths.neighbours(passage, candidates.own, hidden_links(self, engine))
        for path, nodes, weight in neighbours:
            score = weight * float(candidates.scores[nodes].sum())
            shares.append(node_share(engine, nodes, weights[path] * score, path))
        return by_size(shares)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        return {"weights": self.weights_.tolist(), "loss": self.loss_, "mask": self.mask_}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        self.weights_, self.loss_, self.mask_ = np.array(state["weights"]), state["loss"], state["mask"]

    @property
    def fit_report_(self) -> dict[str, Any]:
        weights = dict(zip(self.part_names, self.weights_[-1].tolist(), strict=True))
        return {"training queries": len(self.query_ids_), "loss": self.loss_} | weights | self.twins_.report
