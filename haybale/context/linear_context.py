"""Linear context as a ranker: a passage by what it says and by what ten relations lead to, with learned weights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.context.context_ranker import N_FOLDS, ContextRanker, QueryCandidates, Scores, graph_of
from haybale.context.relation_paths import PATHS
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import COUNT, NOT_NEGATIVE, RANDOM_STATE
from haybale.progress import track
from haybale.rankers.conditional_logit import conditional_logit
from haybale.rankers.explanation import Share
from haybale.rankers.out_of_fold import OutOfFold
from haybale.rankers.query_batch import QueryBatch, numbered
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_ROUNDS = 3  # of choosing documents and their best passages, and learning weights for these
# What the first are chosen by: from the passages alone the rounds end in weights that are worse.
_FIRST = {"passage": 1.0, "siblings": 0.5, "rest of the document": 0.5}


@dataclass(eq=False, repr=False)
class LinearContext(OutOfFold, ContextRanker):
    """score(p) = w_0 · s(p) + Σ over ten relations r of w_r · mean of s over what r leads to from p, without p.

    s is the inner product of the query with a passage or title: so it is the inner product with a vector of p in
    context, Σ_r w_r · mean over r. The relations are :data:`~haybale.context.PATHS`. The weights make the relevant
    documents of training queries likely: those of a conditional logit over the documents that score highest, by their
    best passages, standardised and penalised; documents, passages and weights in turns.

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    n_documents : int, default 1000
        Documents of each query that are re-ordered.
    mask : {"own", "relevant", "off"}, default "own"
        Which links between documents a query does not see: all of the document that it was taken from, as if that were
        new; those with documents that are relevant to training queries from there; "off": it sees all, so in training
        the answers.
    n_train : int, default 50
        Documents of a training query that weights are learned on, those of the highest scores, and its relevant ones.
    n_queries : int, default 3000
        Training queries that weights are learned on, drawn at random where there are more.
    l2 : float, default 0.01
        Penalty on the weights, in units of the loss (nats a query).
    random_state : int, default 0
        Of folds and drawn queries.
    """

    name = "linear-context"
    variants: ClassVar = {"linear-context": {}}
    part_names = ("passage", *PATHS)
    _parameter_constraints: ClassVar = {
        **ContextRanker._ranges,
        "n_train": COUNT,
        "n_queries": COUNT,
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

    def _learn(self, training: Training) -> None:
        rows = drawn(training, self.n_queries, self.random_state)
        batch = training.batch.take(rows) if len(rows) < len(training) else training.batch
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(N_FOLDS, self.random_state)
        query, document, is_relevant = judged_documents(self, batch, [training.relevant[row] for row in rows])
        self.weights_ = np.tile([_FIRST.get(name, 0.0) for name in self.part_names], (N_FOLDS + 1, 1))
        for _ in range(_ROUNDS):
            with batch.timed("context of training queries"):
                examples = self._examples(batch, query, document, is_relevant)
            with batch.timed("learn context"):
                for fold, (asking, target, parts) in enumerate(examples):
                    if len(target):  # else the others teach nothing
                        found = conditional_logit(asking, parts, target / target.sum(), self.l2, 50)
                        self.weights_[fold], loss = found[0], found[2]
        self.loss_ = float(loss)  # of the last, which is that of all

    def _examples(
        self, batch: QueryBatch, query: Ints, document: Ints, is_relevant: NDArray[np.bool_]
    ) -> list[tuple[Ints, Scores, Floats]]:
        """``(query row, target, parts)`` of the documents (n,) that each fold, and all, learn from: of a query its
        relevant ones and those of the highest scores by present weights, by their best passages."""
        found: list[list[tuple[Ints, Scores, Floats]]] = [[] for _ in self.weights_]
        edges = np.searchsorted(query, np.arange(len(batch) + 1))
        for asked in track(self._asked(batch, query, document), "context of training queries", len(batch)):
            right = is_relevant[edges[asked.row] : edges[asked.row + 1]]
            parts = self._parts(asked, batch, -1)
            for fold, scores in enumerate((parts @ self.weights_.T).T):
                if fold != self.fold_of_[asked.row] and right.any():
                    picked = best_passages(scores, asked.begins)
                    first = np.argsort(-scores[picked], kind="stable")[: self.n_train]
                    chosen = np.union1d(first, np.flatnonzero(right))
                    target = right[chosen] / right.sum()
                    found[fold].append((np.full(len(chosen), asked.row), target, parts[picked[chosen]]))
        none = np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, len(self.part_names)), dtype=np.float32)
        columns = [[np.concatenate(column) for column in zip(none, *each, strict=True)] for each in found]
        return [(asking, target, np.ascontiguousarray(parts.T)) for asking, target, parts in columns]

    def _parts(self, asked: QueryCandidates, batch: QueryBatch, fold: int) -> Floats:
        found = graph_of(batch.engine)
        around = found.paths.means(asked.scores, asked.passages, asked.own, self._hidden(batch.engine))
        return np.concatenate([asked.scores[asked.passages][:, None], around], axis=1)

    def _weights(self, fold: int) -> Scores:
        weights: Scores = self.weights_[fold]
        return weights

    def _around(self, batch: QueryBatch, asked: QueryCandidates, passage: int) -> list[Share]:
        shares, weights = [], dict(zip(PATHS, self._weights(-1)[1:], strict=True))
        hidden = self._hidden(batch.engine)
        for path, nodes, weight in graph_of(batch.engine).paths.neighbours(passage, asked.own, hidden):
            called, text = self._neighbour(batch.engine, nodes)
            shares.append(Share(f"{path}: {called}", weights[path] * weight * float(asked.scores[nodes].sum()), text))
        return shares

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        return {"weights": self.weights_.tolist(), "loss": self.loss_, "mask": self.mask_}

    def load_state(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        self.weights_, self.loss_, self.mask_ = np.array(facts["weights"]), facts["loss"], facts["mask"]

    @property
    def fit_report_(self) -> dict[str, Any]:
        weights = dict(zip(self.part_names, self.weights_[-1].tolist(), strict=True))
        return {"training queries": len(self.query_ids_), "loss": self.loss_} | weights


def drawn(training: Training, n: int, random_state: int | None) -> Ints:
    """Rows of at most n training queries that have a relevant document, at random."""
    judged = np.flatnonzero(list(map(bool, training.relevant)))
    return np.sort(np.random.default_rng(random_state).choice(judged, size=min(n, len(judged)), replace=False))


def judged_documents(
    ranker: ContextRanker, batch: QueryBatch, relevant: list[list[str]]
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """``(query row, document, is relevant)`` of what is re-ordered or relevant, and has a passage."""
    collection = batch.engine.collection
    rows, _, documents = numbered(ranker.rankers_[0].run_out_of_fold(batch, ranker.n_documents), collection)
    answers = collection.document_numbers([doc_id for ids in relevant for doc_id in ids])
    known = np.repeat(np.arange(len(batch)), [len(ids) for ids in relevant]) * collection.n_documents + answers
    both = np.unique(np.concatenate([rows * collection.n_documents + documents, known]))
    rows, documents = both // collection.n_documents, both % collection.n_documents
    there = np.diff(batch.engine.passages.doc_offsets)[documents] > 0
    right = np.isin(both, known) & there
    if not right.any():
        raise InputError(f"{ranker}: no relevant document has a passage: there is nothing to learn")
    return rows[there], documents[there], right[there]


def best_passages(scores: Scores, begins: Ints) -> Ints:
    """(n,) the place of the first passage of the highest score of each document."""
    best = np.repeat(np.maximum.reduceat(scores, begins[:-1]), np.diff(begins))
    at = np.flatnonzero(scores == best)
    return at[np.searchsorted(at, begins[:-1])]
